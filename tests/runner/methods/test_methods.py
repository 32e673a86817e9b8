"""The seven methods, each over a small world with a scripted model: what is asked, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from envs.base import Observation, Session, Task, World
from envs.fever import Fever
from envs.hotpotqa import HotpotQA
from runner import library
from runner.errors import ContextOverflow, Filtered
from runner.job import Job
from runner.methods.act import Act
from runner.methods.base import Method
from runner.methods.cot import Cot
from runner.methods.cot_sc import CotSC
from runner.methods.cot_sc_then_react import CotSCThenReact
from runner.methods.react import React
from runner.methods.react_then_cot_sc import ReactThenCotSC
from runner.methods.standard import Standard
from runner.models.base import Call, Choice
from runner.models.scripted import Scripted, scripted

Row = dict[str, Any]


class Desk(Session):
    """Counts its steps; `finish[..]` ends it; `look[newline]` shows a backslash and an n."""

    def __init__(self) -> None:
        self.taken = 0

    async def step(self, action: str) -> Observation:
        self.taken += 1
        if action.startswith("finish[") and action.endswith("]"):
            self.answer = action.removeprefix("finish[")[:-1]
            return Observation("Done.", reward=float(self.answer == "Ada"), done=True)
        if re.match(r"look\[.*\]$", action):
            return Observation("Here\\n it is." if action == "look[newline]" else f"Step {self.taken}.")
        return Observation(f"Invalid action: {action}")


class Room(World):
    name: ClassVar[str] = "room"
    acts: ClassVar[bool] = True
    steps: ClassVar[int] = 3

    def tasks(self) -> Iterator[Task]:
        yield Task("1", "Who?", "Ada")

    def session(self, task: Task) -> Session:
        return Desk()

    def extract(self, task: Task, text: str) -> str | None:
        return text.rpartition("Answer:")[2].strip() or None if "Answer:" in text else None

    def canonical(self, task: Task, answer: str | None) -> str | None:
        return answer and answer.lower()

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": float(answer == task.target)}


async def play(
    folder: Path, method: Method | dict[str, Method], script: Any, world: World | None = None, **settings: Any
) -> tuple[list[Row], Scripted]:
    """The rows, and the model with its calls. Nothing is tried twice."""
    model = scripted(
        [script] if isinstance(script, str) else script, api="completions", attempts=1, max_n=100
    )
    job = Job.of(world or Room(), method, model, **settings)
    run = await library.run(job, outputs=folder, progress=False)
    return list(run.trajectories), model


async def solve(folder: Path, method: Method, script: Any, **more: Any) -> tuple[Row, Scripted]:
    (row,), model = await play(folder, method, script, **more)
    return row, model


def asked(call: Call) -> tuple[str, float, int, tuple[str, ...]]:
    """The end of the prompt after the task, temperature, reply length, stops."""
    params = call.request.params
    return call.request.prompt.rpartition("Who?\n")[2], params.temperature, params.max_tokens, params.stop


def by_prompt(acting: Any, chains: Any = "Answer: nobody") -> Callable[[Call], Any]:
    """`acting` answers prompts of numbered steps, `chains` (texts, one a draw) the others."""

    def script(call: Call) -> Any:
        if re.search(r"(Thought|Action) \d+:$", call.request.prompt):
            return acting(call) if callable(acting) else acting
        if isinstance(chains, list):
            return [chains[i] for i in range(call.first, call.first + call.n)]
        return [chains] * call.n

    return script


# ---------------------------------------------------------------- standard and cot


async def test_standard_is_one_greedy_answer(tmp_path: Path) -> None:
    row, model = await solve(tmp_path, Standard(), " Ada\nQuestion: next?\nAnswer: Bob")
    assert [asked(call) for call in model.calls] == [("Answer:", 0.0, 64, ("\nQuestion:",))]
    assert (row["status"], row["answer"], row["scores"], row["n_steps"]) == (
        "finished",
        "Ada",
        {"em": 1.0},
        0,
    )


async def test_cot_is_one_greedy_chain(tmp_path: Path) -> None:
    row, model = await solve(tmp_path, Cot(), " Ada wrote.\nAnswer: Ada\nQuestion: next?\nAnswer: Bob")
    assert [asked(call) for call in model.calls] == [("Thought:", 0.0, 256, ("\nQuestion:",))]
    assert (row["status"], row["answer"]) == ("finished", "Ada")
    assert row["steps"][0]["thought"] == "Ada wrote.\nAnswer: Ada"
    assert row["usage"]["calls"] == 1


# ---------------------------------------------------------------- replies that answer nothing

ENDINGS = {
    "nothing": ("", "no_answer", "step_limit"),
    "white space": (" \n\n", "no_answer", "step_limit"),
    "prose": ("I do not know.", "no_answer", "step_limit"),
    "cut off": (Choice("It is lo", "length"), "truncated", "step_limit"),
    "only reasoning, cut off": (Choice("", "length", reasoning="Let me see"), "truncated", "truncated"),
    "filtered": (Choice("", "filter"), "filtered", "filtered"),
    "refused": (Choice("", "refusal"), "filtered", "filtered"),
    "refused in words": (Choice("I cannot help.", "refusal"), "no_answer", "step_limit"),
}


@pytest.mark.parametrize("reply, status, acting", ENDINGS.values(), ids=ENDINGS.keys())
async def test_a_reply_without_an_answer_gives_a_row_that_says_how_it_ended(
    reply: Any, status: str, acting: str, tmp_path: Path
) -> None:
    for method, expected in [(Cot(), status), (CotSC(samples=1), status), (Act(), acting), (React(), acting)]:
        row, _ = await solve(tmp_path, method, lambda call: reply)
        assert (method.name, row["status"], row["answer"]) == (method.name, expected, None)
        assert row["scores"] == {"em": 0.0}
        assert row["error"] is None


async def test_a_standard_answer_may_be_cut_off_and_still_counts(tmp_path: Path) -> None:
    row, _ = await solve(tmp_path, Standard(), lambda call: Choice(" Ada", "length"))
    assert (row["status"], row["answer"]) == ("finished", "Ada")


@pytest.mark.parametrize("method", [Act(), React()], ids=["act", "react"])
async def test_a_model_that_uses_up_its_tokens_in_hidden_thoughts_is_not_asked_at_every_step(
    method: Method, tmp_path: Path
) -> None:
    _, model = await solve(tmp_path, method, lambda call: Choice("", "length", reasoning="hm"))
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    "method", [Standard(), Cot(), CotSC(samples=3), Act(), React(), ReactThenCotSC(), CotSCThenReact()],
    ids=lambda method: method.name,
)  # fmt: skip
async def test_a_model_that_returns_no_choice_gives_an_error_row(method: Method, tmp_path: Path) -> None:
    row, _ = await solve(tmp_path, method, lambda call: [])
    assert (row["status"], row["answer"], row["scores"]) == ("error", None, {})
    assert row["error"]["message"]


async def test_a_prompt_that_does_not_fit_is_said(tmp_path: Path) -> None:
    def full(call: Call) -> str:
        if "Observation 2" in call.request.prompt:
            raise ContextOverflow("too long")
        return " t\nAction: Look[x]"

    row, _ = await solve(tmp_path, React(), full)
    assert (row["status"], row["n_steps"]) == ("context_overflow", 2)


# ---------------------------------------------------------------- cot_sc


async def test_cot_sc_votes_with_21_chains_at_07(tmp_path: Path) -> None:
    chains = ["a\nAnswer: Ada"] * 5 + ["b\nAnswer: ADA"] * 4 + ["c\nAnswer: Bob"] * 8 + ["no answer"] * 4
    row, model = await solve(tmp_path, CotSC(until="all"), by_prompt("", chains))
    assert sum(call.n for call in model.calls) == 21
    assert {asked(call) for call in model.calls} == {("Thought:", 0.7, 256, ("\nQuestion:",))}
    assert (row["status"], row["answer"], row["scores"]) == ("finished", "Ada", {"em": 1.0})
    assert row["votes"]["tally"] == {"ada": 9, "bob": 8}
    assert (row["votes"]["n_drawn"], row["votes"]["invalid"], row["votes"]["tied"]) == (21, 4, False)
    assert [chain["text"] for chain in row["votes"]["chains"]] == chains
    assert [chain["draw"] for chain in row["votes"]["chains"]] == list(range(21))


async def test_chains_that_could_not_change_the_verdict_are_not_drawn(tmp_path: Path) -> None:
    """21 chains: eleven of one mind settle it; a dissenter costs one more, and so one request."""
    chains = ["Answer: Bob", *["Answer: Ada"] * 20]
    row, model = await solve(tmp_path, CotSC(), by_prompt("", chains))
    assert [(call.first, call.n) for call in model.calls] == [(0, 11), (11, 1)]
    votes = row["votes"]
    assert (votes["n"], votes["n_drawn"], votes["stopped_by"]) == (21, 12, "lossless")
    assert (row["answer"], votes["tally"]) == ("Ada", {"bob": 1, "ada": 11})
    assert row["usage"]["calls"] == 2


async def test_a_function_in_a_file_decides_how_many_chains_are_drawn(tmp_path: Path) -> None:
    rule = tmp_path / "mine.py"
    rule.write_text("def two(votes, left):\n    return 2 - len(votes.chains)\n")
    row, model = await solve(tmp_path, CotSC(until=f"{rule}:two"), by_prompt("", "Answer: Ada"))
    assert [(call.first, call.n) for call in model.calls] == [(0, 2)]
    assert row["votes"]["stopped_by"] == f"{rule}:two"


async def test_votes_may_be_weighted_by_how_likely_their_chains_were(tmp_path: Path) -> None:
    sure, unsure = (-0.1, -0.1), (-2.0, -1.0)
    said = [("Bob", unsure), ("Bob", unsure), ("Ada", sure), ("Cid", None)]
    choices = [Choice(f"Answer: {name}", logprobs=logprobs) for name, logprobs in said]
    method = CotSC(samples=4, until="all", weights="logprob")
    row, _ = await solve(tmp_path, method, by_prompt("", choices))
    assert row["answer"] == "Cid"  # a chain without log-probabilities counts 1, and the row says so
    assert row["flags"] == ["weight_missing"]
    weights = [chain["weight"] for chain in row["votes"]["chains"]]
    assert weights == pytest.approx([0.22313, 0.22313, 0.90484, 1.0], abs=1e-4)
    assert row["votes"]["weights"] == pytest.approx({"bob": 0.44626, "ada": 0.90484, "cid": 1.0}, abs=1e-4)


@pytest.mark.parametrize("first, second", [("Ada", "Bob"), ("Bob", "Ada")])
async def test_a_tie_goes_to_the_answer_drawn_first_and_is_flagged(
    first: str, second: str, tmp_path: Path
) -> None:
    chains = ["none", f"Answer: {first}", f"Answer: {second}", f"Answer: {second}", f"Answer: {first}"]
    row, _ = await solve(tmp_path, CotSC(samples=5), by_prompt("", chains))
    assert (row["answer"], row["votes"]["tied"], row["flags"]) == (first, True, ["tied_vote"])


async def test_chains_without_answers_elect_nobody(tmp_path: Path) -> None:
    row, _ = await solve(tmp_path, CotSC(samples=3), by_prompt("", ["x", "y", "Answer:"]))
    assert (row["status"], row["answer"], row["votes"]["invalid"]) == ("no_answer", None, 3)


async def test_a_filtered_chain_is_an_invalid_vote(tmp_path: Path) -> None:
    chains = [Choice("", "filter"), "Answer: Ada", Choice("", "refusal")]
    row, _ = await solve(tmp_path, CotSC(samples=3, until="all"), by_prompt("", chains))
    assert (row["status"], row["answer"], row["votes"]["invalid"]) == ("finished", "Ada", 2)


async def test_settings_of_a_method_reach_the_model(tmp_path: Path) -> None:
    method = CotSC(samples=2, until="all", temperature=1.0, max_tokens=9)
    _, model = await solve(tmp_path, method, by_prompt("", "Answer: Ada"))
    assert {asked(call)[1:3] for call in model.calls} == {(1.0, 9)}
    assert sum(call.n for call in model.calls) == 2


# ---------------------------------------------------------------- react and act


async def test_react_thinks_acts_and_sees_until_it_finishes(tmp_path: Path) -> None:
    replies = iter(
        [" First.\nAction 1: look[it]", " Now I know.\nAction 2: Finish[Ada]\nObservation 2: invented"]
    )
    row, model = await solve(tmp_path, React(), lambda call: next(replies))
    assert [asked(call) for call in model.calls] == [
        ("Thought 1:", 0.0, 100, ("\nObservation 1:", "\nQuestion:")),
        (
            "Thought 1: First.\nAction 1: Look[it]\nObservation 1: Step 1.\nThought 2:",
            0.0,
            100,
            ("\nObservation 2:", "\nQuestion:"),
        ),
    ]
    assert (row["status"], row["answer"], row["reward"], row["n_steps"]) == ("finished", "Ada", 1.0, 2)
    steps = [(s["thought"], s["action"], s["observation"], len(s["draws"])) for s in row["steps"]]
    assert steps == [("First.", "look[it]", "Step 1.", 1), ("Now I know.", "finish[Ada]", "Done.", 1)]


async def test_act_is_react_without_thoughts(tmp_path: Path) -> None:
    replies = iter([" look[it]", " Action 2: Finish[Ada].\nAction 3: Look[it]"])
    row, model = await solve(tmp_path, Act(), lambda call: next(replies))
    assert [asked(call)[0] for call in model.calls] == [
        "Action 1:",
        "Action 1: Look[it]\nObservation 1: Step 1.\nAction 2:",
    ]
    assert asked(model.calls[1])[3] == ("\nObservation 2:", "\nQuestion:")
    assert (row["status"], row["answer"]) == ("finished", "Ada")
    assert [(s["thought"], s["action"]) for s in row["steps"]] == [(None, "look[it]"), (None, "finish[Ada]")]


async def test_a_thought_without_an_action_is_asked_for_the_action(tmp_path: Path) -> None:
    replies = iter([" I should finish.\nAnd soon.", " Finish[Ada]\nThought 2: on"])
    row, model = await solve(tmp_path, React(), lambda call: next(replies))
    assert [(asked(call)[0], asked(call)[3]) for call in model.calls] == [
        ("Thought 1:", ("\nObservation 1:", "\nQuestion:")),
        ("Thought 1: I should finish.\nAnd soon.\nAction 1:", ("\n",)),
    ]
    (step,) = row["steps"]
    assert (step["thought"], step["action"]) == ("I should finish.\nAnd soon.", "finish[Ada]")
    assert len(step["draws"]) == 2


async def test_an_action_that_the_world_does_not_know_is_shown_to_the_model_as_such(tmp_path: Path) -> None:
    row, model = await solve(tmp_path, React(steps=2), " Hm.\nAction: None")
    assert asked(model.calls[1])[0].endswith(
        "Action 1: None\nObservation 1: Invalid action: None\nThought 2:"
    )
    assert row["status"] == "step_limit"


@pytest.mark.parametrize("method", [Act(), React()], ids=["act", "react"])
@pytest.mark.parametrize(
    "world, steps", [(HotpotQA(), 7), (Fever(), 5), (Room(), 3)], ids=["hotpotqa", "fever", "room"]
)
async def test_the_world_says_how_many_steps_there_are(
    method: Method, world: World, steps: int, tmp_path: Path
) -> None:
    row, model = await solve(tmp_path, method, " So.\nAction: Look[x]", world=world, limit=1)
    assert (row["status"], row["n_steps"], row["answer"]) == ("step_limit", steps, None)
    assert len(model.calls) == steps


@pytest.mark.parametrize("method", [Act(steps=2), React(steps=2)], ids=["act", "react"])
async def test_the_job_may_say_it_instead(method: Method, tmp_path: Path) -> None:
    row, _ = await solve(tmp_path, method, " So.\nAction: Look[x]")
    assert (row["status"], row["n_steps"]) == ("step_limit", 2)


@pytest.mark.parametrize("method", [Act(), React()], ids=["act", "react"])
async def test_finishing_with_nothing_is_no_answer(method: Method, tmp_path: Path) -> None:
    row, model = await solve(tmp_path, method, " t\nAction 1: Finish[ ]")
    assert (row["status"], row["n_steps"], len(model.calls)) == ("no_answer", 1, 1)
    assert row["scores"] == {"em": 0.0}


# ---------------------------------------------------------------- the public code's protocol


async def test_the_reference_has_one_stop_and_a_forced_finish(tmp_path: Path) -> None:
    row, model = await solve(
        tmp_path, React(compat="reference"), lambda call: f" t\nAction {turn(call)}: Look[x]"
    )
    assert [asked(call)[3] for call in model.calls] == [(f"\nObservation {i}:",) for i in (1, 2, 3)]
    assert [step["action"] for step in row["steps"]] == ["look[x]"] * 3 + ["finish[]"]
    assert (row["status"], row["answer"], row["scores"]) == ("step_limit", "", {"em": 0.0})
    assert "Action 1: Look[x]\nObservation 1: Step 1.\nThought 2:" in model.calls[1].request.prompt


async def test_the_reference_mends_no_action(tmp_path: Path) -> None:
    replies = iter([" t\nAction 1: \n\nFinish[x]", " t\nAction 2: Finish[Ada] .", " t\nAction 3: LOOK[x]"])
    row, _ = await solve(tmp_path, React(compat="reference"), lambda call: next(replies))
    assert [step["action"] for step in row["steps"]] == [
        "\n\nFinish[x]",
        "finish[Ada] .",
        "lOOK[x]",
        "finish[]",
    ]
    assert row["steps"][0]["observation"] == "Invalid action: \n\nFinish[x]"


async def test_the_reference_asks_again_where_the_split_fails(tmp_path: Path) -> None:
    replies = iter([" t\nu\naction 1: Finish[Bob]", " Finish[Ada] "])
    row, model = await solve(tmp_path, React(compat="reference"), lambda call: next(replies))
    assert [(asked(call)[0], asked(call)[3]) for call in model.calls] == [
        ("Thought 1:", ("\nObservation 1:",)),
        ("Thought 1: t\nAction 1:", ("\n",)),
    ]
    assert row["answer"] == "Ada"


async def test_the_reference_drops_written_out_line_breaks_from_observations(tmp_path: Path) -> None:
    for compat, seen in [("reference", "Here it is."), ("default", "Here\\n it is.")]:
        method = React(compat=compat, steps=2)
        _, model = await solve(tmp_path, method, lambda call: f" t\nAction {turn(call)}: Look[newline]")
        assert f"Observation 1: {seen}\n" in model.calls[1].request.prompt


async def test_the_reference_acts_to_the_letter_too(tmp_path: Path) -> None:
    row, model = await solve(tmp_path, Act(compat="reference", steps=2), lambda call: " Look[x]\nand more")
    assert [asked(call)[3] for call in model.calls] == [("\nObservation 1:",), ("\nObservation 2:",)]
    assert [step["action"] for step in row["steps"]] == ["look[x]\nand more"] * 2 + ["finish[]"]


def turn(call: Call) -> int:
    (number,) = re.findall(r"(\d+):$", call.request.prompt)
    return int(number)


# ---------------------------------------------------------------- hybrids

LOOKING = " t\nAction: Look[x]"


def overflow(call: Call) -> str:
    raise ContextOverflow("too long")


def refused(call: Call) -> str:
    raise Filtered("no")


FALLBACKS = {
    "no answer within the steps": LOOKING,
    "an empty answer": " t\nAction: Finish[]",
    "a full context": overflow,
    "a refused prompt": refused,
    "a filtered reply": lambda call: Choice("", "filter"),
    "hidden thoughts only": lambda call: Choice("", "length"),
}


@pytest.mark.parametrize("compat", ["default", "reference"])
@pytest.mark.parametrize("acting", FALLBACKS.values(), ids=FALLBACKS.keys())
async def test_where_react_gives_no_answer_the_chains_vote(acting: Any, compat: Any, tmp_path: Path) -> None:
    method = ReactThenCotSC(samples=3, compat=compat)
    row, model = await solve(
        tmp_path, method, by_prompt(acting, ["Answer: Bob", "Answer: Ada", "Answer: Ada"])
    )
    assert (row["status"], row["answer"], row["scores"]) == ("finished", "Ada", {"em": 1.0})
    assert row["votes"]["n_drawn"] == 3
    assert sum(call.n for call in model.calls if call.request.params.temperature == 0.7) == 3


async def test_where_react_answers_no_chain_is_drawn(tmp_path: Path) -> None:
    row, model = await solve(tmp_path, ReactThenCotSC(), by_prompt(" t\nAction: Finish[wrong]"))
    assert (row["status"], row["answer"], row["votes"]) == ("finished", "wrong", None)
    assert len(model.calls) == 1


async def test_where_the_chains_elect_nobody_either_the_row_says_how_react_ended(tmp_path: Path) -> None:
    row, model = await solve(tmp_path, ReactThenCotSC(), by_prompt(LOOKING, "who knows"))
    assert (row["status"], row["answer"]) == ("step_limit", None)
    assert sum(call.n for call in model.calls) == 3 + 21


SPLITS = [  # votes of the chains, "" for none; whether ReAct is asked
    ("a", False),
    ("", True),
    ("ab", False),  # 1 of 2 is half
    ("aab", False),
    ("abc", True),
    ("aa..", False),  # 2 of 4 is half, though two chains say nothing
    ("a...", True),
    ("aabb", False),
    ("aabc", False),
    ("abcd", True),
    ("aabbc", True),  # 2 of 5 is less than half
    ("aaabc", False),
    ("a" * 10 + "b" * 10 + ".", True),
    ("a" * 10 + "b" * 11, False),
    ("a" * 11 + "." * 10, False),
]


@pytest.mark.parametrize("votes, acts", SPLITS, ids=[votes or "none" for votes, _ in SPLITS])
async def test_react_answers_exactly_where_the_majority_is_below_half_of_the_chains(
    votes: str, acts: bool, tmp_path: Path
) -> None:
    chains = ["who knows" if vote == "." else f"Answer: {vote}" for vote in votes or "."]
    method = CotSCThenReact(samples=len(chains), until="all")
    row, model = await solve(tmp_path, method, by_prompt(" t\nAction: Finish[Ada]", chains))
    assert [call.request.params.temperature for call in model.calls].count(0.0) == acts
    leader = max("ab", key=votes.count)
    assert (row["status"], row["answer"]) == ("finished", "Ada" if acts else leader)
    assert row["votes"]["n_drawn"] == len(chains)


async def test_chains_that_do_not_agree_are_no_answer_where_react_has_none(tmp_path: Path) -> None:
    row, _ = await solve(
        tmp_path, CotSCThenReact(samples=3), by_prompt(LOOKING, ["Answer: Ada", "Answer: b", "c"])
    )
    assert (row["status"], row["answer"], row["scores"]) == ("step_limit", None, {"em": 0.0})
    assert row["n_steps"] == 3


@pytest.mark.parametrize("method", [ReactThenCotSC, CotSCThenReact])
async def test_a_hybrids_settings_reach_both_halves(method: Any, tmp_path: Path) -> None:
    settings = {"steps": 2, "samples": 3, "temperature": 0.4, "max_tokens": 11, "step_tokens": 12}
    _, model = await solve(tmp_path, method(**settings), by_prompt(LOOKING, "who knows"))
    greedy = [call for call in model.calls if call.request.params.temperature == 0.0]
    chains = [call for call in model.calls if call.request.params.temperature == 0.4]
    assert len(greedy) == 2
    assert sum(call.n for call in chains) == 3
    assert {call.request.params.max_tokens for call in greedy} == {12}
    assert {call.request.params.max_tokens for call in chains} == {11}


async def test_hybrids_cost_nothing_beside_their_halves(tmp_path: Path) -> None:
    """One greedy chain, 21 chains and one ReAct episode serve all five methods; each row counts what it used."""
    methods: dict[str, Method] = {
        kind.name: kind() for kind in (Cot, CotSC, React, ReactThenCotSC, CotSCThenReact)
    }  # fmt: skip
    chains = [f"Answer: {k}" for k in range(21)]
    rows, model = await play(tmp_path, methods, by_prompt(LOOKING, chains))
    assert sum(call.n for call in model.calls) == 1 + 21 + 3
    seen = [
        (call.scope, call.request.hash, i)
        for call in model.calls
        for i in range(call.first, call.first + call.n)
    ]
    assert len(seen) == len(set(seen))
    drawn = {row["method"]: sum(len(step["draws"]) for step in row["steps"]) for row in rows}
    assert drawn == {"cot": 1, "cot_sc": 21, "react": 3, "react_then_cot_sc": 24, "cot_sc_then_react": 24}


async def test_trials_share_no_draw(tmp_path: Path) -> None:
    rows, model = await play(tmp_path, CotSC(samples=4, until="all"), by_prompt("", "Answer: Ada"), trials=3)
    assert [row["trial"] for row in rows] == [0, 1, 2]
    assert sum(call.n for call in model.calls) == 12


@pytest.mark.parametrize("method", [React, Act])
@pytest.mark.parametrize(("end", "status", "steps"), [(False, "step_limit", 4), (True, "repeated", 2)])
async def test_the_same_action_with_the_same_outcome_is_noted_and_may_end_an_episode(
    method: Any, end: bool, status: str, steps: int, tmp_path: Path
) -> None:
    row, _ = await solve(
        tmp_path, method(steps=4, end_on_repeat=end), lambda call: "I look.\nAction 1: search[nothing]"
        if method is React else " search[nothing]"
    )  # fmt: skip
    assert (row["status"], row["n_steps"], row["flags"]) == (status, steps, ["repeats"])


async def test_looking_further_is_no_loop(tmp_path: Path) -> None:
    row, _ = await solve(
        tmp_path, Act(steps=4, end_on_repeat=True), lambda call: f" search[{len(str(call.request.prompt))}]"
    )
    assert "repeats" not in row["flags"]
