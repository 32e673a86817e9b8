"""ScienceWorld as a world: its tasks, how they are shown, and what an episode scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator

from envs.base import DataError, Exemplar, Outcome, Replay, Session, Task, World, WorldError
from envs.hosting import Host, Hosted
from envs.scienceworld import engine
from envs.scienceworld.exemplars import embedded
from envs.scienceworld.tasks import BY_WORD, KINDS, SIMPLIFICATIONS, SPLITS, Kind, Split
from envs.tables import nearest

PASS
