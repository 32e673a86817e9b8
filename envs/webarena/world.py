"""WebArena-Shopping as a world: its tasks, how pages are shown, and what an episode scores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from pydantic import Field, PrivateAttr, field_validator

from envs.base import DataError, Observation, Outcome, Replay, Session, Task, WorldError
from envs.data import find
from envs.hosting import Host, HostedWorld
from envs.promptfiles import read_prompts
from envs.webarena import examples
from envs.webarena.strings import needs_judge, questions, string_score
from envs.webarena.tasks import read_tasks, task_of
from envs.webshop.catalogue import SEED

ENGINE = "envs.webarena.engine:WebArenaEngine"
OWN = "shop"
INSTALL = "world 'webarena' needs pip install 'overnight[webarena]' (Playwright), and a Chromium"
CUE = "\nAction:"
_PAGE = re.compile(r"(\nObservation: )((?:\([^\n]*\)\n)?Tab 0.*?)(?=\nAction:)", re.DOTALL)
LEFT = "(an earlier page)"


class WebArena(HostedWorld):
    """WebArena's shopping tasks (Zhou et al. 2024) in a real Chromium: in a shop of our own, or on your WebArena site.

    `reward` and `success` are 1 where all of a task's evaluators are content, else 0. Answers that only a judge can
    compare (`fuzzy_match`) are asked of the job's role `judge`, else of the model that acted.
    """

    name: ClassVar[str] = "webarena"
    acts: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    judged: ClassVar[bool] = True
    replay: ClassVar[Replay] = "rebuild"
    label: ClassVar[str] = "Objective"
    steps: ClassVar[int] = 30
    cue: ClassVar[str] = CUE
    last: ClassVar[str | None] = "stop []"
    paths: ClassVar[tuple[str, ...]] = ("source",)
    manners: ClassVar[tuple[str, ...]] = (*HostedWorld.manners, "page_seconds")

    source: str = Field(
        OWN,
        description="The tasks: `shop` (ours, made from `seed`), or a file in WebArena's format (`test.raw.json`, JSON "
        "lines), of which those that need no other site than the shop are taken.",
    )
    site: str = Field(
        "",
        description="The address of your WebArena shop, http://...; unset: our own shop, which is started here.",
    )
    user: str = Field("", description="The customer who is logged in at your site.")
    password_env: str = Field(
        "WEBARENA_PASSWORD", description="Environment variable that holds the password."
    )
    admin: str = Field("admin", description="The administrator for your site's REST interface.")
    admin_password_env: str = Field(
        "WEBARENA_ADMIN_PASSWORD", description="Environment variable that holds the administrator's password."
    )
    seed: int = Field(SEED, description="Of our shop and its tasks.")
    each: int = Field(4, gt=0, description="Tasks of each of our 24 kinds.")
    only: list[str | int] = Field(
        default_factory=list,
        description="Numbers of the tasks to take; unset: all. (The CFGM paper took 98.)",
    )
    whole_page: bool = Field(
        False, description="Show all of a page, not what is in a window of 1280 x 720 pixels."
    )
    lines: int = Field(250, gt=0, description="Most lines of a page that are shown.")
    pages: int = Field(
        1,
        ge=1,
        description="How many of the latest pages a prompt shows; of earlier ones only that they were there.",
    )
    page_seconds: float = Field(15.0, gt=0, description="What loading a page may take.")
    per_worker: int | None = Field(8, gt=0, description="Episodes to a browser, about 100 MB each.")

    _host: Host | None = PrivateAttr(default=None)

    @field_validator("site")
    @classmethod
    def _site_is_an_address(cls, site: str) -> str:
        if site and not re.match(r"https?://[^/]+", site):
            raise ValueError(f"{site!r}: write it as http://host:port")
        return site.rstrip("/")

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """The source's tasks in its own order, or those of `only`. Raises DataError."""
        wanted = dict.fromkeys(map(str, self.only))
        for task in self._all():
            if not self.only or task.id in wanted:
                wanted.pop(task.id, None)
                yield task
        if wanted:
            raise DataError(
                f"{self.source}: only: there is no task {', '.join(wanted)} of the shop alone in it"
            )

    def _all(self) -> Iterator[Task]:
        if self.source != OWN:
            yield from read_tasks(Path(self.source), split=self.split)
            return
        from envs.webarena.shop.instances import instances

        for number, row in enumerate(instances(self.seed, self.each), 1):
            yield task_of(row, f"{OWN}, task {number}", self.split)

    @property
    def source_version(self) -> str:
        """The shop: ours and its seed, or the site's address; and the file's size."""
        tasks = f"{self.seed} {self.each}" if self.source == OWN else str(find(self.source).stat().st_size)
        return f"{self.site or OWN} {tasks}"

    # -- prompt material -------------------------------------------------------------------------------
    @property
    def material(self) -> str:
        return "".join(self._texts.values()) if self.prompts else examples.everything()

    def shots(self, style: str, task: Task) -> str:
        """Instruction, examples and the task itself."""
        return f"{self._shown(style)}Objective: {task.input}\nObservation: "

    def _shown(self, style: str) -> str:
        if not self.prompts:
            return examples.shots(style)
        key = self.prompt_keys.get(style, style)
        if key not in self._texts:
            raise DataError(
                f"prompts: no prompt {key!r}; there are: {', '.join(sorted(self._texts)) or 'none'}"
            )
        return self._texts[key]

    @cached_property
    def _texts(self) -> dict[str, str]:
        return read_prompts(self.prompts)

    def turn(self, line: str, observation: str) -> str:
        return f" {line}\nObservation: {observation}{self.cue}"

    def window(self, prompt: str) -> str | None:
        """The prompt without the pages before the latest `pages`."""
        own = prompt.rfind("\nObjective: ")
        found = list(_PAGE.finditer(prompt, max(own, 0)))
        if len(found) <= self.pages:
            return None
        parts, at = [], 0
        for page in found[: -self.pages]:
            parts += [prompt[at : page.start()], page[1], LEFT]
            at = page.end()
        return "".join(parts) + prompt[at:]

    # -- the end ---------------------------------------------------------------------------------------
    def to_judge(self, task: Task, outcome: Outcome) -> Sequence[str]:
        if not needs_judge(task.target) or not self._state_is_right(outcome):
            return ()
        return questions(task.target, task, outcome.answer or "")

    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        """`reward` and `success`, both 1 where all evaluators are content."""
        right = self._state_is_right(outcome)
        if right and "string_match" in task.target["eval_types"]:
            right = string_score(task.target, outcome.answer or "", outcome.verdicts)
        return {"reward": float(right), "success": float(right)}

    @staticmethod
    def _state_is_right(outcome: Outcome) -> bool:
        """Whether the shop was as the task wants it when the episode stopped."""
        return outcome.done and outcome.rewards[-1:] == (1.0,)

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> Session:
        if self._host is None:
            raise WorldError(f"world {self.name!r} is not open; await open(cache) first")
        return Visit(self._host.session({"start_url": task.metadata["start_url"], "eval": task.target}))

    def check(self) -> None:
        """Raises WorldError where Playwright, a Chromium or a password is missing."""
        if find_spec("playwright") is None:
            raise WorldError(INSTALL)
        from envs.webarena.chromium import MISSING, program

        if program() is None:
            raise WorldError(MISSING)
        self._settings()

    async def open(self, cache: Path) -> None:
        """Raises WorldError as `check` does."""
        self.check()
        self._host = self.host(ENGINE, self._settings())

    def _settings(self) -> dict[str, object]:
        settings: dict[str, object] = {
            "shop": self.site,
            "seed": self.seed,
            "page_seconds": self.page_seconds,
            "most": self.lines,
            "whole": self.whole_page,
        }
        if self.site:
            settings["admin"] = {"user": self.admin, "password": os.environ.get(self.admin_password_env, "")}
            if self.user:
                if not os.environ.get(self.password_env):
                    raise WorldError(
                        f"world {self.name!r}: no password for {self.user}; set the environment variable "
                        f"{self.password_env}"
                    )
                settings["login"] = {"user": self.user, "password": os.environ[self.password_env]}
        return settings

    async def close(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            await host.close()


class Visit(Session):
    """An episode in a browser. `stop [...]` says its answer and ends it."""

    def __init__(self, hosted: Session) -> None:
        self._hosted = hosted

    async def reset(self) -> str:
        self.answer = None
        return await self._hosted.reset()

    async def step(self, action: str) -> Observation:
        seen = await self._hosted.step(action)
        if seen.done:
            said = action.strip().strip("`").strip().removeprefix("stop").strip()
            self.answer = said.removeprefix("[").removesuffix("]").strip() or None
        return seen

    async def close(self) -> None:
        await self._hosted.close()
