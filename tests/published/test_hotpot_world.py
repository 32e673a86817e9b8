"""Real HotpotQA questions over real pages: what supports an answer can be reached by the actions of the world."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envs.hotpotqa import HotpotQA
from envs.snapshot import read_pages
from envs.wikipedia import NOTHING_MORE, WikiSession


def published(variable: str, name: str) -> Path:
    """A file named by its own variable, else below $OVERNIGHT_DATA."""
    path = Path(os.environ.get(variable) or Path(os.environ.get("OVERNIGHT_DATA", ""), name))
    if not path.is_file():
        pytest.skip(f"needs ${variable} or $OVERNIGHT_DATA/{name}")
    return path


def keyword(sentence: str, others: list[str]) -> str:
    """A piece of a sentence that a reader would look up: its longest word that few other sentences hold."""
    words = sorted(sentence.split(), key=lambda word: (sum(word in other for other in others), -len(word)))
    return words[0]


async def reach(session: WikiSession, title: str, sentence: str, others: list[str]) -> str:
    """How a scripted reader comes to see a sentence: by `search`, by `lookup`, or "" if it does not."""
    shown = (await session.step(f"search[{title}]")).text
    if shown.startswith("Could not find"):
        return ""
    if sentence in shown:
        return "search"
    wanted = keyword(sentence, others)
    while (shown := (await session.step(f"lookup[{wanted}]")).text) != NOTHING_MORE:
        if sentence in shown:
            return "lookup"
    return ""


async def test_every_supporting_sentence_that_the_pages_hold_is_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = published("OVERNIGHT_HOTPOT_CONTEXT", "hotpotqa/questions_with_context.jsonl")
    snapshot = published("OVERNIGHT_WIKI_SNAPSHOT", "wiki/hotpot_pages.jsonl.gz")
    pages = {row.title: [sentence.strip() for sentence in row.sentences] for row in read_pages(snapshot)}
    world = HotpotQA.model_validate({"data": questions, "source": str(snapshot)})
    await world.open(tmp_path)
    asked, answered, lost = 0, 0, []
    seen = {"search": 0, "lookup": 0}
    for task in world.tasks():
        if not task.metadata.get("gold_in_context"):
            continue
        asked += 1
        session = world.session(task)
        for title, place in task.metadata["supporting_facts"]:
            sentences = pages.get(title, [])
            if place >= len(sentences) or not sentences[place]:
                continue
            how = await reach(session, title, sentences[place], sentences)
            if how:
                seen[how] += 1
            else:
                lost.append((task.id, title, place))
        finished = await session.step(f"finish[{task.target}]")
        answered += int(finished.done and finished.reward == 1.0)
    await world.close()
    with capsys.disabled():
        print(
            f"\nHotpotQA world: {asked} questions over {len(pages)} pages; supporting sentences seen: "
            f"{seen['search']} by search, {seen['lookup']} by lookup, {len(lost)} not reached; "
            f"{answered} gold answers earn reward 1"
        )
    assert asked > 0
    assert lost == []
    assert answered == asked


async def test_titles_are_found_in_other_spellings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In small letters each title leads to a page of that name: its own, unless two differ in case only."""
    snapshot = published("OVERNIGHT_WIKI_SNAPSHOT", "wiki/hotpot_pages.jsonl.gz")
    world = HotpotQA.model_validate({"source": str(snapshot)})
    await world.open(tmp_path)
    titles = [row.title for row in read_pages(snapshot)][::17]
    task = next(world.tasks())
    found = 0
    for title in titles:
        session = world.session(task)
        await session.step(f"search[{title.lower()}]")
        found += session.page is not None and session.page.title.casefold() == title.casefold()
    await world.close()
    with capsys.disabled():
        print(f"\nHotpotQA world: {found} of {len(titles)} titles found in small letters")
    assert found >= 0.99 * len(titles)
