"""ALFWorld without its engine: households, goals, examples, and games of every source."""

from __future__ import annotations

import gzip
import itertools
import json

import pytest
from pydantic import ValidationError

from envs.alfworld import logic
from envs.alfworld.examples import EACH, STYLES, embedded, shots
from envs.alfworld.games import VARIABLE
from envs.alfworld.goals import BY_SHORT, KINDS, Goal, kind_of, parse_goal
from envs.alfworld.households import PLANS, household, layout
from envs.alfworld.logic import GOAL, split_goal, wording_of
from envs.alfworld.problem import problem
from envs.alfworld.seeker import VOICES, answer, seek
from envs.alfworld.session import AlfworldSession, in_wording, shown, without_banner
from envs.alfworld.world import Alfworld
from envs.base import DataError, Observation, Outcome, Session, Task, WorldError

SPLITS = tuple(PLANS)
FIRST = (
    "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 2, a drawer 1, "
    "and a sidetable 1.\nYour task is to: put a pen in sidetable."
)


# -- households ----------------------------------------------------------------------------------------
def test_a_household_is_the_same_always_and_others_are_others():
    assert household(233, "unseen", 7) == household(233, "unseen", 7)
    many = [household(seed, split, k) for seed in (1, 2) for split in SPLITS for k in range(30)]
    assert len({each.id for each in many}) == len({problem(each) + each.text for each in many}) == len(many)
    assert household(233, "train", 0).id == (
        "pick_and_place_simple-Potato-None-Microwave-kitchen5/train_s233_0000"  # ids outlive releases
    )


def test_the_kinds_take_turns_and_unseen_rooms_are_in_no_other_split():
    rooms = {}
    for split in SPLITS:
        made = [household(5, split, k) for k in range(120)]
        assert [each.kind for each in made[:6]] == list(KINDS)
        assert {each.kind: sum(other.kind == each.kind for other in made) for each in made} == dict.fromkeys(
            KINDS, 20
        )
        rooms[split] = {(each.room, each.plan) for each in made}
        assert all(each.receptacles == layout(5, each.room, each.plan) for each in made)
    assert not rooms["unseen"] & (rooms["train"] | rooms["seen"])
    assert rooms["seen"] & rooms["train"]


@pytest.mark.parametrize("split", SPLITS)
def test_nothing_is_done_before_it_is_done_and_everything_that_is_needed_is_there(split):
    for k in range(120):
        of = household(11, split, k)
        there = {each.kind for each in of.receptacles}
        names = [item.name for item in of.items] + [each.name for each in of.receptacles]
        assert len(set(names)) == len(names)
        assert len(of.wanted) == (2 if of.kind.short == "puttwo" else 1)
        assert all(item.at.kind != of.target for item in of.items if item.kind == of.wanted[0].kind)
        assert of.target in there if of.target else any(item.kind == of.tool for item in of.items)
        goal = parse_goal(of.text)
        assert goal == Goal(of.kind, of.wanted[0].kind.lower(), of.target.lower(), of.tool.lower())


def test_a_walkthrough_opens_what_is_closed_and_ends_with_what_the_task_asks_for():
    for k in range(60):
        of = household(3, "train", k)
        put, move = of.walkthrough("put"), of.walkthrough("move")
        assert [in_wording(action, "move") for action in put] == move
        opened = {action.removeprefix("open ") for action in put if action.startswith("open ")}
        assert {item.at.name for item in of.wanted if item.at.openable} <= opened
        verbs = [action.split(" ")[0] for action in put]
        assert verbs[-1] == ("use" if of.kind.short == "examine" else "put")
        assert verbs.count(of.kind.treatment) == bool(of.kind.treatment)
        assert verbs.count("put") == {"examine": 0, "puttwo": 2}.get(of.kind.short, 1)


# -- goals ---------------------------------------------------------------------------------------------
def test_goals_are_read_as_they_are_written():
    for kind in KINDS:
        lit = kind.short == "examine"
        goal = Goal(kind, "mug", "" if lit else "coffeemachine", "desklamp" if lit else "")
        for form in range(len(kind.forms)):
            assert parse_goal(goal.text(form)) == goal
    assert parse_goal("Put the washed lettuce onto the table.") is None
    assert kind_of("pick_two_obj_and_place-CD-None-Safe-308/trial_1") is BY_SHORT["puttwo"]
    assert kind_of("stack_things") is None


