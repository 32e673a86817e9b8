"""The parser of replies: what models really write, what they may write, and recorded replies of real models."""

from __future__ import annotations

import gzip
import json
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envs.base import DataError
from envs.data import find
from runner.methods.parsing import canonical_action, reference_action, reference_split, shown_action, split


def read(reply: str) -> tuple[str, str | None]:
    """(thought, canonical action or None) of a reply."""
    thought, action = split(reply)
    return thought, None if action is None else canonical_action(action)


# ---------------------------------------------------------------- whole replies

REPLIES = {
    "as asked": (" I need X.\nAction 1: Search[Foo]", "I need X.", "search[Foo]"),
    "lower case": ("t\naction 1: search[Foo]", "t", "search[Foo]"),
    "upper case": ("t\nACTION 1: SEARCH[Foo]", "t", "search[Foo]"),
    "no number": ("t\nAction: Search[Foo]", "t", "search[Foo]"),
    "no space": ("t\nAction1:Search[Foo]", "t", "search[Foo]"),
    "another number": ("t\nAction 7: Search[Foo]", "t", "search[Foo]"),
    "echoed thought": ("Thought 1: t\nAction 1: Search[Foo]", "t", "search[Foo]"),
    "thought echoed twice on its line": ("Thought 1: Thought 1: t\nAction 1: Search[Foo]", "t", "search[Foo]"),
    "thought said twice": ("t\nThought 1: t\nAction 1: Search[Foo]", "t", "search[Foo]"),
    "two thoughts": ("t\nThought 2: u\nAction 2: Search[Foo]", "t\nu", "search[Foo]"),
    "thought over lines": ("t\n\nu\nAction 1: Search[Foo]", "t\n\nu", "search[Foo]"),
    "extra blank lines": ("\n\nt\n\n\nAction 1:\n\n\nSearch[Foo]\n\n", "t", "search[Foo]"),
    "action said twice": ("t\nAction 1:\nAction 1: Search[Foo]", "t", "search[Foo]"),
    "two turns": ("t\nAction 1: Search[A]\nThought 2: u\nAction 2: Search[B]", "t", "search[A]"),
    "two actions": ("t\nAction 1: Search[A]\nAction 2: Search[B]", "t", "search[A]"),
    "two actions on a line": ("t\nAction 1: Search[A] Search[B]", "t", "search[A]"),
    "two actions with a comma": ("t\nAction 1: Search[A], Finish[B]", "t", "search[A]"),
    "invented observation": ("t\nAction 1: Search[A]\nObservation 1: o\nAction 2: Finish[B]", "t", "search[A]"),
    "observation on the action's line": ("t\nAction 1: Search[A] Observation 1: see [1]", "t", "search[A]"),
    "observation without an action": ("Thought 1: t\nObservation 1: o\nAction 2: Finish[B]", "t", None),
    "bold words": ("**Thought 1:** t\n**Action 1:** Search[Foo]", "t", "search[Foo]"),
    "bold numbers": ("**Thought 1**: t\n**Action 1**: Search[Foo]", "t", "search[Foo]"),
    "bold lines": ("**Thought 1: t**\n**Action 1: Search[Foo]**", "t", "search[Foo]"),
    "bold verb": ("t\nAction 1: **Search**[Foo]", "t", "search[Foo]"),
    "bold argument": ("t\nAction 1: Finish[**yes**]", "t", "finish[yes]"),
    "bold stays in a thought": ("**X** is it.\nAction 1: Search[X]", "**X** is it.", "search[X]"),
    "italics": ("t\n_Action 1:_ _Search[Foo]_", "t", "search[Foo]"),
    "headings": ("### Thought 1\nt\n### Action 1\nSearch[Foo]", "t", "search[Foo]"),
    "list": ("- Thought 1: t\n- Action 1: Search[Foo]", "t", "search[Foo]"),
    "quotation": ("> Thought: t\n> Action: Search[Foo]", "t", "search[Foo]"),
    "backticks": ("t\nAction 1: `Search[Foo]`", "t", "search[Foo]"),
    "backticked argument": ("t\nAction 1: Search[`Foo`]", "t", "search[Foo]"),
    "fenced action": ("t\nAction 1:\n```\nSearch[Foo]\n```", "t", "search[Foo]"),
    "fenced reply": ("```text\nThought 1: t\nAction 1: Search[Foo]\n```", "t", "search[Foo]"),
    "CRLF": ("t\r\nu\r\nAction 1: Search[Foo]\r\nObservation 1: o\r\n", "t\nu", "search[Foo]"),
    "full-width": ("想一想\nAction 1：Search［Foo］", "想一想", "search[Foo]"),
    "lenticular brackets": ("t\nAction 1: Search【Foo】", "t", "search[Foo]"),
    "verb in other letters": ("t\nAction 1: öffne[Tür]", "t", "öffne[Tür]"),
    "Chinese verb": ("t\nAction 1: 搜索［红楼梦］", "t", "搜索[红楼梦]"),
    "action on the thought's line": ("I need X. Action 1: Search[X]", "I need X.", "search[X]"),
    "action in the thought's place": ("Thought 1: Action 1: Search[Foo]", "", "search[Foo]"),
    "bare action": (" Search[Foo]", "", "search[Foo]"),
    "bare action after the thought": ("t\nSearch[Foo]", "t", "search[Foo]"),
    "bare action, then prose": ("t\nSearch[Foo]\nThis will help.", "t", "search[Foo]"),
    "bare action, cut off": ("t\nSearch[Foo", "t", "search[Foo]"),
    "bare action at the end of a line": ("I need X. Search[X]", "I need X.", "search[X]"),
    "action mentioned last": ("Next I will use Search[X].", "Next I will use", "search[X]"),
    "brackets in a thought": ("Paramore [the band] is from Franklin.", "Paramore [the band] is from Franklin.", None),
    "footnote in a thought": ("It says so in the page[1]", "It says so in the page[1]", None),
    "the word action in a thought": ("The action: he runs away.", "The action: he runs away.", None),
    "only a thought": (" I am not sure.", "I am not sure.", None),
    "action None": ("t\nAction: None", "t", "None"),
    "empty action": ("t\nAction 1:", "t", None),
    "empty": ("", "", None),
    "white space": (" \t\r\n \u3000\n", "", None),
}  # fmt: skip


