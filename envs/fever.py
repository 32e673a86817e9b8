"""FEVER (Thorne et al. 2018): claims to verify against Wikipedia, read step by step as in the ReAct paper."""

from __future__ import annotations

from typing import ClassVar

from envs.base import DataError, Task
from envs.hotpotqa import ACTIONS, WikiWorld, after_answer, id_field, text_field
from envs.scoring import FEVER_LABELS, fever_label, fever_match_reference, normalize_answer
from envs.tables import Row


class Fever(WikiWorld):
    """FEVER's claims. `data` may be `paper_dev.jsonl` or any official file with `id`, `claim` and `label`.

    A task's `target` is SUPPORTS, REFUTES or NOT ENOUGH INFO. The score `em` is label accuracy: without
    evidence, as in the ReAct paper. With `compat = "reference"` only the exact label counts, in any case.
    """

    name: ClassVar[str] = "fever"
    label: ClassVar[str] = "Claim"
    steps: ClassVar[int] = 5
    questions: ClassVar[str] = "claims.jsonl"
    examples: ClassVar[str] = "exemplars_fever.json"

    def _task(self, row: Row, index: int, place: str) -> Task:
        id = id_field(row, ("id",), place)
        if isinstance(id, int):
            id = f"fever-{id}"
        label = text_field(row, "label", place)
        if label not in FEVER_LABELS:
            raise DataError(
                f"{place}: field 'label' is {label!r}; it must be one of {', '.join(FEVER_LABELS)}"
            )
        return Task(
            id=f"fever-row-{index}" if id is None else id,
            input=text_field(row, "claim", place),
            target=label,
            split=self.split,
            metadata={key: row[key] for key in row if key not in {"id", "claim", "label"}} | {"row": index},
        )

    def instruction(self, style: str) -> str:
        return INSTRUCTIONS.get(style, "")

    def extract(self, task: Task, text: str) -> str | None:
        """The label that the reply's answer states; in reference mode the answer as it is."""
        answer = after_answer(text, self.introduction)
        return answer if self.compat == "reference" else fever_label(answer)

    def canonical(self, task: Task, answer: str | None) -> str | None:
        """The label; in reference mode the normal form of the text, whatever it is."""
        if self.compat == "reference":
            return None if answer is None else normalize_answer(answer) or None
        return fever_label(answer)

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        """`em`: 1.0 for the right label, else 0.0."""
        return {"em": 0.0 if answer is None else self.reward(task, answer)}

    def reward(self, task: Task, answer: str) -> float:
        if self.compat == "reference":
            return fever_match_reference(answer, str(task.target))
        return float(fever_label(answer) == task.target)


_LABELS = """\
The answer is SUPPORTS if the encyclopedia shows the claim to be true, REFUTES if it shows it to be false, and
NOT ENOUGH INFO if it shows neither.
"""

INSTRUCTIONS = {
    "standard": f"Judge each claim with one of three answers. {_LABELS}",
    "cot": "Judge each claim with one of three answers. Reason first, in a line that begins with Thought, "
    f"then give the answer in a line that begins with Answer. {_LABELS}",
    "act": f"Judge each claim by taking actions and reading the observations. {_LABELS}{ACTIONS}",
    "react": "Judge each claim in turns of Thought, Action and Observation. A Thought reasons about what is "
    f"known and what to do next, an Observation is what an Action brought. {_LABELS}{ACTIONS}",
}