# -- what a model sees ---------------------------------------------------------------------------------
def test_the_banner_and_the_place_of_arrival_are_left_out():
    assert without_banner(f"-= Welcome =-\n\n{FIRST.replace(chr(10), chr(10) * 2)}") == FIRST
    assert shown("You arrive at loc 24. On the desk 2, you see a cd 1.") == "On the desk 2, you see a cd 1."
    assert shown("You arrive at desk 2. On the desk 2, you see a cd 1.").startswith("You arrive")
    assert shown("You open the safe 1. The safe 1 is open.") == "You open the safe 1. The safe 1 is open."


@pytest.mark.parametrize("said", ["put cd 1 in safe 2", "put cd 1 on safe 2", "move cd 1 to safe 2"])
def test_either_wording_becomes_that_of_the_game(said):
    assert in_wording(said, "put") == "put cd 1 in/on safe 2"
    assert in_wording(said, "move") == "move cd 1 to safe 2"
    assert in_wording("go to safe 2", "move") == "go to safe 2"


class Told(Session):
    """Says what it was told, and wins at `win`."""

    def __init__(self):
        self.actions = []

    async def reset(self):
        return "-= Welcome =-\n\nA room.\n\nYour task is to: win."

    async def step(self, action):
        self.actions.append(action)
        if action == "win":
            return Observation("You arrive at loc 3. Done.", 1.0, True)
        return Observation("Nothing happens.")


async def test_a_session_answers_thoughts_and_ends_when_it_is_won():
    told = Told()
    session = AlfworldSession(told, "put", lenient=True)
    assert await session.reset() == "A room.\nYour task is to: win."
    assert await session.step(" think: put cd 1 on safe 2 ") == Observation("OK.")
    assert await session.step("put cd 1 on safe 2") == Observation("Nothing happens.")
    assert await session.step("win") == Observation("Done.", 1.0, True)
    assert await session.step("look") == Observation("Done.", 0.0, True)
    assert told.actions == ["think: put cd 1 on safe 2", "put cd 1 in/on safe 2", "win"]
    raw = AlfworldSession(Told(), "put", raw=True)
    assert (await raw.reset()).startswith("-= Welcome")
    assert (await raw.step("win")).text == "You arrive at loc 3. Done."


def test_a_task_is_won_or_not_whatever_else_ended_it():
    world, task = Alfworld(), Task("x", "")
    assert world.score_outcome(task, Outcome(None, (0.0, 1.0), True)) == {"reward": 1.0, "success": 1.0}
    assert world.score_outcome(task, Outcome(None, (0.0, 0.0), True)) == {"reward": 0.0, "success": 0.0}
    assert world.score_outcome(task, Outcome()) == {"reward": 0.0, "success": 0.0}


# -- prompts -------------------------------------------------------------------------------------------
def test_three_examples_of_each_kind_in_the_papers_three_ways():
    assert set(embedded()) == {(kind.short, k) for kind in KINDS for k in range(EACH)}
    households = {row["household"] for row in embedded().values()}
    assert len(households) == 18 and all("/train_" in each for each in households)
    for kind in KINDS:
        for k in range(EACH):
            act, react, dense = (shots(style, kind, [k], "put") for style in ("act", "react", "react_im"))
            actions = [line for line in act.splitlines() if line.startswith("> ")]
            assert not any("think:" in line for line in actions)
            for text in (react, dense):
                lines = text.splitlines()
                assert [line for line in lines if line.startswith("> ") and "> think:" not in line] == actions
                assert all(
                    after == "OK." for line, after in itertools.pairwise(lines) if line.startswith("> think:")
                )
            thoughts = [text.count("> think:") for text in (react, dense)]
            assert 0 < thoughts[0] < len(actions) < thoughts[1]


