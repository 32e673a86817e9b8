"""Whether texts and addresses are the right ones: WebArena's `string_match` and `url_match`, and what a judge is asked.

Rules: Zhou et al. 2024, section 3.2, and its public code (github.com/web-arena-x/webarena, evaluation_harness).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from envs.base import DataError, Task
from envs.webarena.tasks import OR

NOT_ANSWERABLE = "N/A"
_WORD = re.compile(r"\w+|[^\w\s]")


def cleaned(text: str) -> str:
    """Without blanks around it, one pair of quotes around it, and capitals."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.lower()


def exact(reference: str, answer: str) -> bool:
    """Whether they are the same, once cleaned."""
    return cleaned(reference) == cleaned(answer)


def includes(reference: str, answer: str, *, alone: bool = False) -> bool:
    """Whether an answer holds the reference, or one of its alternatives. `alone`: the only reference; then one of a
    single character must be a word of its own (`5` is not in `15`)."""
    return any(_includes(cleaned(each), cleaned(answer), alone) for each in reference.split(OR.strip()))


def _includes(reference: str, answer: str, alone: bool) -> bool:
    reference = reference.strip()
    if alone and len(reference) == 1:
        return reference in _WORD.findall(answer)
    return reference in answer


def questions(judged: Mapping[str, Any], task: Task, answer: str) -> list[str]:
    """What a judge is to be asked of an answer, one question for each thing that only it can tell; [] for most tasks.
    The replies go to `string_score`."""
    return [_asked(kind, task, reference, answer) for kind, reference in _open(judged, answer)]


def string_score(judged: Mapping[str, Any], answer: str, verdicts: Sequence[str]) -> bool:
    """Whether an answer is right; `verdicts` are the judge's replies to `questions`. Raises DataError where there are
    fewer."""
    answers = judged["reference_answers"]
    if "exact_match" in answers and not exact(str(answers["exact_match"]), answer):
        return False
    include = answers.get("must_include") or ()
    if not all(includes(str(each), answer, alone=len(include) == 1) for each in include):
        return False
    if "fuzzy_match" in answers and not answer.strip():
        return False
    asked = _open(judged, answer)
    if len(verdicts) < len(asked):
        raise DataError(f"{len(asked)} of the answer's parts need a judge, and {len(verdicts)} were judged")
    return all(_favourable(kind, said) for (kind, _), said in zip(asked, verdicts, strict=False))


def needs_judge(judged: Mapping[str, Any]) -> bool:
    """Whether some answer to the task could need one."""
    return "string_match" in judged["eval_types"] and "fuzzy_match" in (judged["reference_answers"] or {})


def _open(judged: Mapping[str, Any], answer: str) -> list[tuple[str, str]]:
    """(kind, reference) of each comparison that a judge makes: `reason` for why it cannot be done, else `answer`."""
    fuzzy = (judged.get("reference_answers") or {}).get("fuzzy_match")
    if fuzzy is None or not answer.strip():
        return []
    if fuzzy == NOT_ANSWERABLE:
        return [] if exact(NOT_ANSWERABLE, answer) else [("reason", str(judged.get("string_note", "")))]
    references = [fuzzy] if isinstance(fuzzy, str) else list(fuzzy)
    return [("answer", str(reference)) for reference in references]


def _asked(kind: str, task: Task, reference: str, answer: str) -> str:
    if kind == "reason":
        return (
            "A task in an online shop cannot be done, and somebody says why.\n"
            f"Task: {task.input}\nWhy it cannot be done: {reference}\nWhat was said: {answer}\n"
            "Does what was said name that same reason, even in other words? Reply with one word: same or different.\n"
            "Reply:"
        )
    return (
        "An answer to a question is compared with the right one. It may use other words, another order or another "
        "way to write dates and numbers, and it may say more.\n"
        f"Question: {task.input}\nRight answer: {reference}\nAnswer: {answer}\n"
        "Is it right? Reply with one word: correct, incorrect or partially.\nReply:"
    )


def _favourable(kind: str, said: str) -> bool:
    """Only the plain word counts: `incorrect` and `partially correct` are no `correct`."""
    words = re.findall(r"[a-z]+", said.lower())
    if kind == "reason":
        return words[:1] == ["same"]
    return words[:1] == ["correct"]


def url_score(reference: str, address: str) -> bool:
    """Whether an address is the right one: one alternative's host and path are in it, and of each of its query's
    keys one wanted value (of any alternative)."""
    found = urlsplit(_trimmed(address))
    values = parse_qs(found.query)
    place = found.netloc + found.path
    wanted = [urlsplit(_trimmed(each)) for each in reference.split(OR.strip())]
    if not any(each.netloc + each.path in place for each in wanted):
        return False
    keys: dict[str, set[str]] = {}
    for each in wanted:
        for name, of in parse_qs(each.query).items():
            keys.setdefault(name, set()).update(of)
    return all(possible & set(values.get(name, ())) for name, possible in keys.items())


def _trimmed(address: str) -> str:
    return address.strip().rstrip("/")
