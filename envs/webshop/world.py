"""WebShop as a world: its goals as tasks, how a shop is shown, and what a purchase scores."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from anyio import to_thread
from pydantic import Field, PrivateAttr, field_validator

from envs.base import DataError, Outcome, Replay, Session, Task, World, WorldError
from envs.data import cache_folder, find
from envs.promptfiles import read_prompts
from envs.webshop import examples
from envs.webshop.catalogue import COUNT, SEED, products
from envs.webshop.goals import SPLITS, Goal, Goals, Kind
from envs.webshop.pages import Format

if TYPE_CHECKING:
    from envs.webshop.session import Shop

OWN = "catalogue"
INSTALL = "world 'webshop' needs pip install 'overnight[webshop]' (numpy, rapidfuzz, snowballstemmer)"
CUE = "\n\nAction:"


class WebShop(World):
    """WebShop (Yao et al. 2022): buy what an instruction asks for, in a shop of our own or with the public catalogues.

    A task's `target` holds what the reward asks for. `reward` in [0, 1] is that of the purchase, 0 without one;
    `success` is 1 where it is exactly 1. In tables both are shown times 100.
    """

    name: ClassVar[str] = "webshop"
    acts: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    replay: ClassVar[Replay] = "pure"
    label: ClassVar[str] = "Instruction"
    steps: ClassVar[int] = 14
    cue: ClassVar[str] = CUE
    paths: ClassVar[tuple[str, ...]] = ("source",)

    source: str = Field(
        OWN,
        description="The products: `catalogue` (ours), or a file of the public code's form (`items_shuffle.json`, "
        "`items_shuffle_1000.json`) or of JSON lines.",
    )
    attributes: Path | None = Field(
        None, description="The file of attributes and invented instructions (`items_ins_v2.json`)."
    )
    people: Path | None = Field(
        None, description="The file of people's instructions (`items_human_ins.json`)."
    )
    goals: Kind = Field(
        "human",
        description="`human`: people's instructions (in our catalogue, one for each product); `synthetic`: one for "
        "each combination of a product's options.",
    )
    split: str = Field(
        "test",
        description="test (500 goals), dev (1,000) or train (the others); empty: all.",
    )
    seed: int = Field(
        SEED, description="Of budgets, of prices that are a range, and of our catalogue's products."
    )
    count: int = Field(COUNT, gt=0, description="Products of our catalogue.")
    observations: Format = Field(
        "react",
        description="`react`: as in the ReAct paper; `text` and `text_rich`: as WebShop's own environment writes them.",
    )
    shown: int | None = Field(
        None, gt=0, le=10, description="Results shown of a page's ten; unset: 3 in ReAct's format, else 10."
    )
    compat: Literal["ours", "reference"] = Field(
        "ours", description="`reference`: `Next >` is an invalid action, as in the ReAct paper's code."
    )
    recent: int = Field(
        6400,
        ge=0,
        description="Most characters of a prompt: of what follows the example, only the end is sent (as in the ReAct "
        "paper's code). 0: all of it.",
    )

    _shop: Shop | None = PrivateAttr(default=None)
    _found: Goals | None = PrivateAttr(default=None)

    @field_validator("split")
    @classmethod
    def _split_is_known(cls, split: str) -> str:
        if split and split not in SPLITS:
            raise ValueError(f"there is no split {split!r}; there are: {', '.join(SPLITS)}, or empty for all")
        return split

    # -- tasks -----------------------------------------------------------------------------------------
    def tasks(self) -> Iterator[Task]:
        """The split's goals. A task's id is its place in the shuffled list, `fixed_0`, as in the public code. Reads
        the whole catalogue at first, and makes its index if there is none. Raises DataError."""
        begin, end = SPLITS.get(self.split, (0, None))
        found = self.every_goal()
        for number in range(len(found))[begin:end]:
            goal = found[number]
            yield Task(
                id=f"fixed_{number}",
                input=goal.instruction,
                target=goal.as_dict(),
                split=self.split,
            )

    def every_goal(self) -> Goals:
        """Those of all splits, in order; they are read from the open shop. Raises DataError where there are none."""
        if self._found is not None:
            return self._found
        found = self.opened().index.goals(self.goals, self.seed)
        if not found:
            raise DataError(
                f"{self.source}: no {self.goals} goals; name the file of instructions "
                f"(`{'people' if self.goals == 'human' else 'attributes'}`)"
            )
        self._found = found
        return found

    @property
    def source_version(self) -> str:
        """The catalogue: its seed and size, or its files with their sizes."""
        if self.source == OWN:
            return f"{OWN} {self.seed} {self.count}"
        files = [Path(self.source), *filter(None, [self.attributes, self.people])]
        return ", ".join(f"{file.name} {find(file).stat().st_size}" for file in files)

    def check(self) -> None:
        """Raises WorldError where a package is missing."""
        if any(find_spec(package) is None for package in ("numpy", "rapidfuzz", "snowballstemmer")):
            raise WorldError(INSTALL)

    def opened(self) -> Shop:
        """The open shop; its index is made where there is none yet."""
        if self._shop is None:
            self.check()
            from envs.webshop.files import read_products
            from envs.webshop.index import Index, prepare
            from envs.webshop.session import Shop

            if self.source == OWN:
                source, made = self.source_version, products(self.count, self.seed)
            else:
                files = [Path(self.source), self.attributes, self.people]
                stats = [(str(found), found.stat()) for found in map(find, filter(None, files))]
                source = repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
                made = read_products(Path(self.source), self.attributes, self.people)
            place = prepare(made, cache_folder() / "webshop", source)
            self._shop = Shop(Index(place), self.seed)
        return self._shop

    # -- prompt material -------------------------------------------------------------------------------
    @property
    def material(self) -> str:
        return "".join(self._texts.values()) if self.prompts else examples.everything()

    def shots(self, style: str, task: Task) -> str:
        kept: dict[str, str] = self.made.setdefault("shots", {})
        if style not in kept:
            if self.prompts:
                key = self.prompt_keys.get(style, style)
                if key not in self._texts:
                    known = ", ".join(sorted(self._texts)) or "none"
                    raise DataError(f"prompts: no prompt {key!r}; there are: {known}")
                kept[style] = self._texts[key]
            else:
                kept[style] = examples.shots(style)
        return kept[style]

    @property
    def _texts(self) -> dict[str, str]:
        if "texts" not in self.made:
            self.made["texts"] = read_prompts(self.prompts)
        texts: dict[str, str] = self.made["texts"]
        return texts

    def turn(self, line: str, observation: str) -> str:
        return f" {line}\nObservation: {observation}{self.cue}"

    def window(self, prompt: str) -> str | None:
        """The example, and of what follows the last characters, all of it together of `recent` at most."""
        if not self.recent or len(prompt) <= self.recent:
            return None
        kept: dict[str, str] = self.made.get("shots", {})
        example = next((text for text in kept.values() if prompt.startswith(text)), "")
        left = max(self.recent - len(example), len(self.cue))
        return example + prompt[len(example) :][-left:]

    # -- the end ---------------------------------------------------------------------------------------
    def score_outcome(self, task: Task, outcome: Outcome) -> dict[str, float]:
        """`reward` and `success`."""
        reward = sum(outcome.rewards)
        return {"reward": reward, "success": float(reward == 1)}

    # -- acting ----------------------------------------------------------------------------------------
    def session(self, task: Task) -> Session:
        if self._shop is None:
            raise WorldError(f"world {self.name!r} is not open; await open(cache) first")
        from envs.webshop.session import ShopSession

        assert isinstance(task.target, dict)
        shown = self.shown or (3 if self.observations == "react" else 10)
        return ShopSession(
            self._shop,
            Goal.of(task.input, task.target),
            self.observations,
            shown=shown,
            paged=self.compat != "reference",
        )

    async def open(self, cache: Path) -> None:
        """Raises WorldError where a package is missing, DataError where the products cannot be read."""
        await to_thread.run_sync(self.opened)

    async def close(self) -> None:
        shop, self._shop, self._found = self._shop, None, None
        if shop is not None:
            shop.index.close()
