"""Text answers, FEVER labels and exact numbers are judged as the papers' scripts do, save where those err."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.scoring import (
    FEVER_LABELS,
    exact_match,
    f1,
    fever_label,
    fever_match_reference,
    find_numbers,
    fold_punctuation,
    lenient_match,
    mentioned,
    normalize_answer,
    number_key,
    option_texts,
    target_text,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Beatles!", "beatles"),
        ("an apple a day", "apple day"),
        ("9,984", "9984"),
        ("well-known", "wellknown"),
        ("a record of 13–3", "record of 13–3"),
        ("Theatre", "theatre"),
        ("The The", ""),
        ("!!!", ""),
        ("tab\tand\u00a0space", "tab and space"),
    ],
)
def test_normalisation_lowers_and_drops_ascii_punctuation_and_articles(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalize_answer(text)
    assert normalize_answer(once) == once


@pytest.mark.parametrize("gold", ["The The", "!!!", "the", "Paris", "yes", ""])
@pytest.mark.parametrize("nothing", [None, "", "  ", "\n"])
def test_no_answer_scores_nothing_whatever_the_gold(nothing: str | None, gold: str) -> None:
    assert exact_match(nothing, gold) == f1(nothing, gold) == lenient_match(nothing, gold) == 0.0


@pytest.mark.parametrize("empty", ["the", "...", "An", '""', "a the"])
def test_an_answer_of_articles_or_punctuation_does_not_match_a_gold_without_tokens(empty: str) -> None:
    assert exact_match(empty, "The The") == exact_match(empty, "!!!") == 0.0
    assert f1(empty, "The The") == 0.0


@pytest.mark.parametrize("gold", ["The The", "!!!", "Panic! at the Disco", "[O.S. 6 January] 1835"])
def test_a_gold_given_as_the_answer_scores_one(gold: str) -> None:
    assert exact_match(gold, gold) == f1(gold, gold) == lenient_match(gold, gold) == 1.0
    assert exact_match(f" {gold.upper()} ", gold) == 1.0


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [
        ("Chief of Protocol", "the chief of protocol", 1.0),
        ("chief", "Chief of Protocol", 0.5),
        ("Chief of Protocol of the US", "Chief of Protocol", 2 * 3 / 8),
        ("no no Paris", "no Paris Paris", 2 * 2 / 6),
        ("yes it is", "yes", 0.0),
        ("yes", "yes it is", 0.0),
        ("no", "yes", 0.0),
        ("noanswer", "noanswer given", 0.0),
        ("Yes.", "yes", 1.0),
        ("London", "Paris", 0.0),
    ],
)
def test_f1_counts_shared_tokens_but_closed_answers_only_when_equal(
    prediction: str, gold: str, score: float
) -> None:
    assert f1(prediction, gold) == pytest.approx(score, abs=1e-12)


@given(st.none() | st.text(), st.text())
def test_scores_are_finite_between_zero_and_one_and_f1_is_never_below_exact_match(
    prediction: str | None, gold: str
) -> None:
    scores = [exact_match(prediction, gold), f1(prediction, gold), lenient_match(prediction, gold)]
    assert all(math.isfinite(score) and 0.0 <= score <= 1.0 for score in scores)
    assert scores[1] >= scores[0]


@pytest.mark.parametrize(
    ("prediction", "gold"),
    [
        ("a record of 13-3", "a record of 13–3"),
        ("Trenton—Mercer", "Trenton-Mercer"),
        ("Hawai\u2019i", "Hawai'i"),
        ("it's", "it’s"),
        ("“Foo”", '"Foo"'),
        ("5\u22123", "5-3"),
        ("caf\u0065\u0301", "caf\u00e9"),
    ],
)
def test_unicode_dashes_and_quotes_count_only_in_the_lenient_match(prediction: str, gold: str) -> None:
    assert exact_match(prediction, gold) == 0.0
    assert lenient_match(prediction, gold) == lenient_match(gold, prediction) == 1.0


def test_folding_covers_every_listed_dash_and_quote() -> None:
    assert fold_punctuation("\u2010\u2011\u2012\u2013\u2014\u2015\u2212") == "-" * 7
    assert fold_punctuation("\u2018\u2019\u201c\u201d\u00a0") == "''\"\" "


def test_lenient_match_does_not_forgive_other_words() -> None:
    assert lenient_match("13-4", "13–3") == 0.0


# ---------------------------------------------------------------- FEVER


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("SUPPORTS", "SUPPORTS"),
        ("supported.", "SUPPORTS"),
        ("The claim is SUPPORTED by the page", "SUPPORTS"),
        ("SUPPORTS, not REFUTES", "SUPPORTS"),
        ("REFUTED", "REFUTES"),
        (" [Refutes] ", "REFUTES"),
        ("NOT ENOUGH INFO", "NOT ENOUGH INFO"),
        ("NOT ENOUGH INFORMATION", "NOT ENOUGH INFO"),
        ("not_enough_info", "NOT ENOUGH INFO"),
        ("Not enough info to support or refute the claim", "NOT ENOUGH INFO"),
        ("There is not enough information to say it is refuted", "NOT ENOUGH INFO"),
        ("NEI", "NOT ENOUGH INFO"),
        ("SUPPORTS or REFUTES", None),
        ("SUPPORTS / NOT ENOUGH INFO", None),
        ("the page doesn’t support it", None),
        ("is not supported", None),
        ("unsupported", None),
        ("yes", None),
        ("", None),
        (None, None),
    ],
)
def test_a_fever_label_is_read_in_its_usual_spellings(text: str | None, label: str | None) -> None:
    assert fever_label(text) == label


@pytest.mark.parametrize(
    ("prediction", "target", "score"),
    [
        ("supports.", "SUPPORTS", 1.0),
        ("Not Enough Info", "NOT ENOUGH INFO", 1.0),
        ("SUPPORTED", "SUPPORTS", 0.0),
        ("REFUTED", "REFUTES", 0.0),
        ("NOT ENOUGH INFORMATION", "NOT ENOUGH INFO", 0.0),
        ("not enough info to say", "NOT ENOUGH INFO", 0.0),
        (None, "REFUTES", 0.0),
    ],
)
def test_the_reference_fever_match_is_as_strict_as_reacts(
    prediction: str | None, target: str, score: float
) -> None:
    assert fever_match_reference(prediction, target) == score


@given(st.text())
def test_reading_a_fever_label_never_fails(text: str) -> None:
    assert fever_label(text) in (None, *FEVER_LABELS)


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("18", "18"),
        ("18.00", "18"),
        ("$18", "18"),
        ("18.", "18"),
        ("018", "18"),
        ("+18", "18"),
        ("18 apples", "18"),
        ("18 m^2", "18"),
        ("Rs. 750", "750"),
        ("€1,234.50.", "1234.5"),
        ("$200,000", "200000"),
        ("1,00,000", "100000"),
        ("18 000", "18000"),
        ("1{,}234", "1234"),
        ("1\u202f234", "1234"),
        ("−3", "-3"),
        ("-$3", "-3"),
        ("$-3", "-3"),
        ("-0", "0"),
        ("-0.5", "-0.5"),
        (".5", "0.5"),
        ("50%", "50"),
        ("3/4", "0.75"),
        ("6/3", "2"),
        ("10/30", "1/3"),
        ("-1/3", "-1/3"),
        ("2 1/2", "2.5"),
        ("3½", "3.5"),
        (r"\frac{3}{4}", "0.75"),
        (r"-3\frac{1}{3}", "-10/3"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        ("1.2 x 10^3", "1200"),
        ("5 + 13 = 18", "18"),
        ("１８", "18"),
        ("10" + "0" * 30, "1" + "0" * 31),
        pytest.param("9" * 6000, "9" * 6000, id="huge"),
        ("1e999999999", "1e999999999"),
    ],
)
def test_one_number_has_one_form(text: str, key: str) -> None:
    assert number_key(text) == key
    assert number_key(key) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[invalid]",
        "eighteen",
        "...",
        "18 and 19",
        "5-3",
        "1.234,50",
        "1,2",
        "3/4/2020",
        "5:30",
        "10^3",
        "3x5",
        "CO2",
        "1.2.3",
        "3/0",
        "1e9999999999",
        "nan",
        "1/" + "9" * 401,
    ],
)
def test_what_is_not_one_number_has_no_form(text: str) -> None:
    assert number_key(text) is None


def test_numbers_that_differ_by_less_than_a_float_can_tell_have_different_forms() -> None:
    assert number_key("9007199254740993") != number_key("9007199254740992")
    assert number_key("0.1") != number_key("0.10000000000000000001")
    assert number_key("1/3") != number_key("0.3333333333333333")


@given(st.integers(-(10**40), 10**40))
def test_an_integer_has_the_same_form_in_every_notation(number: int) -> None:
    grouped = f"{number:,}"
    forms = [str(number), grouped, f"{number}.00", f"{number}.", f"${grouped}", f"{number} km", f"{number}%"]
    forms += [str(number).replace("-", "−"), f"{number}e0", f"{number}0/10"]
    assert {number_key(form) for form in forms} == {str(number)}


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_a_fraction_keeps_its_exact_value(top: int, bottom: int) -> None:
    key = number_key(f"{top}/{bottom}")
    assert key is not None
    assert Fraction(key) == Fraction(top, bottom)


@given(st.text(alphabet="0123456789.,-−$% /e:^x=½{}\\frac ", max_size=30) | st.text())
def test_the_form_of_a_number_is_its_own_form(text: str) -> None:
    key = number_key(text)
    assert key is None or number_key(key) == key


def test_numbers_are_found_where_they_stand() -> None:
    text = "She paid $1,234.50 for 20-5 eggs on 3/4/2020 at 5:30, H2O."
    assert [text[n.start : n.end] for n in find_numbers(text)] == ["$1,234.50", "20", "5"]


# ---------------------------------------------------------------- golds, names and options


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (18, "18"),
        (51.0, "51"),
        (0.1, "0.1"),
        (1e22, "1" + "0" * 22),
        pytest.param(10**5000, "1" + "0" * 5000, id="huge"),
        (Fraction(1, 3), "1/3"),
        (" Paris ", "Paris"),
    ],
)
def test_a_gold_of_any_plain_type_becomes_text(target: object, text: str) -> None:
    assert target_text(target) == text


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (None, "None"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        ("  ", "empty"),
        (["a"], "list"),
    ],
)
def test_a_gold_that_nothing_can_equal_is_refused_by_name(target: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        target_text(target)


def test_the_longest_of_several_names_is_the_one_mentioned() -> None:
    assert mentioned("It takes 5 km.", ["5", "5 km", "6"]) == "5 km"
    assert mentioned("5 or 6", ["5", "6"]) is None
    assert mentioned("5.5 and -5 and 5,000", ["5"]) is None


def test_aqua_letters_are_taken_off_and_plain_options_kept() -> None:
    assert option_texts(["A)A)59", "B)B)69"]) == ["59", "69"]
    assert option_texts(["A) 13.3", "B) 15"]) == ["13.3", "15"]
    assert option_texts(["B)5", "A)6"]) == ["B)5", "A)6"]
    assert option_texts(["Apple", "B. Franklin"]) == ["Apple", "B. Franklin"]


# ---------------------------------------------------------------- public data


def data(name: str) -> Path:
    root = os.environ.get("OVERNIGHT_DATA")
    if not root:
        pytest.skip("OVERNIGHT_DATA is not set: it names the folder of the public data sets")
    path = Path(root, name)
    if not path.exists():
        pytest.skip(f"{path} is missing: this check needs the public data set")
    return path


def test_every_hotpotqa_gold_given_as_the_answer_scores_one() -> None:
    rows = json.loads(data("hotpotqa/hotpot_dev_v1_simplified.json").read_text(encoding="utf-8"))
    golds = [row["answer"] for row in rows]
    assert len(golds) == 7405
    assert [g for g in golds if not exact_match(g, g) == f1(g, g) == lenient_match(g, g) == 1.0] == []
    assert {g for g in golds if not normalize_answer(g)} == {"The The", "!!!"}
    assert [g for g in golds if exact_match("", g) or exact_match("the", g) or f1("", g)] == []


def test_every_fever_label_reads_as_itself() -> None:
    lines = data("fever/paper_dev.jsonl").read_text(encoding="utf-8").splitlines()
    labels = [json.loads(line)["label"] for line in lines]
    assert {label: labels.count(label) for label in FEVER_LABELS} == dict.fromkeys(FEVER_LABELS, 3333)
    assert all(
        fever_label(label) == label and fever_match_reference(label, label) == 1.0 for label in set(labels)
    )
