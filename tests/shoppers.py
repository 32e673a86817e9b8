"""A customer for tests: buys what each instruction asks for, from what the prompt shows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from envs.base import Task
from envs.webshop.pages import Item, Results, Start, read
from runner.models.base import Call


def shopper(tasks: Iterable[Task], thinks: bool = False) -> Callable[[Call], str]:
    """A policy that knows each instruction's goal and does the next thing that the prompt leaves to do."""
    goals: Mapping[str, Mapping[str, object]] = {task.input: task.target for task in tasks}

    def policy(call: Call) -> str:
        own = str(call.request.prompt).rpartition("\nWebshop \n")[2]
        goal = goals[own.split(" \n[Search]")[0].removeprefix("Instruction:  \n")]
        turns = [turn.split("\nObservation: ", 1) for turn in own.split("\n\nAction: ")[1:]]
        turns = [(action, seen.removesuffix("\n\nAction:")) for action, seen in turns]
        if thinks and not any(action.startswith("think[") for action, _ in turns):
            return " think[I have to look for it first.]"
        pages = [
            page for _, seen in turns if not isinstance(page := read(seen), Start) and hasattr(page, "rows")
        ]
        done = {action for action, _ in turns}
        items = [page for _, seen in turns if isinstance(page := read(seen), Item)]
        asin, title, options = goal["asin"], goal["title"], goal["options"]
        assert isinstance(title, str) and isinstance(options, list)
        if not pages:
            return f" search[{title} {' '.join(options)}]"
        if not items:
            page = pages[-1]
            assert isinstance(page, Results)
            return f" click[{asin}]" if asin in {row.asin for row in page.rows} else " click[Next >]"
        left = [value for value in options if f"click[{value}]" not in done]
        return f" click[{left[0]}]" if left else " click[Buy Now]"

    return policy