@pytest.mark.parametrize("reply, thought, action", REPLIES.values(), ids=REPLIES.keys())
def test_a_reply_is_read_as_thought_and_action(reply: str, thought: str, action: str | None) -> None:
    assert read(reply) == (thought, action)


# ---------------------------------------------------------------- actions

ACTIONS = {
    "Search[Foo [bar]]": "search[Foo [bar]]",
    "Search[Foo [bar]": "search[Foo [bar]]",
    "Search[Foo (disambiguation)": "search[Foo (disambiguation)]",
    "Search[": "search[]",
    "Finish[]": "finish[]",
    "Finish[ ]": "finish[]",
    "Finish[yes].": "finish[yes]",
    "Finish[yes]]": "finish[yes]",
    "Finish[yes] since both [1] are.": "finish[yes]",
    "[Search[Foo]]": "search[Foo]",
    "Search [Foo]": "search[Foo]",
    "Finish[New\nYork\nCity]": "finish[New York City]",
    "Finish[\n  yes\n]": "finish[yes]",
    "Search[Foo\nand some prose": "search[Foo]",
    "Search[Foo\n\nI will then Lookup[bar]": "search[Foo]",
    "Finish[[O.S. 6 January] 1835]": "finish[[O.S. 6 January] 1835]",
    "Finish[Ravenna (] , also locally ] ; x]": "finish[Ravenna (] , also locally ] ; x]",
    'Search["Heroes" (album)]': 'search["Heroes" (album)]',
    "I will use Search[Foo] now": "search[Foo]",
    "The answer (1) is Finish[Foo]": "finish[Foo]",
    "I search.\nSearch[Foo]": "search[Foo]",
    'Search("Foo (film)")': "search[Foo (film)]",
    "Search('Foo').": "search[Foo]",
    "Search(Foo)\nto see": "search[Foo]",
    'search(query="Foo")': "search[Foo]",
    "Search(Foo)": "search[Foo]",
    "go to the door (left)": "go to the door (left)",
    "look at it": "look at it",
    "None": "None",
    "Search: Foo": "Search: Foo",
    '{"action": "Search", "input": "Foo"}': '{"action": "Search", "input": "Foo"}',
    "don't know\nat all": "don't know",
    "İçki[x]": "içki[x]",
    "3[x]": "3[x]",
    "": "",
}


@pytest.mark.parametrize("text, action", ACTIONS.items(), ids=ACTIONS.keys())
def test_an_action_comes_to_its_canonical_form(text: str, action: str) -> None:
    assert canonical_action(text) == action


def test_every_published_gold_answer_survives_as_a_finishing_action() -> None:
    golds = [
        row["answer"] for row in json.loads(published("hotpotqa/hotpot_dev_v1_simplified.json").read_bytes())
    ]
    assert len(golds) == 7405
    lost = [
        gold
        for gold in golds
        if read(f"t\nAction 3: Finish[{gold}]")[1] != f"finish[{' '.join(gold.split())}]"
    ]
    assert lost == []


# ---------------------------------------------------------------- anything at all

MARKS = [*"[]()［】：*`_#-=.1x\"' \n\t\0\u2028\ud800", "**", "\r\n", "```\n"]
WORDS = ["Thought 1:", "Action 1:", "Observation 1:", "action:", "Search", "finish", "Foo", "é", "İ", "搜索"]
PIECES = st.sampled_from([*MARKS, *WORDS])
REPLY = st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join))


@given(REPLY)
@example("****\nAction 1:****")
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    thought, action = split(text)
    assert action is None or action.strip()
    assert thought == thought.strip()
    assert "\n" not in canonical_action(text)
    reference_split(text, 1)
    reference_action(text)