def test_all_six_pairs_of_examples_make_a_prompt_each():
    pairs = list(itertools.permutations(range(EACH), 2))
    for kind in KINDS:
        texts = {shots("react", kind, pair, "put") for pair in pairs}
        assert len(texts) == 6
        assert all("Here are two examples." in text.splitlines()[0] for text in texts)
        one, zero = (embedded()[kind.short, k]["first"] for k in (1, 0))
        text = shots("react", kind, (1, 0), "put")
        assert text.index(one) < text.index(zero)
    assert "> put" not in shots("act", KINDS[0], [0], "move")
    assert "You move the" in shots("act", KINDS[0], [0], "move")


def test_prompts_are_those_of_the_tasks_kind_and_wording():
    for wording in ("put", "move"):
        world = Alfworld(wording=wording, examples=[2, 0])
        for task in itertools.islice(world.tasks(), 6):
            for style in STYLES:
                text = world.shots(style, task)
                assert text == shots(style, KINDS[task.metadata["number"]], [2, 0], wording)
                assert text is world.shots(style, task)
    with pytest.raises(DataError, match="has examples for react, act, react_im, not for 'cot'"):
        world.shots("cot", task)
    assert Alfworld(examples=[0, 1]).material != Alfworld(examples=[1, 0]).material


def test_a_jobs_own_prompt_files_take_the_place_of_our_examples(tmp_path):
    file = tmp_path / "prompts.json"
    own = {f"react_{kind.short}_{k}": f"{kind.short} {k}\n" for kind in KINDS for k in range(3)}
    file.write_text(json.dumps(own))
    world = Alfworld(prompts=[file], opening="Do it.")
    put, clean = itertools.islice(world.tasks(), 2)
    assert world.shots("react", put) == "Do it.\nput 1\nput 0\n\nHere is the task.\n"
    assert world.shots("react", clean) == "Do it.\nclean 1\nclean 0\n\nHere is the task.\n"
    with pytest.raises(DataError, match="no prompt 'act_put_1'; there are: react_clean_0"):
        world.shots("act", put)
    file.write_text("[]")
    with pytest.raises(DataError, match="one JSON object of names and texts"):
        _ = Alfworld(prompts=[file]).material


# -- the player ----------------------------------------------------------------------------------------
def test_the_player_looks_where_things_are_kept_and_is_a_function_of_the_prompt():
    player = seek(FIRST, voice=VOICES[1])
    move = next(player)
    assert move.action == "go to desk 1" and move.pursuit == "I need to find a pen."
    assert move.thoughts[1].startswith(
        "I do not see a pen from here. People keep one in desk (1), drawer (1-2)"
    )
    prompt = f"Examples\nHere is the task.\n{FIRST}\n>"
    assert answer(prompt) == "go to desk 1"
    prompt += " think: Hm.\nOK.\n> go to desk 1\nOn the desk 1, you see nothing.\n>"
    assert answer(prompt) == "go to drawer 1"
    prompt += " go to drawer 1\nThe drawer 1 is closed.\n>"
    assert answer(prompt) == "open drawer 1"
    prompt += " open drawer 1\nYou open the drawer 1. The drawer 1 is open. In it, you see a pen 3.\n>"
    assert answer(prompt) == "take pen 3 from drawer 1"
    prompt += " take pen 3 from drawer 1\nYou pick up the pen 3 from the drawer 1.\n>"
    assert answer(prompt) == "go to sidetable 1"
    assert answer(prompt.replace("put a pen in sidetable", "be good")) == "look"


# -- games of the data ---------------------------------------------------------------------------------
GRAMMAR = '{"rhs": "Your task is to: %s"} template :: "put {o} in/on {r}"'


def record(k, **more):
    of = household(1, "unseen", k)
    return {
        "id": of.id, "split": "valid_unseen", "task_type": of.kind.name, "task": of.text, "pddl_problem": problem(of)
    } | more  # fmt: skip


