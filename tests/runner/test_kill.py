"""A run survives kill -9: nothing answered is asked again, and it ends as if nothing had happened."""

from tests.killing import IN_FLIGHT, killed, undisturbed

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
