"""How an answer is judged: exact match, token F1, FEVER labels and exact numbers.

Every score is a finite float in [0, 1], and giving no answer always scores 0. Nothing here reads free text
for an answer; that is `envs.answers`.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Final, Literal, NamedTuple

FeverLabel = Literal["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
FEVER_LABELS: Final[tuple[FeverLabel, ...]] = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")

_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})
_FOLD = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | {"\u00a0": " "}
)


# ---------------------------------------------------------------- text


def target_text(target: object) -> str:
    """A gold answer of any plain type as text: True is "yes", 51.0 is "51", a str is stripped.

    Takes bool, int, finite float, Decimal, Fraction and str. A float counts as the decimal it prints as (0.1
    is "0.1"). Raises ValueError, saying what is wrong, for None, NaN, an infinity, a blank text or any other
    type.
    """
    if isinstance(target, bool):
        return "yes" if target else "no"
    if isinstance(target, str):
        if not target.strip():
            raise ValueError("the gold answer is an empty text; give the answer, or leave the task out")
        return target.strip()
    if isinstance(target, float | Decimal) and not math.isfinite(target):
        raise ValueError(f"the gold answer is {target}, which equals no answer; mend the data set")
    if isinstance(target, int):  # by way of Decimal: str() refuses integers of more than 4,300 digits
        return f"{Decimal(target):f}"
    if isinstance(target, float | Decimal | Fraction):
        text = str(target)
        return number_key(text) or text
    if target is None:
        raise ValueError("the gold answer is missing (None); give the answer, or leave the task out")
    raise ValueError(f"the gold answer has the type {type(target).__name__}; give a text, a number or a bool")


def normalize_answer(s: str) -> str:
    """The form in which two text answers are compared.

    Lower case, ASCII punctuation removed (so "9,984" is "9984"), the words a, an and the removed, white space
    squeezed to single spaces. May be empty. Source: `normalize_answer` of hotpot_evaluate_v1.py (Yang et al.
    2018), the same as SQuAD's evaluate-v1.1.py. Unicode dashes and quotes stay: see `lenient_match`.
    """
    return " ".join(_ARTICLE.sub(" ", s.lower().translate(_DROP_PUNCTUATION)).split())


def fold_punctuation(s: str) -> str:
    """`s` in NFC with Unicode dashes (U+2010-2015, U+2212), curly quotes and no-break spaces as their ASCII
    look-alikes.
    """
    return unicodedata.normalize("NFC", s).translate(_FOLD)


def exact_match(prediction: str | None, target: str) -> float:
    """1.0 if the normalised texts are equal, else 0.0.

    The rule is the official HotpotQA one with one change. None, a blank text and an answer that normalises to
    nothing ("the", "...") earn 0, although officially they equal a gold that normalises to nothing as well
    ("The The" and "!!!" in the dev set). Such a gold is matched by its own text only, in any case and
    spacing; so every non-blank gold given as the answer scores 1, and a blank gold cannot be matched.
    """
    if prediction is None or not prediction.strip():
        return 0.0
    ours = normalize_answer(prediction)
    if ours:
        return float(ours == normalize_answer(target))
    return float(prediction.lower().split() == target.lower().split())


def f1(prediction: str | None, target: str) -> float:
    """Token F1 of the normalised texts, in [0, 1]; never below `exact_match`.

    Source: `f1_score` of hotpot_evaluate_v1.py. If either side is yes, no or noanswer and the two differ, the
    score is 0 (SQuAD's F1 has no such rule). No answer scores 0. The two golds without tokens, for which the
    official score is always 0, earn 1 with their own text, as in `exact_match`.
    """
    if prediction is None or exact_match(prediction, target) == 1.0:
        return 0.0 if prediction is None else 1.0
    ours, theirs = normalize_answer(prediction), normalize_answer(target)
    if ours in _CLOSED_ANSWERS or theirs in _CLOSED_ANSWERS:
        return 0.0
    our_tokens, their_tokens = ours.split(), theirs.split()
    common = sum((Counter(our_tokens) & Counter(their_tokens)).values())
    return 2.0 * common / (len(our_tokens) + len(their_tokens)) if common else 0.0


def lenient_match(prediction: str | None, target: str) -> float:
    """`exact_match` after `fold_punctuation` on both sides: 1.0 or 0.0.

    Not an official metric. It forgives "13-3" for a gold with an en dash, and "it's" with a curly apostrophe,
    which the official rule counts as wrong because it drops ASCII punctuation only.
    """
    return 0.0 if prediction is None else exact_match(fold_punctuation(prediction), fold_punctuation(target))


def loose(text: str) -> str:
    """`text` for finding names in it: folded, case-folded, single spaces, no quotes or marks around it."""
    return " ".join(fold_punctuation(text).casefold().strip(" \t\r\n*_`\"'$").rstrip(".").split())


def mentioned(text: str, names: Sequence[str]) -> str | None:
    """The one of `names` that stands in `text`; None if there is none, or several.

    The longest is looked for first and then taken out, so that "5" does not count within "5 km".
    """
    rest, found = loose(text), []
    for name in sorted({name for name in names if loose(name)}, key=lambda name: (-len(name), name)):
        shorter = re.sub(rf"(?<![\w.,-]){re.escape(loose(name))}(?!\w|[.,]\w)", " | ", rest)
        if shorter != rest:
            found.append(name)
            rest = shorter
    return found[0] if len(found) == 1 else None


_OPTION_PREFIX = re.compile(r"\s*\(?([A-Z])\s?[).:]\s*")


def option_texts(options: Sequence[str]) -> list[str]:
    """The options without letters: AQuA's "A)5", "B)6" lose theirs, plain texts stay; spaces are trimmed."""
    texts = [option.strip() for option in options]
    while texts and all(
        (prefix := _OPTION_PREFIX.match(text)) and prefix[1] == chr(ord("A") + place)
        for place, text in enumerate(texts)
    ):
        texts = [_OPTION_PREFIX.sub("", text, count=1) for text in texts]
    return texts


# ---------------------------------------------------------------- FEVER

_NEI = re.compile(r"\b(?:(?:not ?enough|insufficient) ?(?:info|information|evidence)|nei)\b")
_VERDICT = re.compile(r"\b(?:(?P<supports>support(?:s|ed)?)|refute(?:s|d)?)\b")
_NEGATED = re.compile(
    r"\b(?:not|never|cannot|nor|neither|(?:do|does|did|is|are|was|were|ca|could|wo)nt)(?: \w+)? $"
)


def fever_label(text: str | None) -> FeverLabel | None:
    """The FEVER label that a text states, or None if it states none or more than one.

    Case and punctuation don't matter; SUPPORTED, REFUTED, NOT ENOUGH INFORMATION, NEI and "not enough info to
    ..." count, and so do the labels within a sentence unless they are negated ("is not supported" states no
    label). The three labels are those of Thorne et al. 2018; the tolerance is ours, `fever_match_reference`
    has none.
    """
    if text is None:
        return None
    words = " ".join(re.sub(r"[\W_]+", " ", fold_punctuation(text).lower().replace("'", "")).split())
    found: set[FeverLabel] = set()
    nei = _NEI.search(words)
    if nei:
        found.add("NOT ENOUGH INFO")
        rest = words[nei.end() :]
        # "not enough info to support or refute it": what follows is what could not be done.
        words = words[: nei.start()] + ("" if rest.startswith(" to ") else rest)
    for verdict in _VERDICT.finditer(words):
        if not _NEGATED.search(words, max(0, verdict.start() - 60), verdict.start()):
            found.add("SUPPORTS" if verdict["supports"] else "REFUTES")
    return found.pop() if len(found) == 1 else None


def fever_match_reference(prediction: str | None, target: str) -> float:
    """1.0 if the normalised strings are equal, else 0.0: FEVER's reward in the ReAct code (Yao et al. 2023,
    wrappers.py).

    Case and punctuation don't matter, but REFUTED and NOT ENOUGH INFORMATION are wrong.
    """
    return 0.0 if prediction is None else float(normalize_answer(prediction) == normalize_answer(target))


# ---------------------------------------------------------------- numbers

_SIGN = r"[-+\u2212\u2010\u2011\u2013\uff0d\ufe63]"
_PLUS = "+"
_SEPARATOR = r"(?:,|\{,\}|\\,|[\u00a0\u2009\u202f_]|[ ](?=000(?![0-9])))"
_WHOLE = rf"(?:[0-9]{{1,3}}(?:{_SEPARATOR}[0-9]{{2,3}})*{_SEPARATOR}[0-9]{{3}}(?![0-9])|[0-9]++)"
_VULGAR = r"[\u00bc-\u00be\u2150-\u215e]"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![\w)\]}}%]){_SIGN})?
    (?: (?:\\?[$\u20ac\u00a3\u00a5\u20b9]{{1,2}} | (?<![A-Za-z])(?:Rs|USD|EUR|GBP|INR)\.?)
        \s? (?P<inner>{_SIGN})?
      | (?<![\w^]) (?<![0-9][.,:/]) )
    (?: (?P<plus>[0-9]++) (?: \s?(?=[\\\u00bc-\u215e]) | [ ](?=[0-9]++/[0-9]) ) )?
    (?: (?P<vulgar>{_VULGAR})
      | \\[dt]?frac \s*\{{\s*(?P<top>[0-9]++)\s*\}} \s*\{{\s*(?P<bottom>[0-9]++)\s*\}}
      | (?: (?=[0-9]) | (?<!\.)(?=\.[0-9]) )
        (?P<whole>{_WHOLE})? (?:\.(?P<places>[0-9]++))?
        (?: [eE](?P<exponent>{_SIGN}?[0-9]{{1,9}}+)(?!\w)
          | \s?(?:[x*\u00d7\u00b7]|\\times|\\cdot)\s?10\^\{{?(?P<power>{_SIGN}?[0-9]{{1,9}}+)\}}?
          | \s?[/\u2044]\s?(?P<over>{_WHOLE}) )?
    )
    (?! [0-9^] | \s?\^ | \s?[xX\u00d7]\s?[0-9] | [.,:/][0-9] | [eE][-+]?[0-9] )
    (?:\s?\\?%)?
    """,
    re.VERBOSE,
)
_FULL_WIDTH = str.maketrans({chr(0xFF10 + d): str(d) for d in range(10)})
_STRAY_DIGIT = re.compile(r"(?<![A-Za-z^{])[0-9]")
# Written out up to this power of ten, "12e5000" beyond: six characters must not become a megabyte.
_PLAIN_EXPONENT = 1000
# Longest numerator or denominator that is reduced; decimals and whole numbers of any length stay exact.
_FRACTION_DIGITS = 400


class Number(NamedTuple):
    """A number in a text: its place `text[start:end]`, and its canonical form (see `number_key`)."""

    start: int
    end: int
    key: str


def find_numbers(text: str, start: int = 0) -> Iterator[Number]:
    """The numbers that stand in `text` from `start` on, in order of place.

    Parts of dates (3/4/2020), times (5:30), powers (10^3, m^2) and words (CO2) are not numbers.
    """
    for match in _NUMBER.finditer(text.translate(_FULL_WIDTH), start):
        key = _key(match)
        if key is not None:
            yield Number(match.start(), match.end(), key)


def number_key(text: str) -> str | None:
    """The canonical form of the one number in `text`: equal numbers have equal forms, unequal ones never.

    Taken off: currency signs, % ("50%" is 50), units, a final full stop, and thousands separators
    ("1,234.50", also the Indian "1,00,000" and "18 000"). Read: the Unicode minus, "3/4" and "2 1/2" (also in
    LaTeX or as one character), "1e3". No float is involved. The form is a decimal without exponent
    ("1234.5") where that is exact, else a fraction in lowest terms ("1/3"); powers of ten beyond 1,000 keep
    an exponent ("1e5000").

    None if there is no number or more than one, save "5 + 13 = 18", which is what follows its last equals
    sign. Not read: number words ("eighteen", "million"), the European "1.234,50", a division by zero, and
    fractions with more than 400 digits a side.
    """
    only = _only_number(text)
    if only is None and "=" in text:
        return _only_number(text.rpartition("=")[2])
    return only


def _only_number(text: str) -> str | None:
    found = list(islice(find_numbers(text), 2))
    if len(found) != 1:
        return None
    rest = text[: found[0].start] + " " + text[found[0].end :]
    return None if _STRAY_DIGIT.search(rest.translate(_FULL_WIDTH)) else found[0].key


def _key(match: re.Match[str]) -> str | None:
    negative = any(match[name] not in (None, _PLUS) for name in ("sign", "inner"))
    if match["vulgar"]:
        top, _, bottom = unicodedata.normalize("NFKC", match["vulgar"]).partition("\u2044")
        return _fraction(negative, match["plus"], top, "", bottom)
    if match["top"]:
        return _fraction(negative, match["plus"], match["top"], "", match["bottom"])
    whole, places = _digits(match["whole"]), match["places"] or ""
    if match["over"]:
        return _fraction(negative, match["plus"], whole, places, _digits(match["over"]))
    power = match["exponent"] or match["power"] or "0"
    exponent = int(_digits(power)) * (-1 if not power[0].isdigit() and power[0] != _PLUS else 1)
    return _decimal(negative, whole + places, exponent - len(places))


def _digits(text: str | None) -> str:
    return re.sub(r"[^0-9]", "", text or "")


def _fraction(negative: bool, plus: str | None, top: str, places: str, bottom: str) -> str | None:
    if max(len(plus or ""), len(top + places), len(bottom)) > _FRACTION_DIGITS or not bottom.strip("0"):
        return None
    value = Fraction(int(plus or 0)) + Fraction(int(top + places), 10 ** len(places) * int(bottom))
    if max(len(str(value.numerator)), len(str(value.denominator))) > _FRACTION_DIGITS:
        return None
    rest, places_needed = value.denominator, 0
    for prime in (2, 5):
        times = 0
        while rest % prime == 0:
            rest, times = rest // prime, times + 1
        places_needed = max(places_needed, times)
    if rest == 1:
        return _decimal(negative, str(int(value * 10**places_needed)), -places_needed)
    return f"{'-' if negative else ''}{value.numerator}/{value.denominator}"


def _decimal(negative: bool, digits: str, exponent: int) -> str:
    """Digits times a power of ten, as text; works on strings because Python limits int <-> str to 4,300
    digits.
    """
    digits = digits.lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    exponent += len(digits) - len(significant)
    sign = "-" if negative else ""
    if abs(exponent) > _PLAIN_EXPONENT:
        return f"{sign}{significant}e{exponent}"
    if exponent >= 0:
        return sign + significant + "0" * exponent
    padded = significant.rjust(1 - exponent, "0")
    return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
