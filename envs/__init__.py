"""Worlds: what tasks are acted in and how they are scored, one file each. Nothing here imports `runner`."""

from envs.base import DataError, Exemplar, Lost, Observation, Outcome, Session, Task, World, WorldError

WORLDS = {
    "hotpotqa": "envs.hotpotqa:HotpotQA",
    "fever": "envs.fever:Fever",
    "qa": "envs.qa:QA",
    "scienceworld": "envs.scienceworld.world:ScienceWorld",
    "recording": "envs.recording:Recording",
    "alfworld": "envs.alfworld.world:Alfworld",
    "gym": "envs.gym:Gym",
    "webshop": "envs.webshop.world:WebShop",
    "webarena": "envs.webarena.world:WebArena",
}
"""Every world's word in a job, and where it is. A new world is one file and one line here; other packages add
theirs by an entry point in the group `overnight.envs`."""

__all__ = [
    "WORLDS",
    "DataError",
    "Exemplar",
    "Lost",
    "Observation",
    "Outcome",
    "Session",
    "Task",
    "World",
    "WorldError",
]
