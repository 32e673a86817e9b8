"""What a method is: settings that a job may give, and `solve`, the algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from runner.episode import Episode

Compat: TypeAlias = Literal["default", "reference"]


class Method(BaseModel):
    """Base of all methods. Settings of a job's `[methods.NAME]` table become fields of the subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: ClassVar[str]
    """The word used in job files."""
    acts: ClassVar[bool] = False
    """Whether it takes actions, and so needs a world that can be acted in."""
    sparse: ClassVar[bool] = False
    """Whether it needs a world with sparse thoughts."""
    styles: ClassVar[tuple[str, ...]] = ()
    """The prompt styles it uses (`standard`, `cot`, `act`, `react`), so that a job whose prompt files lack one
    is refused before it runs."""

    compat: Compat = Field(
        "default", description="`reference`: the public code's protocol to the letter, accidents included."
    )

    async def solve(self, ep: Episode) -> None:
        """Solve the episode: set `ep.answer`, or leave it and say why with `ep.end(status)`."""
        raise NotImplementedError
