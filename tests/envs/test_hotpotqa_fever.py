"""The two worlds of the ReAct paper that read an encyclopedia: their files, answers, scores and prompts."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from envs.base import DataError, Task, World, WorldError
from envs.encyclopedia.__main__ import EXEMPLARS, replay
from envs.fever import Fever
from envs.hotpotqa import HotpotQA, WikiWorld
from envs.testing import MediaWikiServer

OFFICIAL = {
    "_id": "5a8b57f25542995d1e6f1371",
    "question": "Is A older than B?",
    "answer": "yes",
    "type": "comparison",
    "level": "hard",
    "supporting_facts": [["A", 0], ["B", 0]],
    "context": [["A", ["A is old."]], ["B", ["B is new."]]],
}
CLAIM = {"id": 91198, "claim": "A is old.", "label": "SUPPORTS", "verifiable": "VERIFIABLE", "evidence": []}


def hotpotqa(**settings: Any) -> HotpotQA:
    return HotpotQA.model_validate(settings)


def fever(**settings: Any) -> Fever:
    return Fever.model_validate(settings)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def data(name: str) -> Path:
    folder = os.environ.get("OVERNIGHT_DATA")
    if not folder or not Path(folder, name).is_file():
        pytest.skip(f"needs $OVERNIGHT_DATA/{name}")
    return Path(folder, name)


def question(target: str) -> Task:
    return Task("q", "What?", target)


# -- tasks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [hotpotqa(), fever()])
def test_without_data_the_embedded_set_is_used(world: World) -> None:
    tasks = list(world.tasks())
    assert len(tasks) > 20
    assert len({task.id for task in tasks}) == len(tasks)
    assert [task.metadata["row"] for task in tasks] == list(range(len(tasks)))
    for task in tasks:
        assert world.score(task, str(task.target))["em"] == 1.0


def test_official_rows_keep_their_id_and_facts_and_leave_the_paragraphs(tmp_path: Path) -> None:
    file = tmp_path / "hotpot_dev_distractor_v1.json"
    file.write_text(json.dumps([OFFICIAL, OFFICIAL | {"_id": "b"}], indent=1))
    first, second = hotpotqa(data=file, split="dev").tasks()
    assert first == Task(
        "5a8b57f25542995d1e6f1371",
        "Is A older than B?",
        "yes",
        "dev",
        {"type": "comparison", "level": "hard", "supporting_facts": [["A", 0], ["B", 0]], "row": 0},
    )
    assert (second.id, second.metadata["row"]) == ("b", 1)


def test_rows_without_id_are_named_by_their_place(tmp_path: Path) -> None:
    file = tmp_path / "simple.json"
    file.write_text(json.dumps([{"question": "Q", "answer": a, "type": "bridge"} for a in "xy"]))
    assert [task.id for task in hotpotqa(data=file).tasks()] == ["hotpot-0", "hotpot-1"]


def test_fever_ids_are_those_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "claims.jsonl", CLAIM, CLAIM | {"id": "own"}, {"claim": "C", "label": "REFUTES"})
    assert [task.id for task in fever(data=file).tasks()] == ["fever-91198", "own", "fever-row-2"]


@pytest.mark.parametrize("zipped", [False, True])
def test_byte_order_marks_crlf_and_gzip_are_no_trouble(tmp_path: Path, zipped: bool) -> None:
    content = b"\xef\xbb\xbf" + b"\r\n".join(json.dumps(CLAIM | {"id": k}).encode() for k in (1, 2)) + b"\r\n"
    file = tmp_path / ("claims.jsonl.gz" if zipped else "claims.jsonl")
    file.write_bytes(gzip.compress(content) if zipped else content)
    assert [task.id for task in fever(data=file).tasks()] == ["fever-1", "fever-2"]


HOTPOT_LINE = json.dumps(OFFICIAL)


@pytest.mark.parametrize(
    ("world", "lines", "words"),
    [
        (HotpotQA, '{"question": "Q"}', ["row 1", "'answer'", "missing"]),
        (HotpotQA, '{"answer": "A"}', ["row 1", "'question'", "missing"]),
        (HotpotQA, '{"question": "Q", "answer": NaN}', ["1", "'answer'"]),
        (HotpotQA, '{"question": "Q", "answer": null}', ["row 1", "'answer'"]),
        (HotpotQA, '{"question": " ", "answer": "A"}', ["row 1", "'question'"]),
        (HotpotQA, '{"question": "Q", "answer": "A", "level": NaN}', ["1", "'level'"]),
        (HotpotQA, '{"question": "Q", "answer": "A", "id": true}', ["row 1", "'id'"]),
        (HotpotQA, f"{HOTPOT_LINE}\n[1]", ["2"]),
        (HotpotQA, f"{HOTPOT_LINE}\n{{", ["2"]),
        (HotpotQA, f"{HOTPOT_LINE}\n{HOTPOT_LINE}", ["rows 1 and 2", "5a8b57f25542995d1e6f1371"]),
        (HotpotQA, "", ["no rows"]),
        (Fever, '{"id": 1, "claim": "C"}', ["row 1", "'label'"]),
        (Fever, '{"id": 1, "claim": "C", "label": "TRUE"}', ["row 1", "'label'", "TRUE", "NOT ENOUGH INFO"]),
        (Fever, '{"id": 1.5, "claim": "C", "label": "REFUTES"}', ["row 1", "'id'"]),
        (Fever, json.dumps(CLAIM) + "\n" + json.dumps(CLAIM), ["rows 1 and 2", "fever-91198"]),
    ],
)
def test_a_bad_row_is_named_by_file_row_and_field(
    tmp_path: Path, world: type[WikiWorld], lines: str, words: list[str]
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(lines)
    with pytest.raises(DataError) as caught:
        list(world.model_validate({"data": file}).tasks())
    for word in [str(file), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("path", ["missing.jsonl", ".", "a\0b", "x" * 300])
def test_impossible_paths_are_data_errors(tmp_path: Path, path: str) -> None:
    with pytest.raises(DataError):
        list(hotpotqa(data=tmp_path / path).tasks())


def test_all_public_questions_and_claims_are_read() -> None:
    questions = list(hotpotqa(data=data("hotpotqa/hotpot_dev_v1_simplified.json")).tasks())
    claims = list(fever(data=data("fever/paper_dev.jsonl")).tasks())
    assert (len(questions), len(claims)) == (7405, 9999)
    world, judge = hotpotqa(), fever()
    for task in questions:
        assert world.score(task, task.target) == {"em": 1.0, "f1": 1.0, "em_lenient": 1.0}
    assert all(judge.score(task, task.target) == {"em": 1.0} for task in claims)
    chosen = list(range(7405))
    random.Random(233).shuffle(chosen)
    labels = [claims[row].target for row in chosen[:500]]
    assert [labels.count(label) for label in ("NOT ENOUGH INFO", "SUPPORTS", "REFUTES")] == [179, 168, 153]


def test_questions_with_contexts_are_read() -> None:
    tasks = list(hotpotqa(data=data("hotpotqa/questions_with_context.jsonl")).tasks())
    assert len(tasks) == 1793
    assert all(task.metadata["supporting_facts"] for task in tasks)


# -- answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Answer: Oslo", "Oslo"),
        (" Let's think. Not Answer: A.\nAnswer: the city of Oslo \nmore", "the city of Oslo"),
        ("So.\nAnswer: Oslo\n\nQuestion: Next?\nThought: x\nAnswer: Rome", "Oslo"),
        ("**Answer:** Oslo", "Oslo"),
        ("Answer:\n Oslo", "Oslo"),
        ("answer : Oslo", "Oslo"),
        ("Let's think step by step. It is", None),
        ("Answer:", None),
        ("Answer:  \n", None),
        ("", None),
    ],
)
def test_the_answer_is_the_first_line_after_the_last_marker(reply: str, answer: str | None) -> None:
    assert hotpotqa().extract(question("x"), reply) == answer


def test_votes_for_one_answer_may_be_spelt_in_many_ways() -> None:
    world, task = hotpotqa(), question("x")
    assert world.canonical(task, "The Beatles!") == world.canonical(task, "beatles") == "beatles"
    assert world.canonical(task, "the") is None
    assert world.canonical(task, None) is None


def test_scores_of_questions() -> None:
    world = hotpotqa()
    assert world.score(question("Chief of Protocol"), "the chief of protocol.") == {
        "em": 1.0,
        "f1": 1.0,
        "em_lenient": 1.0,
    }
    assert world.score(question("a record of 13–3"), "record of 13-3")["em"] == 0.0
    assert world.score(question("a record of 13–3"), "record of 13-3")["em_lenient"] == 1.0
    assert world.score(question("yes"), "yes it is")["f1"] == 0.0
    assert world.score(question("Oslo city"), "Oslo")["f1"] == pytest.approx(2 / 3)
    assert world.score(question("x"), None) == {"em": 0.0, "f1": 0.0, "em_lenient": 0.0}


@pytest.mark.parametrize("gold", ["The The", "!!!"])
def test_no_answer_never_matches_save_as_the_reference_has_it(gold: str) -> None:
    assert hotpotqa().score(question(gold), "")["em"] == 0.0
    assert hotpotqa(compat="reference").score(question(gold), "")["em"] == 1.0
    assert hotpotqa(compat="reference").score(question(gold), None)["em"] == 0.0


@pytest.mark.parametrize(
    ("answer", "ours", "theirs"),
    [
        ("NOT ENOUGH INFO", 1.0, 1.0),
        ("not enough info.", 1.0, 1.0),
        ("NOT ENOUGH INFORMATION", 1.0, 0.0),
        ("SUPPORTS", 0.0, 0.0),
        ("", 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_scores_of_claims(answer: str | None, ours: float, theirs: float) -> None:
    task = question("NOT ENOUGH INFO")
    assert fever().score(task, answer) == {"em": ours}
    assert fever(compat="reference").score(task, answer) == {"em": theirs}


def test_claims_are_answered_by_label_and_in_reference_mode_as_written() -> None:
    task, reply = question("REFUTES"), "Thought: so.\nAnswer: It is REFUTED."
    assert fever().extract(task, reply) == "REFUTES"
    assert fever(compat="reference").extract(task, reply) == "It is REFUTED."
    assert fever().extract(task, "Answer: maybe") is None
    assert fever().extract(task, "Answer: SUPPORTS\n\nClaim: next\nAnswer: REFUTES") == "SUPPORTS"
    assert fever().canonical(task, "refuted") == "REFUTES"
    assert fever(compat="reference").canonical(task, "Refuted!") == "refuted"
    assert fever(compat="reference").canonical(task, "") is None


# -- prompts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [hotpotqa(), fever()])
def test_acting_instructions_name_the_three_actions(world: World) -> None:
    for style in ("react", "act"):
        for action in ("Search[", "Lookup[", "Finish["):
            assert action in world.instruction(style)
    for style in ("standard", "cot"):
        assert "Search[" not in world.instruction(style)
        assert world.instruction(style).endswith("\n")


@pytest.mark.parametrize("style", ["standard", "cot", "act", "react"])
def test_instructions_for_claims_name_the_labels_exactly(style: str) -> None:
    for label in ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO"):
        assert label in fever().instruction(style)
    assert "INFORMATION" not in fever().instruction(style)


def test_worlds_introduce_their_tasks() -> None:
    assert hotpotqa().introduce(question("x")) == "Question: What?"
    assert fever().introduce(question("x")) == "Claim: What?"
    assert (hotpotqa().steps, fever().steps) == (7, 5)


@pytest.mark.parametrize(("world", "count"), [(hotpotqa(), 6), (fever(), 3)])
def test_worked_examples_finish_with_their_answer_which_scores(world: World, count: int) -> None:
    examples = world.exemplars()
    assert len(examples) == count
    for example in examples:
        assert example.reasoning
        *middle, (_, last, shown) = example.steps
        assert last == f"Finish[{example.answer}]"
        assert shown == ""
        assert middle
        assert all(thought and action and observation for thought, action, observation in middle)


@pytest.mark.parametrize("file", EXEMPLARS, ids=lambda file: file.name)
async def test_worked_examples_show_what_the_encyclopedia_says_today(file: Path) -> None:
    """After a change of the articles or the searching: `python -m envs.encyclopedia`."""
    exemplars = json.loads(file.read_text(encoding="utf-8"))
    assert [exemplar["observations"] for exemplar in exemplars] == await replay(exemplars)


# -- sources -------------------------------------------------------------------------------------------


async def test_a_question_is_answered_in_the_embedded_encyclopedia(tmp_path: Path) -> None:
    world = hotpotqa()
    await world.open(tmp_path)
    task = next(world.tasks())
    reader = world.session(task)
    title, _ = task.metadata["supporting"][0]
    assert title.split()[0] in (await reader.step(f"search[{title}]")).text
    finished = await reader.step(f"finish[{task.target}]")
    assert (finished.reward, finished.text) == (1.0, "Episode finished, reward = 1")
    assert reader.answer == task.target
    await world.close()


async def test_every_embedded_question_and_claim_can_be_answered_from_its_pages(tmp_path: Path) -> None:
    """Each supporting sentence is shown by a search, or found by looking up its last words."""
    for world, facts in ((hotpotqa(), "supporting"), (fever(), "evidence")):
        await world.open(tmp_path)
        for task in world.tasks():
            for title, place in task.metadata[facts]:
                reader = world.session(task)
                shown = (await reader.step(f"search[{title}]")).text
                assert not shown.startswith("Could not find"), (task.id, title)
                assert reader.page is not None
                assert reader.page.title == title
                assert reader.page.sentences is not None
                sentence = reader.page.sentences[place]
                assert sentence in shown or sentence in (await reader.step(f"lookup[{sentence}]")).text
        await world.close()


async def test_a_snapshot_is_named_by_its_path(tmp_path: Path) -> None:
    pages = write(tmp_path / "pages.jsonl", ["Oslo", ["Oslo is a city."]])
    world = fever(source=str(pages))
    await world.open(tmp_path / "cache")
    assert (await world.session(question("SUPPORTS")).step("search[oslo]")).text == "Oslo is a city."
    await world.close()
    with pytest.raises(WorldError, match="not open"):
        world.session(question("SUPPORTS"))


def test_the_version_of_a_source_changes_with_its_pages(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", ["Oslo", ["Oslo is a city."]])
    two = write(tmp_path / "two.jsonl", ["Oslo", ["Oslo is a town."]])
    versions = {
        world.source_version for world in (hotpotqa(), hotpotqa(source=str(one)), fever(source=str(two)))
    }
    assert len(versions) == 3
    assert hotpotqa().source_version == fever().source_version
    assert hotpotqa(source="wikipedia").source_version == "live"


async def test_a_live_wiki_is_asked_at_the_given_address(tmp_path: Path) -> None:
    async with MediaWikiServer({"Oslo": "Oslo is a city."}) as wiki:
        world = hotpotqa(source="wikipedia", api=wiki.url, contact="me@example.org")
        await world.open(tmp_path)
        assert (await world.session(question("x")).step("search[Oslo]")).text == "Oslo is a city."
        await world.close()


async def test_wikipedia_without_a_contact_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="`contact`"):
        await hotpotqa(source="wikipedia").open(tmp_path)


@pytest.mark.parametrize("source", ["Wikipedia", "no-such-file.jsonl", "a\0b", "x" * 300])
async def test_a_source_that_is_nothing_is_refused_with_what_there_is(tmp_path: Path, source: str) -> None:
    with pytest.raises(DataError, match="encyclopedia, wikipedia or"):
        await hotpotqa(source=source).open(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"compat": "exact"}, {"sourc": "x"}, {"source": " "}, {"pace": 0}, {"data": 5}]
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        hotpotqa(**settings)


async def test_the_reference_mode_reaches_the_sessions(tmp_path: Path) -> None:
    pages = write(tmp_path / "pages.jsonl", ["Oslo", ["Oslo is a city."]])
    world = fever(source=str(pages), compat="reference")
    await world.open(tmp_path)
    reader = world.session(question("NOT ENOUGH INFO"))
    assert (await reader.step("search[Oslo]")).text == "Oslo is a city.."
    assert (await reader.step("finish[NOT ENOUGH INFORMATION]")).reward == 0.0
    await world.close()