@given(REPLY)
@example("Search[A [x] y")
@example("Search[A [x")
@example("Search(A] x [b)")
@example("* *a **\nb")
@example("İ[x]")
@example("Search[** ** a ** **]")
def test_a_canonical_action_is_its_own_canonical_form(text: str) -> None:
    once = canonical_action(text)
    assert canonical_action(once) == once


WORD = st.text(string.ascii_letters + string.digits + "éü-.,'’红", min_size=1, max_size=8).filter(
    lambda w: w.strip()
)
ARGUMENT = st.recursive(
    st.lists(WORD, min_size=1, max_size=4).map(" ".join),
    lambda inner: st.builds(lambda a, b, c: f"{a} [{b}] {c}", inner, inner, inner),
    max_leaves=4,
)
VERB = st.from_regex(r"[a-z][a-z0-9_]{0,8}[a-z0-9]", fullmatch=True)


@given(VERB, ARGUMENT, st.integers(1, 12))
def test_an_action_that_a_prompt_shows_is_read_back_as_it_was(verb: str, argument: str, i: int) -> None:
    action = f"{verb}[{argument}]"
    thought, found = split(f" A thought.\nAction {i}: {shown_action(action)}")
    assert (thought, found and canonical_action(found)) == ("A thought.", action)


LONG = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (45, 45))
from runner.methods.parsing import canonical_action, split
units = [*'a *_`[](-)#1"', "\\t", "\\n", "\\r\\n", "\\u3000", "\\uff3b", "a_", "_a", "a ", "a*", "* ", "] ", "]."]
units += ["a[", "a[\\n", "A. ", "A[ B. ", "A[x] ", "[a]", "a(", "x=", "Thought", "Thought ", "Thought 1:\\n"]
units += ["Action:\\n", "Action 1: ", "action ", "action: a", "```", "```\\n", "Search["]
for head in ["", "Thought", "Search["]:
    for unit in units:
        text = head + unit * (200_000 // len(unit)) + "x"
        split(text)
        canonical_action(text)
print("read")
"""


def test_replies_of_100_kb_and_more_are_read_in_linear_time() -> None:
    """Texts that are one piece over and over. All are given so little processor time together that one read in
    quadratic time (2 * 10**10 steps) would use it up several times over."""
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


# ---------------------------------------------------------------- the public code's rules


@pytest.mark.parametrize(
    "reply, i, expected",
    [
        (" t \nAction 2: Search[A]", 2, ("t ", "Search[A]")),  # only the whole is stripped
        (" t\nAction 1: Search[A]", 2, ("t", None)),  # another number is no action
        ("t\naction 2: Search[A]", 2, ("t", None)),
        ("t\nAction 2:Search[A]", 2, ("t", None)),
        ("t\nu\n\nAction 2: Search[A]\nmore", 2, ("t\nu\n", "Search[A]\nmore")),
        ("t\nAction 2: A\nAction 2: B", 2, ("t", None)),  # three parts
        ("t\nAction 2: \n\nFinish[x]", 2, ("t", "\n\nFinish[x]")),  # happened five times in the published run
        ("t\nu", 2, ("t", None)),
        ("", 2, ("", None)),
    ],
)
def test_the_reference_splits_as_the_public_code_does(
    reply: str, i: int, expected: tuple[str, str | None]
) -> None:
    assert reference_split(reply, i) == expected


@pytest.mark.parametrize(
    "action, sent", [("Search[A B]", "search[A B]"), ("\n\nFinish[x]", "\n\nFinish[x]"), ("Login", "login"), ("", "")]
)  # fmt: skip
def test_the_reference_lowers_one_letter_and_mends_nothing(action: str, sent: str) -> None:
    assert reference_action(action) == sent


# ---------------------------------------------------------------- recorded replies


def published(path: str) -> Path:
    try:
        return find(path)
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "path, steps",
    [("fever/react_davinci002_0_249.jsonl.gz", 624), ("hotpotqa/reflexion_react_trial0.jsonl.gz", 382)],
)
def test_recorded_replies_give_the_recorded_thoughts_and_actions(path: str, steps: int) -> None:
    """Normalised are the verb's case, white space, and what follows the closing bracket (`Lookup[X] on another
    website`). `Login` has no brackets, and stays as it is."""
    with gzip.open(published(path), "rt", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [json.loads(line) for line in file]
    read_back, other = 0, []
    for row in rows:
        for i, (thought, action, _) in enumerate(row["steps"], 1):
            verb, bracket, rest = action.strip().partition("[")
            expected = f"{verb.lower()}[{' '.join(rest.rpartition(']')[0].split())}]" if bracket else verb
            found = read(f"{thought}\nAction {i}: {action}")
            read_back += found == (thought.strip(), expected)
            if found != (thought.strip(), expected):
                other.append((found, thought, action))
    print(f"{path}: {read_back} of {steps} steps read back")
    assert (read_back, other) == (steps, [])
