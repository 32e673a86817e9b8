"""Answers are found in real shapes of replies, votes for the same answer meet, and golds earn full marks."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.answers import AnswerKind, answer_kind, before_run_on
from envs.scoring import FEVER_LABELS, option_texts

NUMBER, CHOICE, BOOLEAN, TEXT = (answer_kind(name) for name in ("number", "choice", "boolean", "text"))
FEVER = answer_kind("label", labels=FEVER_LABELS)
MOOD = answer_kind("label", labels=("positive", "negative", "not positive"))
KINDS = [NUMBER, CHOICE, BOOLEAN, TEXT, FEVER, MOOD]
OPTIONS = ["A)5", "B)6", "C)5 km", "D)None of these", "E)-6"]


def scored(kind: AnswerKind, reply: str, target: object, options: Any = ()) -> float:
    return kind.score(kind.extract(reply, options), target, options)["em"]


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("reply", "span", "key"),
    [
        ("The answer is 18", "18", "18"),
        ("The answer is 8", "8", "8"),
        ("the answer is $18", "$18", "18"),
        ("The answer is $1,234.50.", "$1,234.50", "1234.5"),
        ("The answer is $29.00", "$29.00", "29"),
        ("$200,000", "$200,000", "200000"),
        ("#### 18.", "18", "18"),
        ("#### $18", "$18", "18"),
        ("#### 18.0", "18.0", "18"),
        ("#### -3", "-3", "-3"),
        ("The answer is −3.", "−3", "-3"),
        ("The answer is 3/4.", "3/4", "0.75"),
        (r"So $\boxed{\frac{3}{4}}$.", r"\frac{3}{4}", "0.75"),
        (r"\boxed{\text{18 apples}}", "18", "18"),
        ("**Final Answer:** **18**", "18", "18"),
        ("The answer is:\n\n$$x = 18$$", "18", "18"),
        ("The answer is 5 + 13 = 18.", "18", "18"),
        ("The answer is 18 because 3*6 = 20 - 2.", "18", "18"),
        ("The answer to the question is about 20%.", "20%", "20"),
        ("Answer: There are 16 eggs. She eats 3. So she makes 18.", "18", "18"),
        ("#### Step 3: add\n5 + 6 = 11\nso we get 11 apples.", "11", "11"),
        ("The answer is 17. No, the answer is 18.", "18", "18"),
        ("The answer is 18. The answer is unclear.", "18", "18"),
        ("He has 5. She has 18 eggs in total...", "18", "18"),
        (r"Therefore, Janet makes \$18 every day.", r"\$18", "18"),
        ("It sold 1,234.50 units", "1,234.50", "1234.5"),
        ("He lost money: the profit is -3", "-3", "-3"),
        ("total...", None, None),
        ("The answer is 1.234,50", None, None),
        ("The answer is", None, None),
        ("", None, None),
    ],
)
def test_the_number_a_reply_states_is_found(reply: str, span: str | None, key: str | None) -> None:
    assert NUMBER.extract(reply) == span
    assert NUMBER.canonical(span) == key


@pytest.mark.parametrize(
    "run_on",
    [
        "\n\nQuestion: There are 7 cars.\nAnswer: The answer is 9.",
        "\nQ: How many?\nA: The answer is 9.",
        "\n\n**Question 2:** 7?\n#### 9",
        "\n\nHuman: and 9?",
        " Q: How many? The answer is 9",
    ],
)
def test_what_follows_the_next_question_is_not_read(run_on: str) -> None:
    assert NUMBER.extract("He has 3. The answer is 18." + run_on) == "18"
    assert NUMBER.extract("So it is 18." + run_on) == "18"


def test_a_reply_that_restates_its_question_first_is_read() -> None:
    reply = "Question: Tom has 5 apples?\nAnswer: 6 apples\nQuestion: And 7?\nAnswer: 8"
    assert NUMBER.extract(reply) == "6"
    assert before_run_on("\nQuestion: And 7?\nAnswer: 8") == ""


def test_votes_for_one_number_meet_and_an_invalid_one_is_no_vote() -> None:
    votes = ["18", "18.00", "$18", "18 dollars", "36/2", "[invalid]", "", None]
    assert [NUMBER.canonical(vote) for vote in votes] == ["18"] * 5 + [None] * 3


@pytest.mark.parametrize(
    ("answer", "target", "em"),
    [
        ("51", 51.0, 1.0),
        ("51", 51, 1.0),
        ("51.5", 51, 0.0),
        ("0.1", 0.1, 1.0),
        ("$1,234.50", "1234.5", 1.0),
        ("18", "He has 5 * 3 = <<5*3=15>>15.\n#### 18", 1.0),
        ("15", "He has 5 * 3 = <<5*3=15>>15.\n#### 18", 0.0),
        ("3", "#### -3", 0.0),
        ("1" + "0" * 30, 10**30, 1.0),
        ("1" + "0" * 29 + "1", 10**30, 0.0),
        ("", 0, 0.0),
        (None, 0, 0.0),
        ("[invalid]", 0, 0.0),
    ],
)
def test_numbers_are_compared_exactly(answer: str | None, target: object, em: float) -> None:
    assert NUMBER.score(answer, target) == {"em": em, "f1": em}


@pytest.mark.parametrize(
    ("kind", "target"),
    [(NUMBER, "twelve"), (NUMBER, True), (CHOICE, "Z"), (BOOLEAN, "maybe"), (FEVER, "TRUE"), (NUMBER, None)],
)
def test_a_gold_that_is_no_answer_of_its_kind_is_refused(kind: AnswerKind, target: object) -> None:
    with pytest.raises(ValueError, match="gold"):
        kind.gold(target)
    with pytest.raises(ValueError, match="gold"):
        kind.score("18", target)


# ---------------------------------------------------------------- choices


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("A", "A"),
        ("b", "B"),
        ("**(c)**", "C"),
        ("A: It is B", "B"),
        ("A) 5", "A"),
        ("ANS:B", "B"),
        ("The answer is (B), not (C).", "B"),
        ("The answer is B because 6 is even", "B"),
        ("the answer is b", "B"),
        ("The answer is option c.", "C"),
        ("The correct option is E", "E"),
        (r"\boxed{\text{B}}", "B"),
        ("Options: (A) 5 (B) 6. So (B) is right.", "B"),
        ("It gives 6\nB is the correct choice", "B"),
        ("5 + 1 gives 6, hence B", "B"),
        ("The answer is 6.", "B"),
        ("The answer is -6", "E"),
        ("The answer is 5 km", "C"),
        ("It is none of these.", "D"),
        ("The answer is (A).\n\nQuestion: next\nAnswer: (B)", "A"),
        ("The answer is A train", None),
        ("The answer is A or B", None),
        ("The answer is Z", None),
        ("", None),
    ],
)
def test_the_option_a_reply_chooses_is_found(reply: str, letter: str | None) -> None:
    assert CHOICE.canonical(CHOICE.extract(reply, OPTIONS), OPTIONS) == letter


def test_letters_beyond_the_options_are_no_answer() -> None:
    assert CHOICE.canonical("C", ["x", "y"]) is None
    assert CHOICE.canonical("y", ["x", "y"]) is None
    assert CHOICE.canonical("yes, it is", ["no", "yes, it is"]) == "B"


def test_a_choice_may_be_given_by_letter_or_by_text_on_either_side() -> None:
    assert CHOICE.score("(b)", "B")["em"] == 1.0
    assert CHOICE.score("6", "B", OPTIONS)["em"] == CHOICE.score("B", "6", OPTIONS)["em"] == 1.0
    assert CHOICE.score("A", "B", OPTIONS)["em"] == CHOICE.score(None, "A", OPTIONS)["em"] == 0.0


# ---------------------------------------------------------------- yes and no


@pytest.mark.parametrize(
    ("reply", "key"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("TRUE", "yes"),
        ("The answer is: **False**", "no"),
        ("The answer is not true.", "no"),
        ("So the answer is no, he can't.", "no"),
        ("There is no way around it. So yes.", "yes"),
        ("Yes, because it is not false.", "yes"),
        ("The answer is yes.\n\nQ: Is it?\nA: The answer is no.", "yes"),
        ("There is no evidence", None),
        ("Nobody knows", None),
        ("[invalid]", None),
        ("", None),
    ],
)
def test_yes_and_no_are_found(reply: str, key: str | None) -> None:
    assert BOOLEAN.canonical(BOOLEAN.extract(reply)) == key


def test_true_and_yes_are_the_same_answer() -> None:
    assert BOOLEAN.score("true", True)["em"] == BOOLEAN.score("Yes", "true")["em"] == 1.0
    assert BOOLEAN.score("no", True)["em"] == BOOLEAN.score("yes or no", True)["em"] == 0.0


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("She was born there. So the answer is Paris.", "Paris"),
        ("The answer is St. Louis. It lies on a river.", "St. Louis"),
        ("The answer is J. R. R. Tolkien.", "J. R. R. Tolkien"),
        ("Thought: two steps.\nAnswer: **Chief of Protocol**", "Chief of Protocol"),
        ('The answer is "9,984".', "9,984"),
        (r"\boxed{\text{Paris}}", "Paris"),
        ("Answer: Rome\n\nQuestion: Where?\nAnswer: Milan", "Rome"),
        ("It is long.\n#### Paris", "Paris"),
        ("#### Conclusion\nParis", "Paris"),
        ("A: Paris", "Paris"),
        ("The answer is Washington, D.C.", "Washington, D.C."),
        ("Answer: Paris\nAnswer: **", "Paris"),
        ("Both are the same.\nParis\n", "Paris"),
        ("She was born there. The answer is", None),
        ("Answer:", None),
        ("\n", None),
    ],
)
def test_a_text_answer_is_found(reply: str, answer: str | None) -> None:
    assert TEXT.extract(reply) == answer


def test_a_curly_apostrophe_changes_only_the_official_verdict() -> None:
    scores = TEXT.score("Hawai’i", "Hawai'i")
    assert scores == {"em": 0.0, "f1": 0.0, "em_lenient": 1.0}


def test_text_votes_meet_after_normalisation_and_empty_ones_do_not_count() -> None:
    assert TEXT.canonical("The Beatles.") == TEXT.canonical("beatles") == "beatles"
    assert [TEXT.canonical(empty) for empty in ("", "the", "!!!", "[invalid]", None)] == [None] * 5


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("kind", "reply", "label"),
    [
        (FEVER, "The page says so.\nAnswer: SUPPORTED", "SUPPORTS"),
        (FEVER, "The answer is NOT ENOUGH INFORMATION.", "NOT ENOUGH INFO"),
        (FEVER, "Refutes\nClaim: another\nAnswer: SUPPORTS", "REFUTES"),
        (FEVER, "I cannot say", None),
        (MOOD, "The answer is Positive.", "positive"),
        (MOOD, "It is not positive", "not positive"),
        (MOOD, "positive or negative", None),
        (MOOD, "", None),
    ],
)
def test_the_label_of_a_reply_is_found(kind: AnswerKind, reply: str, label: str | None) -> None:
    assert kind.canonical(kind.extract(reply)) == label


@pytest.mark.parametrize("labels", [(), ("a", "A"), ("a", " ")])
def test_labels_must_be_distinct_and_given(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="labels"):
        answer_kind("label", labels=labels)


def test_an_unknown_kind_and_misplaced_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="integer"):
        answer_kind("integer")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="number"):
        answer_kind("number", labels=("a",))


# ---------------------------------------------------------------- properties

CUES = ["The answer is ", "Answer:", "####", "\\boxed{", "}", "{", "\n", "Q:", "\nQuestion: ", "(B)", " A "]
BITS = ["yes", "no", "not ", "18", "6", "1e3", "½", "SUPPORTS", "**", "\ud835", *"-−,./%$='"]
PIECES = st.sampled_from(CUES + BITS)
REPLIES = st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join)
OPTION_LISTS = st.sampled_from([(), OPTIONS, ["yes", "no"], ["", ""], ["5", "5"]])


@given(st.sampled_from(KINDS), REPLIES, OPTION_LISTS)
def test_any_reply_can_be_read_and_its_vote_key_is_its_own_key(
    kind: AnswerKind, reply: str, options: list[str]
) -> None:
    answer = kind.extract(reply, options)
    assert answer is None or answer in reply
    key = kind.canonical(answer, options)
    assert key is None or kind.canonical(key, options) == key


GOLDS = [(NUMBER, 18.5), (CHOICE, "B"), (BOOLEAN, False), (TEXT, "The The"), (FEVER, "REFUTES")]


@given(st.sampled_from(GOLDS), st.none() | REPLIES, OPTION_LISTS)
def test_every_score_is_finite_and_between_zero_and_one(
    gold: tuple[AnswerKind, object], answer: str | None, options: list[str]
) -> None:
    scores = gold[0].score(answer, gold[1], options)
    assert {"em", "f1"} <= scores.keys()
    assert all(math.isfinite(score) and 0.0 <= score <= 1.0 for score in scores.values())


@pytest.mark.parametrize(("kind", "target"), GOLDS)
@pytest.mark.parametrize("nothing", [None, "", " ", "[invalid]"])
def test_no_answer_scores_zero(kind: AnswerKind, target: object, nothing: str | None) -> None:
    assert set(kind.score(nothing, target).values()) == {0.0}


# ---------------------------------------------------------------- public data


def data(name: str) -> str:
    root = os.environ.get("OVERNIGHT_DATA")
    if not root:
        pytest.skip("OVERNIGHT_DATA is not set: it names the folder of the public data sets")
    path = Path(root, name)
    if not path.exists():
        pytest.skip(f"{path} is missing: this check needs the public data set")
    return path.read_text(encoding="utf-8")


def test_every_gsm8k_gold_given_as_the_reply_scores_one() -> None:
    golds = [json.loads(line)["answer"] for line in data("gsm8k/test.jsonl").splitlines()]
    assert len(golds) == 1319
    assert [gold[-40:] for gold in golds if scored(NUMBER, gold, gold) != 1.0] == []
    for gold in golds:
        reasoning, _, number = (part.strip() for part in gold.rpartition("####"))
        for form in ("The answer is {}.", "the answer is ${}.00", "Answer: {} dollars", "\\boxed{{{}}}"):
            reply = f"{reasoning}\n{form.format(number)}\n\nQuestion: 7 more?\nAnswer: The answer is 77."
            assert scored(NUMBER, reply, gold) == 1.0, reply


def test_every_svamp_answer_given_in_a_reply_scores_one() -> None:
    rows = json.loads(data("qa/svamp.json"))
    assert len(rows) == 1000
    replies = [
        (f"It is {row['Equation']}. The answer is {row['Answer']:,.0f}.", row["Answer"]) for row in rows
    ]
    assert [reply for reply, gold in replies if scored(NUMBER, reply, gold) != 1.0] == []


def test_every_aqua_choice_given_in_a_reply_scores_one() -> None:
    rows = [json.loads(line) for line in data("qa/aqua_test.jsonl").splitlines()]
    assert len(rows) == 254
    for row in rows:
        gold, options = row["correct"], row["options"]
        text = option_texts(options)[ord(gold) - ord("A")]
        for reply in (
            f"So we get it. The answer is ({gold}).",
            f"The answer is {gold}",
            f"we choose {gold})",
        ):
            assert scored(CHOICE, reply, gold, options) == 1.0, (reply, options)
        if option_texts(options).count(text) == 1:
            assert scored(CHOICE, f"The answer is {text}.", gold, options) == 1.0, (text, options)


def test_every_strategyqa_answer_given_in_a_reply_scores_one() -> None:
    rows = json.loads(data("qa/strategyqa_dev.json"))
    assert len(rows) == 229
    for row in rows:
        word = "yes" if row["answer"] else "no"
        for form in (
            "There is no doubt. So the answer is {}.",
            "{}, it is so.",
            "Answer: **{}**",
            "A: Thus, {}.",
        ):
            assert scored(BOOLEAN, form.format(word), row["answer"]) == 1.0
            assert scored(BOOLEAN, form.format(word), not row["answer"]) == 0.0


def test_every_hotpotqa_gold_given_in_a_reply_scores_one() -> None:
    golds = [row["answer"] for row in json.loads(data("hotpotqa/hotpot_dev_v1_simplified.json"))]
    assert len(golds) == 7405
    assert [gold for gold in golds if set(TEXT.score(gold, gold).values()) != {1.0}] == []
    for form in (
        "So the answer is {}. This is known.",
        "Thought: a, so b.\nAnswer: {}",
        "A: It is so.\n{}\n",
    ):
        assert [gold for gold in golds if scored(TEXT, form.format(gold), gold) != 1.0] == []
