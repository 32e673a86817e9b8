"""The measurements beside other runners count right; how fast anything is, no test judges."""

import argparse
import json
import sys

import pytest

from tests.benchmarks.peers import __main__ as command
from tests.benchmarks.peers.environments import DONE, PEERS, lacking
from tests.benchmarks.peers.measuring import Ran, child, run
from tests.benchmarks.peers.tables import beside_ours, row, text


def ran(cpu, wall, rss_mb=50.0, written=100, requests=800, connections=40, **more):
    seen = {"requests": requests, "most_in_flight": connections - 3, "connections": connections, "cpu": 0.1}
    return Ran(cpu, wall, rss_mb, written, seen=seen, **more)


def test_a_row_is_net_of_start_up_and_takes_the_best_of_the_runs():
    alone = [ran(1.5, 4.0), ran(1.0, 2.6)]
    found = row("x", alone, [ran(1.792, 5.0, 60.4), ran(9.0, 4.6, 70.0, connections=41)], 100, 8, 0.2)
    assert found == {
        "peer": "x",
        "cpu_us_per_call": 1000.0,  # 1.792 - 1.0 s of 99 samples with 8 calls each
        "calls_per_s": 222.2,  # 800 calls in 4.6 s less a start-up of 2.6 - 8 x 0.2 s
        "wall_s": 4.6,
        "rss_mb": 60,
        "in_flight": 37,
        "connections": 40,
        "startup_cpu_s": 1.0,
        "startup_wall_s": 1.0,
        "server_cpu_s": 0.1,
        "runs": 2,
    }


def test_a_row_says_what_went_wrong():
    short = row("x", [ran(1, 1)], [ran(2, 9, written=98, requests=803, errors=2)], 100, 8, 0.1)
    assert short["note"] == "2 errors, 2 samples not written, 3 calls too many"
    assert row("x", [ran(1, 1)], [ran(2, 9, requests=790)], 100, 8, 0.1)["note"] == "10 calls too few"
    failed = row("x", [ran(1, 1)], [ran(2, 9), ran(2, 9, failed="exit code 3: no")], 100, 8, 0.1)
    assert failed == {"peer": "x", "note": "exit code 3: no"}


def test_no_figure_is_made_of_a_start_up_that_took_longer_than_all_samples():
    found = row("x", [ran(1.0, 2.0)], [ran(0.9, 1.5)], 100, 8, 0.0)
    assert found["cpu_us_per_call"] is None and found["calls_per_s"] is None


def test_rows_are_held_to_ours_and_printed():
    rows = beside_ours(
        [
            {"peer": "overnight", "cpu_us_per_call": 200.0},
            {"peer": "slow", "cpu_us_per_call": 3000.0},
            {"peer": "broken", "note": "exit code 1"},
        ]
    )
    assert [each.get("ratio_to_ours") for each in rows] == [1.0, 15.0, None]
    assert text(
        rows, {"peer": "peer", "cpu_us_per_call": "us", "ratio_to_ours": "times", "x": "none has it"}
    ) == (
        "| peer      | us      | times |\n"
        "| --------- | ------- | ----- |\n"
        "| overnight | 200.0   | 1.0   |\n"
        "| slow      | 3,000.0 | 15.0  |\n"
        "| broken    |         |       |\n"
    )


def test_a_peer_that_is_not_installed_is_skipped_with_a_word(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "run", lambda peer, *_, **__: ran(1.0, 1.0, written=5, requests=5))
    given = argparse.Namespace(
        peers=["curator"], environments=tmp_path, steps=False, samples=5, in_flight=5, latency=0.0, runs=1
    )
    (found,) = command.compared(given)
    assert [each["peer"] for each in found["rows"]] == ["overnight", "bare pyreqwest"]
    assert "curator is skipped: not installed; `--install` makes it" in capsys.readouterr().err
    assert list(found["skipped"]) == ["curator"]


def test_an_environment_counts_only_with_the_versions_that_are_pinned(tmp_path):
    peer = PEERS["curator"]
    (tmp_path / peer.environment).mkdir()
    done = tmp_path / peer.environment / DONE
    done.write_text("bespokelabs-curator==0.1.20\n")
    assert lacking(peer, tmp_path).startswith("installed as bespokelabs-curator==0.1.20, wanted as")
    done.write_text("\n".join(peer.packages) + "\n")
    assert not lacking(peer, tmp_path)
    assert all("==" in package for each in PEERS.values() for package in each.packages)


@pytest.mark.parametrize("name", ["overnight", "bare pyreqwest"])
@pytest.mark.parametrize("steps", [False, True])
def test_ours_and_the_bare_loop_go_through(tmp_path, name, steps):
    found = run(PEERS[name], tmp_path, 20, 10, 0.01, steps=steps)
    assert (found.failed, found.written, found.errors) == ("", 20, 0)
    assert found.seen["requests"] == 20 * (8 if steps else 1)
    assert found.seen["most_in_flight"] <= found.seen["connections"] <= 10
    assert found.cpu > 0 and found.rss_mb > 10


def test_a_run_that_fails_says_how(tmp_path):
    def said(code, **more):
        return child([sys.executable, "-c", code], tmp_path, {}, **more)["failed"]

    assert said("import sys; sys.exit('no such model')") == "exit code 1: no such model"
    assert said("print('hello')") == "said no figures: hello"
    assert said("import time; time.sleep(50)", at_most=0.01) == "not done within 0.01 s"


def test_a_part_of_the_figures_is_written_beside_the_others(tmp_path):
    path = tmp_path / "figures.json"
    command.write(path, "peers", {"rows": [1]})
    command.write(path, "scaling", {"rows": [2]})
    command.write(path, "peers", {"rows": [3]})
    assert json.loads(path.read_text()) == {"peers": {"rows": [3]}, "scaling": {"rows": [2]}}
