"""A run survives kill -9: nothing answered is asked again, and it ends as if nothing had happened."""

from tests import killing_often as often
from tests.killing import IN_FLIGHT, SMALL_INDEX, killed, undisturbed

TASKS = 20  # times three methods: 60 episodes


def test_trajectories_after_three_kills_equal_those_of_an_undisturbed_run(tmp_path):
    whole = undisturbed(tmp_path, TASKS)
    outcome = killed(tmp_path, TASKS, kills=3, seed=11)
    print(f"{outcome.kills} kills, {outcome.asked} requests, {outcome.twice} asked twice")
    assert outcome.kills == 3
    assert outcome.episodes == len(whole) == 3 * TASKS
    assert outcome.trajectories == whole
    assert outcome.unexplained == []
    assert outcome.twice <= outcome.cut_off <= outcome.kills * IN_FLIGHT


def test_a_run_killed_in_its_beginning_amid_calls_and_in_its_end_is_as_an_undisturbed_one(tmp_path):
    whole = often.undisturbed(tmp_path, 20, 10)
    outcome = often.killed(tmp_path, 20, 10, kills=4, seed=2, delay=0.02, ending=1, code=SMALL_INDEX)
    print(f"kills {outcome.kills}, {outcome.asked} requests, {outcome.twice} asked twice")
    assert list((tmp_path / "killed").glob("*/ledger.index")), "it was met, too"
    assert len(whole) == 20 and {row["status"] for row in whole} == {"finished"}
    assert sum(outcome.kills.values()) >= 3 and outcome.kills["calls"] > 0
    assert outcome.trajectories == whole
    assert outcome.unexplained == []
    assert outcome.twice <= outcome.cut_off <= sum(outcome.kills.values()) * 10
