"""A page that changes on a live wiki between a run and its resume: what was read is read from the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.hotpotqa import HotpotQA
from envs.testing import MediaWikiServer
from runner import library
from runner.errors import EpisodeFailed
from runner.job import Job
from runner.methods.react import React
from runner.models.base import Call
from runner.models.scripted import Script, scripted

OLD = "Oslo is a city. It has old trams. It has old ferries. It has a fjord. It is cold. Its trams are blue."
NEW = "Oslo is a town. It has new trams. It has new ferries. It has no fjord. It is warm. Its trams are red."


def job(wiki: MediaWikiServer, script: Script) -> Job:
    world = HotpotQA(source="wikipedia", api=wiki.url, contact="me@example.org", pace=10_000)
    return Job.of(world, React(), scripted(script), limit=1)


def step_of(call: Call) -> int:
    return int(call.request.prompt.rsplit("Thought ", 1)[1].split(":")[0])


async def test_a_resumed_episode_reads_on_in_the_page_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_at_step_3(call: Call) -> str:
        step = step_of(call)
        if step == 3:
            raise EpisodeFailed("the first process ends here")
        return f" I look.\nAction {step}: {['Search[Oslo]', 'Lookup[trams]'][step - 1]}"

    def goes_on(call: Call) -> str:
        step = step_of(call)
        asked.append(step)
        action = {3: "Lookup[trams]", 4: "Lookup[ferries]", 5: "Search[Bergen]", 6: "Finish[blue]"}[step]
        return f" I look on.\nAction {step}: {action}"

    asked: list[int] = []
    async with MediaWikiServer({"Oslo": OLD, "Bergen": "Bergen is wet."}) as wiki:
        monkeypatch.setenv("OVERNIGHT_CACHE", str(tmp_path / "cache"))
        found = await library.run(job(wiki, fails_at_step_3), outputs=tmp_path / "out", progress=False)
        (row,) = found.trajectories
        assert (row["status"], row["error"]["message"]) == ("error", "the first process ends here")
        assert [request.parameters["titles"] for request in wiki.requests] == ["Oslo"]

        wiki.pages["Oslo"] = NEW
        wiki.requests.clear()
        monkeypatch.setenv("OVERNIGHT_CACHE", str(tmp_path / "another cache"))
        found = await library.resume(found.path, job=job(wiki, goes_on), progress=False)

    (row,) = found.trajectories
    assert (row["status"], row["answer"]) == ("finished", "blue")
    seen = [step["observation"] for step in row["steps"]]
    assert seen[:5] == [
        "Oslo is a city. It has old trams. It has old ferries. It has a fjord. It is cold.",
        "(Result 1 / 2) It has old trams.",
        "(Result 2 / 2) Its trams are blue.",  # the second hit, and beyond what the observation showed
        "(Result 1 / 1) It has old ferries.",
        "Bergen is wet.",
    ]
    assert asked == [3, 4, 5, 6]
    assert [request.parameters["titles"] for request in wiki.requests] == ["Bergen"]


async def test_another_run_with_an_empty_cache_reads_the_page_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above would see if the ledger were not read."""
    model = scripted([" I look.\nAction 1: Search[Oslo]"])
    async with MediaWikiServer({"Oslo": OLD}) as wiki:
        for cache, text, times in (("a", OLD, 1), ("a", NEW, 1), ("b", NEW, 2)):
            wiki.pages["Oslo"] = text
            monkeypatch.setenv("OVERNIGHT_CACHE", str(tmp_path / cache))
            world = job(wiki, lambda call: "").worlds["hotpotqa"]
            found = await library.run(
                Job.of(world, React(steps=1), model, limit=1), outputs=tmp_path / "out", progress=False
            )
            (row,) = found.trajectories
            assert len(wiki.requests) == times
            assert row["steps"][0]["observation"].startswith(
                "Oslo is a town" if cache == "b" else "Oslo is a city"
            )
