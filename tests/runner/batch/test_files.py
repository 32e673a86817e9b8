"""Waves as files: exported, answered by whatever eats them, imported, until the run is at its end."""

from __future__ import annotations

import orjson
import pytest

from runner import library
from runner.errors import JobError, RunError
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.testing import pure_answer
from runner.testing_batches import FakeAnthropicBatches, FakeOpenAIBatches, answers
from tests.batches import METHODS, Chains, a_job, ran, resumed, rows_of


async def by_files(job, server, tmp_path, shape, spoil=lambda wave, results: results):
    """Export, answer, import, until nothing is left; gives the run and the number of files."""
    run, written, waves = None, {None: 1}, 0
    while written:
        file = tmp_path / f"wave{waves}.jsonl"
        run, written = await library.export(
            run.path if run else job, file, shape=shape, outputs=tmp_path / "files"
        )
        if written:
            assert run.status == "waiting"
            results = tmp_path / "results.jsonl"
            results.write_bytes(spoil(waves, answers(file.read_bytes(), server, shape=shape)))
            await library.import_results(run.path, results)
            waves += 1
            assert waves < 20
    return run, waves


@pytest.mark.parametrize("shape", ["openai", "vllm", "mistral", "gemini", "anthropic"])
async def test_every_shape_makes_the_round_trip(shape, tmp_path):
    anthropic = shape == "anthropic"
    make = (lambda: FakeAnthropicBatches(Chains())) if anthropic else (lambda: FakeOpenAIBatches(pure_answer))
    async with make() as server:
        direct = await ran(
            a_job(server, "direct", methods=METHODS, limit=2, model={"in_flight": 1}), tmp_path / "d"
        )
    async with make() as server:
        run, waves = await by_files(a_job(server, methods=METHODS, limit=2), server, tmp_path, shape)
        assert not [request for request in server.requests if request.path.endswith(("/batches", "/files"))]
    assert run.status == "finished"
    assert rows_of(run) == rows_of(direct)
    assert waves == max(row["n_steps"] for row in direct.trajectories if row["method"] == "react")


