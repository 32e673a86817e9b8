"""Answers to questions: found in a free-form reply, brought to a vote key, and scored against a gold.

The five kinds (number, choice, boolean, text, label) share the same steps; `answer_kind` picks one by name.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from envs import scoring
from envs.scoring import loose, mentioned, option_texts, target_text

__all__ = ["AnswerKind", "KindName", "answer_kind", "before_run_on", "option_texts", "target_text"]

KindName = Literal["number", "choice", "boolean", "text", "label"]

# What lm-evaluation-harness writes where it finds no answer; it must never win a vote.
_INVALID = "[invalid]"

# ---------------------------------------------------------------- where a reply states its answer

_RUN_ON = re.compile(
    r"(?:\n[ \t#*>]{0,9}|(?<=[.!?)])[ \t]{1,9})(?:question|problem|claim|human|user|q)\s?[0-9]*[*_]*\s?:",
    re.IGNORECASE,
)
_CLAIM = re.compile(
    r"""
    (?P<hashes> (?<!\#)\#{4}(?!\#) )
  | (?P<boxed> \\f?box(?:ed)?\s*\{ )
  | (?P<colon> \bans(?:wer)?[*_]{0,3}\s?: )
  | (?P<words> \b(?:answer|correct[ ](?:option|choice)) (?:[ ]to[ ][^.:\n]{1,80}?)? [*_]{0,3}
        \s? (?:\b(?:is|was|equals|(?:would|should|must|will)[ ]be)\b|=) [*_]{0,3} (?:\s?:)? )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ANSWER_HEADER = re.compile(r"\A[#*_ \t\n]*(?:A|(?:final )?answer)[*_]*\s?:\s*", re.IGNORECASE)
_BOX = re.compile(r"((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*+)\}")
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_MARKS = " \t\r\n*_`\"'\u2018\u2019\u201c\u201d$"
_FULL_STOP = re.compile(r"\.(?=\s|$)|\n")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'*\u2018\u201c])"
    r"(?:[^\W\d_]{0,2}|(?:\w\.)+\w|Mrs|Prof|Adm|Gen|Col|Capt|Rev|Sgt|Gov|Sen|Rep|Inc|Ltd|Corp|Bros|Vol)$"
)
_NEXT_SENTENCE = re.compile(r"\.\s+(?:It|This|That|He|She|They|So|Because|Therefore)\b")
# Bounds on the work that one reply can ask for, far above what real replies need.
_MAX_CLAIMS, _MAX_BOX = 50, 2000


@dataclass(frozen=True)
class _Claim:
    cue: str  # "hashes", "boxed", "colon" or "words"
    text: str  # what follows the cue, to the end of the reply (or of the box)

    @property
    def sentence(self) -> str:
        return self.text.strip() if self.cue == "boxed" else _first_sentence(self.text)


def _first_sentence(text: str) -> str:
    """Up to the first line end or full stop, but not the stop of "St. Louis" or "J. R."."""
    text = text.lstrip()
    for stop in _FULL_STOP.finditer(text):
        shortened = stop[0] == "." and _ABBREVIATION.search(text[max(0, stop.start() - 20) : stop.start()])
        if not shortened or _NEXT_SENTENCE.match(text, stop.start()):
            return text[: stop.start()].rstrip()
    return text.rstrip()


def before_run_on(text: str) -> str:
    """`text` up to where the model asks itself the next question ("Question:", "Q:", "Human:", ...).

    A reply that opens with such a header restates its own question; the cut is then at the second one.
    """
    cut = _RUN_ON.search(text)
    return text[: cut.start()] if cut else text


def _claims(text: str) -> Iterator[_Claim]:
    """Last first, the places where `text` says that its answer follows."""
    for cue in reversed(list(_CLAIM.finditer(text))[-_MAX_CLAIMS:]):
        name, rest = cue.lastgroup or "", text[cue.end() :]
        if name == "boxed":
            inside = _BOX.match(rest[:_MAX_BOX])
            rest = _WRAPPER.sub(r"\1", inside[1]) if inside else ""
        if rest.strip(_MARKS + ".:"):
            yield _Claim(name, rest)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


# ---------------------------------------------------------------- the kinds


@dataclass(frozen=True)
class AnswerKind(ABC):
    """One kind of answer. Subclasses say how it is found in a reply and when two answers are the same."""

    name: KindName

    @abstractmethod
    def extract(self, text: str, options: Sequence[str] = ()) -> str | None:
        """The answer as written in a chain-of-thought reply, or None if there is none. Never raises.

        What the reply says after its last "the answer is", "Answer:", "####" or "\\boxed{" counts first, then
        earlier ones, then a rule of the kind's own. Nothing after a run-on (`before_run_on`) is read.
        """

    @abstractmethod
    def canonical(self, answer: str | None, options: Sequence[str] = ()) -> str | None:
        """The key under which an answer votes: equal answers have equal keys, no answer has None."""

    def gold(self, target: object, options: Sequence[str] = ()) -> str:
        """The vote key of a gold answer, of any type that `target_text` takes.

        Raises ValueError if it is no answer of this kind; check the golds before the first call to a model.
        """
        key = self.canonical(target_text(target), options)
        if key is None:
            raise ValueError(f"the gold {target_text(target)[:80]!r} is no answer of the kind {self.name!r}")
        return key

    def score(self, answer: str | None, target: object, options: Sequence[str] = ()) -> dict[str, float]:
        """`em` and `f1` of a final answer (not of a whole reply), in [0, 1]; no answer scores 0.

        For all kinds but text both are 1.0 if the vote keys are equal, else 0.0. Raises ValueError for a
        gold that `gold` refuses.
        """
        same = float(self.gold(target, options) == self.canonical(answer, options))
        return {"em": same, "f1": same}


_LEAD = re.compile(
    r"[\s*_`\"'\u201c\u2018(\[{:=~\u2248]*"
    r"(?:(?:about|approximately|exactly|roughly|only|around|just|simply)\s+)?",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|since|as|where|when|if|with|which|that|so|for|given)\b|[,;:]\s", re.I)


class NumberAnswer(AnswerKind):
    """A number, exact: GSM8K, SVAMP. What counts as one, and as the same one: `scoring.number_key`.

    Where the reply states its answer, the number next to the statement counts, or what follows an equals
    sign; without a statement, the last number of the reply.
    """

    def extract(self, text: str, options: Sequence[str] = ()) -> str | None:
        text = before_run_on(text)
        return next((found for claim in _claims(text) if (found := self._claimed(claim))), _last_number(text))

    def canonical(self, answer: str | None, options: Sequence[str] = ()) -> str | None:
        return None if answer is None else scoring.number_key(answer)

    def gold(self, target: object, options: Sequence[str] = ()) -> str:
        """As for all kinds; of GSM8K's worked answers ("... #### 18") the number after the mark counts."""
        text = target_text(target)
        return super().gold(text.rpartition("####")[2] or text, options)

    def _claimed(self, claim: _Claim) -> str | None:
        text, sentence = claim.text.lstrip(), claim.sentence
        head, equals, tail = sentence.rpartition("=")
        result = next(scoring.find_numbers(tail), None)
        if equals and result and not _REASON.search(head):
            return tail[result.start : result.end]
        lead = _LEAD.match(text)
        start = lead.end() if lead else 0
        adjacent = next(scoring.find_numbers(text, start), None)
        if adjacent and adjacent.start == start:
            return text[start : adjacent.end]
        if claim.cue == "hashes":  # else it is a heading, such as "#### Step 2: the cost"
            return None
        return _last_number(text if claim.cue == "colon" else sentence)


def _last_number(text: str) -> str | None:
    span = None
    for number in scoring.find_numbers(text):
        span = text[number.start : number.end]
    return span


_LETTER_ALONE = re.compile(r"[\W_]*(?:(?:option|choice|answer)\b[\W_]*)?([A-Za-z])[\W_]*", re.IGNORECASE)
# "(b)", "option b"; a bare capital, where an A must not be the article that begins a text.
_LETTER_FIRST = re.compile(
    r"""[\s*_`"'{\[$\\]*
    (?: (?:(?i:option|choice|letter)\s+)? \(([A-Za-z])\) | (?i:option|choice|letter)\s+([A-Za-z])\b
    | ([A-Z])(?=[)\].:,;*}_]|\s*$|\s+(?:because|since|as|is|which|with)\b|\s+[(\-\u2013\u2014$0-9])
    | ([B-HJ-Z])(?=\s(?!and\b|or\b)) | ([a-z])(?=\)|[\s.*]*$) )""",
    re.VERBOSE,
)
_POINTED_AT = re.compile(r"\([A-Za-z]\)|\b[A-Z]\b(?=\)?\sis\s(?:the\s)?(?:correct|right|best|answer)\b)")
_LAST_LETTER = re.compile(r"(?:^|(?<!\bor)(?<!\band)(?<!\bnot)[\s(\[*:])([A-Z])[)\].*\s]*$")
_LEADS_TO_LETTER = re.compile(r"(?:^|[:,;=.)]|\b(?:so|thus|hence|therefore|is|option|choice|pick))$", re.I)


class ChoiceAnswer(AnswerKind):
    """One option of several, keyed by its capital letter; A is the first option.

    `options` are AQuA's "A)5", "B)6", ... or plain texts, 26 at most. Without them the letters A to J count,
    and the text of an option can't stand for it.
    """

    def extract(self, text: str, options: Sequence[str] = ()) -> str | None:
        text, texts = before_run_on(text), option_texts(options)
        for claim in _claims(text):
            sentence = claim.sentence
            found = (
                self._letter_first(claim.text, options)
                or next(iter(self._pointed_at(sentence, options)), None)
                or mentioned(sentence, texts)
                or (sentence if self.canonical(sentence, options) else None)
            )
            if found:
                return found
        text = _ANSWER_HEADER.sub("", text, count=1).strip()
        if "\n" not in text and self.canonical(text, options):  # the whole reply is an answer
            return text
        line = _last_line(text)
        last = _LAST_LETTER.search(line)
        letter = last[1] if last and self._valid(last[1], options) else None
        if last and letter and _LEADS_TO_LETTER.search(line[: last.start(1)].rstrip(" *([")):
            return letter
        *_, pointed_at = None, *self._pointed_at(text, options)
        return pointed_at or mentioned(line, texts) or letter or mentioned(text, texts)

    def canonical(self, answer: str | None, options: Sequence[str] = ()) -> str | None:
        if answer is None:
            return None
        alone = _LETTER_ALONE.fullmatch(answer)
        if alone:
            return alone[1].upper() if self._valid(alone[1], options) else None
        texts = option_texts(options)
        equal = [place for place, text in enumerate(texts) if loose(text) == loose(answer)]
        if len(equal) == 1:
            return chr(ord("A") + equal[0])
        first = self._letter_first(answer, options)
        if first:
            return re.sub(r"\W", "", first)[-1].upper()
        key = scoring.number_key(answer)
        same = [place for place, text in enumerate(texts) if key and scoring.number_key(text) == key]
        return chr(ord("A") + same[0]) if len(same) == 1 else None

    @staticmethod
    def _valid(letter: str, options: Sequence[str]) -> bool:
        return 0 <= ord(letter.upper()) - ord("A") < (len(options) or 10)

    def _letter_first(self, text: str, options: Sequence[str]) -> str | None:
        found = _LETTER_FIRST.match(text)
        if not found or not self._valid(next(filter(None, found.groups())), options):
            return None
        return found[0].strip(_MARKS + "{[\\")

    def _pointed_at(self, text: str, options: Sequence[str]) -> list[str]:
        found = [match[0] for match in _POINTED_AT.finditer(text)]
        return [letter for letter in found if self._valid(letter.strip("()"), options)]


_FIRST_TRUTH = re.compile(r"[\W_]*((?:not\s+)?(?:yes|true|no|false))\b(?!\s+(?:or|and)\b)", re.IGNORECASE)
_OPENING_TRUTH = re.compile(_FIRST_TRUTH.pattern + r"(?=[*_\"']*(?:[.,;:!\n]|\s*$))", re.IGNORECASE)
_ANY_TRUTH = re.compile(r"\b((?:not\s+)?(?:yes|true|false|no(?=[*_\"')\]\s]*(?:[.,;:!?\n]|$))))\b", re.I)


class BooleanAnswer(AnswerKind):
    """Yes or no, keyed "yes" and "no" (StrategyQA); true and false are the same, "not true" is no."""

    def extract(self, text: str, options: Sequence[str] = ()) -> str | None:
        text = before_run_on(text)
        for claim in _claims(text):
            found = self._stated(claim.sentence)
            if found:
                return found
        opening = _OPENING_TRUTH.match(text)
        if opening:
            return opening[1]
        conclusion = _last_line(text).rstrip(".").rpartition(". ")[2]
        *_, last = None, *(match[1] for match in _ANY_TRUTH.finditer(text))
        return self._stated(conclusion) or last

    def canonical(self, answer: str | None, options: Sequence[str] = ()) -> str | None:
        found = None if answer is None else self._stated(answer)
        return found and self._key(found)

    def _stated(self, text: str) -> str | None:
        first = _FIRST_TRUTH.match(text)
        found = [first[1]] if first else [match[1] for match in _ANY_TRUTH.finditer(text)]
        return found[-1] if len({self._key(word) for word in found}) == 1 else None

    @staticmethod
    def _key(word: str) -> str:
        *negation, truth = word.lower().split()
        return "yes" if (truth in ("yes", "true")) != bool(negation) else "no"


_UNFINISHED = re.compile(r"\banswer\b[^.]{0,80}\b(?:is|was)\W*$|\banswer\s?:\W*$", re.IGNORECASE)
_PAIRS = (
    ("**", "**"),
    ("__", "__"),
    ('"', '"'),
    ("\u201c", "\u201d"),
    ("`", "`"),
    ("'", "'"),
    ("\u2018", "\u2019"),
    ("*", "*"),
    ("$", "$"),
)


class TextAnswer(AnswerKind):
    """A short text, compared as HotpotQA does; without a statement, the reply's last line is the answer.

    A text that normalises to nothing ("the", "!!!") has no vote key; it is scored as `exact_match` says.
    """

    def extract(self, text: str, options: Sequence[str] = ()) -> str | None:
        text = before_run_on(text)
        for claim in _claims(text):
            heading = claim.cue == "hashes" and "\n" in claim.text.strip()
            found = None if heading else _bare(claim.sentence)
            if found:
                return found
        line = _last_line(text)
        return None if _UNFINISHED.search(line) else _bare(_ANSWER_HEADER.sub("", line)) or None

    def canonical(self, answer: str | None, options: Sequence[str] = ()) -> str | None:
        if answer is None or answer.strip() == _INVALID:
            return None
        return scoring.normalize_answer(answer) or None

    def gold(self, target: object, options: Sequence[str] = ()) -> str:
        """The gold's own text: unlike for other kinds, one without a vote key is allowed."""
        return target_text(target)

    def score(self, answer: str | None, target: object, options: Sequence[str] = ()) -> dict[str, float]:
        """`em`, `f1` (HotpotQA's) and `em_lenient` (Unicode dashes and quotes forgiven), in [0, 1]."""
        gold = target_text(target)
        scores = {"em": scoring.exact_match, "f1": scoring.f1, "em_lenient": scoring.lenient_match}
        return {name: score(answer, gold) for name, score in scores.items()}


def _bare(text: str) -> str:
    """Without what is around an answer: white space, emphasis, a pair of quotes, the final full stop."""
    before = None
    while text != before:
        before, text = text, text.strip()
        if text.endswith(".") and not re.search(r"\.\w+\.$", text):
            text = text[:-1]
        for left, right in _PAIRS:
            inner = text[len(left) : -len(right)]
            if text == left + inner + right and inner and left not in inner and right not in inner:
                text = inner
    return text


@dataclass(frozen=True)
class LabelAnswer(AnswerKind):
    """One of `labels`, keyed by the label as given; FEVER's three are read by `scoring.fever_label`."""

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.labels or len({loose(label) for label in self.labels} - {""}) != len(self.labels):
            raise ValueError(f"labels must be distinct and not empty, got {self.labels!r}")

    def extract(self, text: str, options: Sequence[str] = ()) -> str | None:
        text = before_run_on(text)
        places = [*(claim.sentence for claim in _claims(text)), _last_line(text), text.strip()]
        return next((place for place in places if self.canonical(place)), None)

    def canonical(self, answer: str | None, options: Sequence[str] = ()) -> str | None:
        if set(self.labels) == set(scoring.FEVER_LABELS):
            return scoring.fever_label(answer)
        return None if answer is None else mentioned(answer, self.labels)


def answer_kind(name: KindName, *, labels: Sequence[str] = ()) -> AnswerKind:
    """The answer kind of that name; `labels` are for the kind "label", which needs them.

    Raises ValueError for an unknown name, labels given to another kind, and missing or equal labels.
    """
    if name == "label":
        return LabelAnswer(name, tuple(labels))
    kinds: dict[str, Callable[[KindName], AnswerKind]] = {
        "number": NumberAnswer,
        "choice": ChoiceAnswer,
        "boolean": BooleanAnswer,
        "text": TextAnswer,
    }
    if name not in kinds:
        raise ValueError(f"unknown answer kind {name!r}; the kinds are {', '.join((*kinds, 'label'))}")
    if labels:
        raise ValueError(f"labels are for the answer kind 'label', not for {name!r}")
    return kinds[name](name)