def written(folder, rows, name="games.jsonl.gz"):
    file = folder / name
    with gzip.open(file, "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return file


def test_games_of_a_file_of_records(tmp_path):
    rows = [record(0), record(1, solvable=False), record(2, split="train"), record(3)]
    file = written(tmp_path, rows)
    everything = list(Alfworld(source=str(file)).tasks())
    assert [task.id for task in everything] == [rows[k]["id"] for k in (0, 2, 3)]
    assert [task.split for task in everything] == ["unseen", "train", "unseen"]
    world = Alfworld(source=str(file), split="valid_unseen", wording="move")
    put, cool = world.tasks()
    assert put.input == rows[0]["task"] and put.metadata["type"] == "put"
    assert put.target["type"] == "pick_and_place_simple" and put.target["where"]
    assert world._games.game(cool) == {
        "problem": rows[3]["pddl_problem"],
        "goal": rows[3]["task"],
        "wording": "move",
    }


@pytest.mark.parametrize(
    ("rows", "split", "said"),
    [
        ([record(0)], "train", "no game of split 'train'; it has 1 of unseen"),
        ([record(0), record(0)], "", "row 2: the id .* is that of row 1, too"),
        ([record(0, task=3)], "", "row 1: field 'task' must be a text"),
        ([record(0, grammar="x")], "", "row 1: of 'pddl_domain' and 'grammar' there must be both or none"),
        (
            [record(0, task_type="fold_laundry", task="Fold it.")],
            "",
            "'fold_laundry' begins with none of the six",
        ),
    ],
)
def test_a_wrong_record_is_named(tmp_path, rows, split, said):
    with pytest.raises(DataError, match=said):
        list(Alfworld(source=str(written(tmp_path, rows)), split=split).tasks())


def install(folder, k, *, goal=None, name=None, **more):
    """A game as ALFWorld's download has it."""
    of = household(1, "train", k)
    place = folder / (name or of.id)
    place.mkdir(parents=True)
    grammar = GRAMMAR % (goal or of.text)
    data = {"pddl_domain": "(d)", "grammar": grammar, "pddl_problem": problem(of), "solvable": True} | more
    (place / "game.tw-pddl").write_text(json.dumps(data))
    (place / "traj_data.json").write_text(json.dumps({"task_type": of.kind.name}))
    return of


def test_games_of_a_folder_as_alfworld_downloads_it(tmp_path, monkeypatch):
    unseen, train = tmp_path / "json_2.1.1" / "valid_unseen", tmp_path / "json_2.1.1" / "train"
    first, second = install(unseen, 0), install(unseen, 2, goal='Heat \\"it\\"')
    install(unseen, 1, solvable=False)
    install(unseen, 3, name="pick_cool-AppleSliced-1/trial")
    install(unseen, 4, name="pick_and_place_with_movable_recep-1/trial")
    other = install(train, 5)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    world = Alfworld(source=VARIABLE)
    put, heat = world.tasks()
    assert [put.id, heat.id] == [first.id, second.id] and put.split == "unseen"
    assert put.metadata["wording"] == "put" and put.metadata["type"] == "put"
    assert heat.input == 'Heat "it"'
    game = world._games.game(put)
    assert game["goal"] == first.text and GOAL in game["grammar"] and game["problem"] == problem(first)
    for source in (VARIABLE, str(tmp_path), str(tmp_path / "json_2.1.1")):
        assert [task.id for task in Alfworld(source=source, split="train").tasks()] == [other.id]
    assert [task.id for task in Alfworld(source=str(train)).tasks()] == [other.id]
    (unseen / first.id / "game.tw-pddl").write_text((train / other.id / "game.tw-pddl").read_text())
    with pytest.raises(WorldError, match="has changed since the run began"):
        world._games.game(put)


def test_what_is_wrong_with_a_folder_of_games_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(DataError, match="the environment variable ALFWORLD_DATA is not set"):
        list(Alfworld(source=VARIABLE).tasks())
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="which is no folder"):
        list(Alfworld(source=VARIABLE).tasks())
    with pytest.raises(DataError, match=r"no game.tw-pddl that can be played; `source` is a folder"):
        list(Alfworld(source=str(tmp_path)).tasks())
    install(tmp_path / "valid_unseen", 0, solvable=False)
    with pytest.raises(DataError, match=r"\(1 are not marked as solvable\)"):
        list(Alfworld(source=str(tmp_path)).tasks())
    (tmp_path / "valid_unseen" / "x").mkdir()
    (tmp_path / "valid_unseen" / "x" / "game.tw-pddl").write_text('{"solvable": true}')
    with pytest.raises(DataError, match="field 'pddl_domain' is missing"):
        list(Alfworld(source=str(tmp_path)).tasks())
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(DataError, match="the environment variable ALFWORLD_DATA is not set"):
        list(Alfworld(source=VARIABLE).tasks())
    for name in ("json_2.1.1", "json_2.1.2"):
        (tmp_path / "two" / name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"several releases \(json_2.1.1, json_2.1.2\)"):
        list(Alfworld(source=str(tmp_path / "two")).tasks())


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (lambda whole: whole[: len(whole) // 2], "not JSON .*cut off"),
        (lambda whole: b"", "not JSON"),
        (lambda whole: b"\xff\xfe", "not JSON"),
        (lambda whole: b"[]", "not a JSON object"),
    ],
)
def test_a_game_that_is_not_whole_is_named(tmp_path, left, said):
    of = install(tmp_path / "valid_unseen", 0)
    file = tmp_path / "valid_unseen" / of.id / "game.tw-pddl"
    file.write_bytes(left(file.read_bytes()))
    with pytest.raises(DataError, match=f"{file}: {said}"):
        list(Alfworld(source=str(tmp_path)).tasks())