async def test_a_file_that_breaks_off_gives_what_it_has_and_the_rest_is_in_the_next(tmp_path):
    def spoil(wave, results):
        return results[: len(results) // 2] if wave == 0 else results

    async with FakeOpenAIBatches(pure_answer) as server:
        job = a_job(server, methods=CotSC(samples=5, until="all"), limit=3)
        run, waves = await by_files(job, server, tmp_path, "vllm", spoil)
    assert (run.status, waves) == ("finished", 2)
    assert run.manifest["totals"]["calls"] == 3 * 2


async def test_what_is_refused_for_good_fails_its_episode_and_ends(tmp_path):
    def script(body, k):
        if k == 0:
            return 400, {}, b'{"error": {"message": "no", "type": "invalid_request_error"}}'
        return pure_answer(body, k)

    async with FakeOpenAIBatches(script) as server:
        run, waves = await by_files(a_job(server, limit=3), server, tmp_path, "vllm")
    assert waves == 1
    assert sorted(row["status"] for row in run.trajectories) == ["error", "finished", "finished"]


async def test_an_export_that_was_not_imported_is_written_again_and_both_can_be_read(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        job = a_job(server, limit=2)
        run, first = await library.export(job, tmp_path / "a.jsonl", outputs=tmp_path / "files")
        run, second = await library.export(run.path, tmp_path / "b.jsonl")
        assert list(first.values()) == list(second.values())
        results = tmp_path / "results.jsonl"
        results.write_bytes(answers((tmp_path / "a.jsonl").read_bytes(), server))
        found = await library.import_results(run.path, results)
        assert (found.kept, found.again, found.missing) == (4, 0, 0)
        results.write_bytes(answers((tmp_path / "b.jsonl").read_bytes(), server))
        assert (await library.import_results(run.path, results)).again == 4
        run = await resumed(job, run)  # nothing is left to ask
    assert run.status == "finished" and not server.batches


async def test_a_file_of_another_run_is_refused(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        run, _ = await library.export(a_job(server), tmp_path / "a.jsonl", outputs=tmp_path / "files")
    other = tmp_path / "other.jsonl"
    other.write_bytes(orjson.dumps({"custom_id": "q1", "response": {"status_code": 200, "body": {}}}))
    with pytest.raises(RunError, match=r"other\.jsonl: no line of it answers a request of this run"):
        await library.import_results(run.path, other)


async def test_a_shape_that_a_provider_lacks_is_refused_before_a_folder_is_made(tmp_path):
    async with FakeAnthropicBatches(Chains()) as server:
        with pytest.raises(JobError, match="the shape anthropic, not gemini"):
            await library.export(
                a_job(server), tmp_path / "a.jsonl", shape="gemini", outputs=tmp_path / "files"
            )
    assert not (tmp_path / "files").exists()


async def test_each_file_of_an_export_has_a_name_of_its_own(tmp_path):
    async with FakeOpenAIBatches(pure_answer) as server:
        job = a_job(server, limit=7, model={"batch": {"requests": 2}, "max_n": 5})
        run, written = await library.export(job, tmp_path / "wave.jsonl", outputs=tmp_path / "files")
        names = ["wave.jsonl", "wave-policy.jsonl", "wave-policy-2.jsonl", "wave-policy-3.jsonl"]
        assert [(path.name, n) for path, n in written.items()] == list(zip(names, (2, 2, 2, 1), strict=True))
        results = tmp_path / "results.jsonl"
        results.write_bytes(b"".join(answers(path.read_bytes(), server) for path in written))
        given = await library.import_results(run.path, results)
        assert (given.kept, given.missing) == (7, 0)


@pytest.mark.parametrize("shape", ["openai", "mistral", "gemini", "anthropic"])
async def test_the_requests_themselves_are_no_results_and_count_as_no_try(shape, tmp_path):
    async with (
        FakeAnthropicBatches(Chains()) if shape == "anthropic" else FakeOpenAIBatches(pure_answer) as server
    ):
        wave = tmp_path / "wave.jsonl"
        run, _ = await library.export(a_job(server, limit=2), wave, shape=shape, outputs=tmp_path / "files")
        before = (run.path / "batches.jsonl").read_bytes()
        with pytest.raises(RunError, match="no line of it answers a request"):
            await library.import_results(run.path, wave)
        assert (run.path / "batches.jsonl").read_bytes() == before


async def test_counts_that_gemini_leaves_out_or_gives_as_null_are_none(tmp_path):
    def spoil(wave, results):
        rows = [orjson.loads(line) for line in results.splitlines()]
        for row in rows:
            row["response"]["usageMetadata"] |= {"candidatesTokenCount": None, "thoughtsTokenCount": None}
        return b"".join(orjson.dumps(row) + b"\n" for row in rows)

    async with FakeOpenAIBatches(pure_answer) as server:
        run, _ = await by_files(a_job(server, limit=2), server, tmp_path, "gemini", spoil)
    assert run.status == "finished"
    assert {row["status"] for row in run.trajectories} == {"finished"}


async def test_a_batch_that_is_out_is_in_no_file_and_stays_where_it_is(tmp_path):
    """Its draws are under way: an export asks for them again no more than it looks for them."""
    async with FakeOpenAIBatches(pure_answer, looks=10**9) as server:
        job = a_job(server, methods=React(), limit=3)
        run = await ran(job, tmp_path / "runs", wait=False)
        assert run.status == "waiting" and len(server.batches) == 1
        run, written = await library.export(run.path, tmp_path / "wave.jsonl")
        assert (run.status, written) == ("waiting", {})
        assert [batch["stage"] for batch in run.manifest["batches"]] == ["submitted"]
        server.looks = 1
        run = await resumed(job, run)
    assert run.status == "finished" and set(server.asked.values()) == {1}