def test_a_file_of_records_that_was_cut_off_is_named(tmp_path):
    packed = written(tmp_path, [record(k) for k in range(4)])
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(DataError, match=f"{packed}: damaged gzip file"):
        list(Alfworld(source=str(packed)).tasks())
    plain, row = tmp_path / "games.jsonl", json.dumps(record(0))
    plain.write_text(f"{row}\n{row[: len(row) // 2]}")
    with pytest.raises(DataError, match=f"{plain}: line 2: not JSON"):
        list(Alfworld(source=str(plain)).tasks())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"split": "test"}, "no split 'test'; there are train, seen and unseen"),
        ({"examples": [0, 0]}, "different numbers from 0 to 2"),
        ({"examples": [3]}, "different numbers from 0 to 2"),
        ({"examples": []}, "at least 1 item"),
        ({"source": " "}, "write households, ALFWORLD_DATA or the path of games"),
        ({"wording": "drop"}, "'put' or 'move'"),
    ],
)
def test_a_wrong_setting_is_named(settings, said):
    with pytest.raises(ValidationError) as error:
        Alfworld(**settings)
    assert said in str(error.value)


# -- the package's files -------------------------------------------------------------------------------
def test_a_goal_is_taken_out_of_a_grammar():
    grammar, goal = split_goal(GRAMMAR % "put a cd in safe.")
    assert (goal, grammar) == ("put a cd in safe.", GRAMMAR % GOAL)
    assert wording_of(grammar) == "put"
    assert wording_of("move {o} to {r}") == "move"
    with pytest.raises(ValueError, match="no line"):
        split_goal("nothing")


async def test_a_missing_package_is_said_in_one_line(monkeypatch, tmp_path):
    logic.installed.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for act in (lambda: logic.installed("put"), lambda: Alfworld().open(tmp_path)):
        with pytest.raises(
            WorldError, match=r"not installed; run: pip install 'overnight\[alfworld\]'"
        ) as error:
            made = act()
            await made
        assert "\n" not in str(error.value)


def test_another_release_of_the_package_is_not_misread(monkeypatch, tmp_path):
    logic.installed.cache_clear()
    data = tmp_path / "data"
    data.mkdir()
    (data / "alfred.pddl").write_text("(define (domain alfred))")
    (data / "alfred.twl2").write_text("Your task is to: UNKNOWN GOAL.")

    class Found:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Found)
    assert logic.installed("move").grammar == f"Your task is to: {GOAL}"
    with pytest.raises(WorldError, match=r"lack '\"move \{o\} to \{r\}\"'.*install alfworld 0.4.2"):
        logic.installed("put")
    (data / "alfred.pddl").unlink()
    logic.installed.cache_clear()
    with pytest.raises(WorldError, match=r"alfred.pddl: No such file"):
        logic.installed("move")
    logic.installed.cache_clear()
