"""Jobs: every key checked with its place said, tasks selected, plan order, and what changes a row's `config`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from envs.base import DataError, Exemplar, Task, World
from envs.hotpotqa import HotpotQA
from runner import library
from runner.errors import JobError
from runner.job import Job, Limits
from runner.methods.base import Method
from runner.methods.cot import Cot
from runner.methods.cot_sc import CotSC
from runner.methods.react import React
from runner.models.base import Call, Choice, Model, Reply
from runner.models.openai import OpenAI
from runner.models.scripted import scripted
from runner.registry import code_version, method_class

ROOT = Path(__file__).parents[2]
NO_BUDGET = dict.fromkeys(("episode_seconds", "max_usd", "max_tokens", "max_calls", "max_hours"))

GOOD = """\
name = "good"
seed = 1
limit = 2

[models.policy]
provider = "scripted"
replies = ["Answer: yes"]

[envs.hotpotqa]

[methods.cot]
[methods.cot_sc]
samples = 3

[limits]
max_episodes = 4
episode_draws = 50
"""


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(text: str, *overrides: str) -> Job:
        path = tmp_path / "job.toml"
        path.write_text(text, encoding="utf-8")
        return Job.read(path, overrides)

    return read


def complaint(read: Any, text: str, *overrides: str) -> str:
    """What is said of a bad job, without the folder."""
    with pytest.raises(JobError) as caught:
        read(text, *overrides)
    return str(caught.value).replace(str(caught.value).partition("job.toml")[0], "", 1)


def of(raw: dict[str, Any] | None = None, **more: Any) -> Job:
    """A job from plain data."""
    base: dict[str, Any] = {
        "envs": {"hotpotqa": {}},
        "methods": {"cot": {}},
        "models": {"m": {"provider": "scripted", "replies": ["Answer: yes"]}},
    }
    return Job.parse(base | (raw or {}) | more)


# ---------------------------------------------------------------- keys


def test_every_key_of_a_job_file_is_read(read: Any) -> None:
    job = read(
        'compat = "reference"\nworkers = 3\nworker_megabytes = 900\n'
        + 'trials = 2\nrows = 9\nids = ["a", 7]\nshuffle_seed = 233\n'
        + GOOD
        + '[where]\nlevel = ["easy", "hard"]\n[roles]\njudge = "big"\n[models.big]\nprovider = "scripted"\n'
    )
    assert job.settings.model_dump(exclude={"models", "envs", "methods"}) == {
        "name": "good", "seed": 1, "compat": "reference", "trials": 2, "limit": 2, "rows": 9, "ids": ["a", "7"],
        "where": {"level": ["easy", "hard"]}, "shuffle_seed": 233, "roles": {"judge": "big"}, "reuse": [],
        "workers": 3, "engine": "local", "address": "auto", "worker_megabytes": 900,
        "limits": {"max_episodes": 4, "episode_draws": 50} | NO_BUDGET,
    }  # fmt: skip
    assert job.worlds["hotpotqa"].compat == job.methods["cot"].compat == "reference"
    assert (job.methods["cot_sc"].samples, job.models["policy"].replies) == (3, ["Answer: yes"])
    assert job.policies == ["policy"]


def test_keys_that_are_not_given_have_the_documented_values(read: Any) -> None:
    settings = of().settings
    assert settings.model_dump(exclude={"models", "envs", "methods"}) == {
        "name": "job", "seed": 233, "compat": "default", "trials": 1, "limit": None, "rows": None, "ids": None,
        "where": {}, "shuffle_seed": None, "roles": {}, "reuse": [],
        "workers": 1, "engine": "local", "address": "auto", "worker_megabytes": None,
        "limits": {"max_episodes": 200, "episode_draws": 2000} | NO_BUDGET,
    }  # fmt: skip


def test_a_tables_name_need_not_be_the_word_of_what_it_describes(read: Any) -> None:
    job = read(GOOD.replace("[methods.cot]", '[methods.short]\nmethod = "cot"\nmax_tokens = 9'))
    assert job.methods["short"] == Cot(max_tokens=9)
    assert [cell.method for cell in job.cells] == ["short", "cot_sc"]


def test_a_methods_own_compat_wins_over_the_jobs(read: Any) -> None:
    job = of(compat="reference", methods={"cot": {"compat": "default"}, "react": {}})
    assert (job.methods["cot"].compat, job.methods["react"].compat) == ("default", "reference")


# ---------------------------------------------------------------- what is wrong, and where

WRONG = {
    # (what is replaced, by what): what is said
    ("limit = 2", "limmit = 2"): "job.toml, line 3 (limmit): unknown key 'limmit'; did you mean 'limit'?",
    ("limit = 2", "zzz = 2"): "job.toml, line 3 (zzz): unknown key 'zzz'; known: address, compat, engine, envs, ids,",
    ("limit = 2", "limit = 0"): "job.toml, line 3 (limit): input should be greater than or equal to 1, not 0",
    ("limit = 2", 'limit = "2"'): "job.toml, line 3 (limit): input should be a valid integer, not '2'",
    ("limit = 2", "limit = true"): "job.toml, line 3 (limit): input should be a valid integer, not True",
    ("limit = 2", "ids = [1.5]"): "job.toml, line 3 (ids.0): input should be a valid string, not 1.5",
    ("limit = 2", 'ids = "a"'): "job.toml, line 3 (ids): input should be a valid list, not 'a'",
    ("limit = 2", 'name = "x"'): "job.toml: not valid TOML: ",
    ('"good"', '"a/b"'): "job.toml, line 1 (name): string should match pattern",
    ("seed = 1", 'compat = "refrence"'): "line 2 (compat): input should be 'default' or 'reference', not 'refrence'",
    ("samples = 3", "sampels = 3"): "line 13 (methods.cot_sc.sampels): unknown key 'sampels'; did you mean 'samples'?",
    ("samples = 3", "samples = 0"): "line 13 (methods.cot_sc.samples): input should be greater than 0, not 0",
    ("samples = 3", "samples = true"): "line 13 (methods.cot_sc.samples): input should be a valid integer, not True",
    ("max_episodes", "max_episode"): "line 16 (limits.max_episode): unknown key 'max_episode'; did you mean "
    "'max_episodes'?",
    ("[methods.cot]", "[methods.kot]"): "line 11 (methods.kot): unknown method 'kot'; did you mean 'cot'? (or say "
    "which one it is: method = '...')",
    ("[methods.cot]", "[methods.mine]"): "(or say which one it is: method = '...')",
    ("[methods.cot]", '[methods.x]\nmethod = "reakt"'): "line 12 (methods.x.method): unknown method 'reakt'; did you "
    "mean 'react'?",
    ("[methods.cot]", "[methods.x]\nmethod = 5"): "line 12 (methods.x.method): input should be a valid string, not 5",
    ("[methods.cot]", "[methods]\ncot = 5"): "line 12 (methods.cot): input should be a valid dictionary, not 5",
    ("[envs.hotpotqa]", "[envs.hotpot]"): "line 9 (envs.hotpot): unknown world 'hotpot'; did you mean 'hotpotqa'?",
    ("[envs.hotpotqa]", '[envs.x]\nworld = "fevr"'): "line 10 (envs.x.world): unknown world 'fevr'; did you mean "
    "'fever'?",
    ('"scripted"', '"openia"'): "line 6 (models.policy.provider): unknown provider 'openia'; did you mean 'openai'?",
    ('"scripted"', '["scripted"]'): "line 6 (models.policy.provider): input should be a valid string, not ['scripted']",
    ("[envs.hotpotqa]", '[envs.hotpotqa]\nsource = ""'): "line 10 (envs.hotpotqa.source): empty; write encyclopedia,",
    ("[envs.hotpotqa]", '[envs.q]\nworld = "qa"\nanswer = "text"'): "line 9 (envs.q.data): this key is missing (",
    ("[limits]", '[roles]\njudge = "polici"\n[limits]'): "line 16 (roles.judge): unknown model 'polici'; did you mean "
    "'policy'?",
    ("[limits]", '[roles]\njudge = "policy"\n[limits]'): "line 15 (roles): every model has another role",
    ("[methods.cot]", '[methods.x]\nmethod = "nowhere.py:X"'): "method 'nowhere.py:X': there is no file nowhere.py",
    ("[methods.cot]", '[methods.x]\nmethod = "no.such:X"'): "could not be loaded: ModuleNotFoundError: No module named",
    ("[methods.cot]", '[methods.x]\nmethod = "json:Nope"'): "could not be loaded: AttributeError",
    ("[methods.cot]", '[methods.x]\nmethod = ":X"'): "could not be loaded: ValueError",
    ("[methods.cot]", '[methods.x]\nmethod = "json:JSONDecoder"'): "is not a subclass of runner.methods.base.Method",
    ("[methods.cot]", '[methods.x]\nmethod = "runner.methods.base:Method"'): 'has no name; write name = "..." in the '
    "class",
}  # fmt: skip


@pytest.mark.parametrize("change, said", WRONG.items(), ids=[change[1][:40] for change in WRONG])
def test_a_bad_job_is_said_with_its_line_key_and_the_nearest_right_word(
    change: tuple[str, str], said: str, read: Any
) -> None:
    assert change[0] in GOOD
    assert said in complaint(read, GOOD.replace(change[0], change[1], 1))


@pytest.mark.parametrize("table", ["models", "envs", "methods"])
def test_a_table_that_is_missing_is_named(table: str, read: Any) -> None:
    text = "\n".join(part for part in GOOD.split("\n\n") if f"[{table}." not in part)
    assert f"job.toml ({table}): this key is missing (" in complaint(read, text)
    assert f"({table}): dictionary should have at least 1 item" in complaint(read, text + f"\n[{table}]\n")


def test_several_faults_are_counted(read: Any) -> None:
    text = GOOD.replace("limit = 2", "limit = 0\ntrials = 0\nrows = 0")
    assert complaint(read, text).endswith("not 0 (and 2 more)")


def test_a_method_that_acts_needs_a_world_to_act_in(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1, "question": "q", "answer": "a"}\n')
    envs = {"mine": {"world": "qa", "data": str(tmp_path / "t.jsonl"), "answer": "text"}}
    with pytest.raises(
        JobError, match=r"job \(methods.react\): method 'react' takes actions, and the world of envs.mine"
    ):
        of(envs=envs, methods={"react": {}})
    with pytest.raises(JobError, match="takes actions"):
        Job.of(Numbers(), React(), scripted(["x"]))


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text(GOOD)
    with pytest.raises(JobError, match=r"quik.toml: there is no such job file; did you mean 'quick.toml'\?"):
        Job.read(tmp_path / "quik.toml")
    with pytest.raises(JobError, match="there is no such job file; none is there"):
        Job.read(tmp_path / "nowhere" / "quick.toml")
    with pytest.raises(JobError, match="cannot be read"):
        Job.read(tmp_path)
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(JobError, match="cannot be read as a UTF-8 text file"):
        Job.read(tmp_path / "latin.toml")
    (tmp_path / "torn.toml").write_text("a = 1\nb = \n")
    with pytest.raises(JobError, match=r"torn.toml: not valid TOML: .*line 2"):
        Job.read(tmp_path / "torn.toml")


def test_a_byte_order_mark_and_windows_lines_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert Job.read(path).settings.name == "good"
    path.write_bytes(path.read_bytes().replace(b"samples", b"sample"))
    with pytest.raises(JobError, match=r"line 13 \(methods.cot_sc.sample\)"):
        Job.read(path)


async def test_nothing_is_written_for_a_bad_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    bad = [
        GOOD + "[zzz]\n",
        GOOD.replace("limit = 2", 'ids = ["nobody"]'),
        GOOD.replace("limit = 2", 'where = {level = "none"}'),
        GOOD.replace("[envs.hotpotqa]", '[envs.hotpotqa]\ndata = "nowhere.json"'),
        GOOD.replace("[envs.hotpotqa]", '[envs.hotpotqa]\nprompts = ["nowhere.json"]'),
    ]
    for text in bad:
        path.write_text(text)
        with pytest.raises((JobError, DataError)):
            await library.run(path, outputs=tmp_path / "outputs", progress=False)
    assert not (tmp_path / "outputs").exists()


LAYOUT = """\
# limit = 0 stands in a comment
name = "x"  # so does seed = "0"

models.policy = { provider = "scripted", replies = [
    "a = b",    # ] = [
    '[methods]',
] }
where = { level = [
    "easy",
    3,
] }
"trials" = 1

[envs . "my.world"]   # [methods]
world = "qa"
data = "x.jsonl"
answer = "text"
instruct = \"\"\"
[methods.cot]
limit = 3
\"quoted\" \\\"\"\"\"
template = '''
x = {question}'''

[[envs."my.world".examples]]
input = "1"
answer = "1"

[[envs."my.world".examples]]
input = "2"
answer = "2"

[methods]
cot.max_tokens = 5
"cot_sc" = { samples = 4, temperature = 0.5 }
"""

LINES = {
    ('name = "x"', 'name = "?"'): (2, "name"),
    ('provider = "scripted",', 'provider = "scripted", seed = 1,'): (4, "models.policy.seed"),
    ("'[methods]',", "3,"): (6, "models.policy.replies.1"),
    ('"trials" = 1', '"trials" = 0'): (12, "trials"),
    ('world = "qa"', 'world = "qu"'): (15, "envs.my.world.world"),
    ('answer = "text"', 'answer = "txt"'): (17, "envs.my.world.answer"),
    ("template = '''", "tmplate = '''"): (22, "envs.my.world.tmplate"),
    ('input = "1"', "input = 1"): (26, "envs.my.world.examples.0.input"),
    ('answer = "2"', "answer = 2"): (31, "envs.my.world.examples.1.answer"),
    ('input = "2"\n', ""): (29, "envs.my.world.examples.1.input"),
    ("max_tokens = 5", "max_tokens = 0"): (34, "methods.cot.max_tokens"),
    ("samples = 4", "samples = 0"): (35, "methods.cot_sc.samples"),
    ("temperature = 0.5", "temperature = -1"): (35, "methods.cot_sc.temperature"),
}


@pytest.mark.parametrize("change, place", LINES.items(), ids=[key for _, key in LINES.values()])
def test_the_line_is_right_however_the_key_is_written(
    change: tuple[str, str], place: tuple[int, str], read: Any
) -> None:
    assert change[0] in LAYOUT
    text = complaint(read, LAYOUT.replace(change[0], change[1], 1))
    assert text.startswith(f"job.toml, line {place[0]} ({place[1]}): ")


def test_that_layout_is_a_good_job_as_it_stands(read: Any) -> None:
    job = read(LAYOUT)
    assert job.worlds["my.world"].instruct == '[methods.cot]\nlimit = 3\n"quoted" "'


# ---------------------------------------------------------------- --set

SETS = {
    "limit=5": ("limit", 5),
    " limit = 5 ": ("limit", 5),
    "limit=1_000": ("limit", 1000),
    "name=night": ("name", "night"),
    'name="night"': ("name", "night"),
    "ids=[1, 'b']": ("ids", ["1", "b"]),
    "where.level=easy": ("where", {"level": "easy"}),
    "where.level=['easy', 'hard']": ("where", {"level": ["easy", "hard"]}),
    "where.n=3": ("where", {"n": 3}),
    "where.day=2020-01-31": ("where", {"day": "2020-01-31"}),
    "where.q=a = b": ("where", {"q": "a = b"}),
    "where.q=": ("where", {"q": ""}),
    "where.q=[a] and {b}": ("where", {"q": "[a] and {b}"}),
    "where.q=1\nx = 2": ("where", {"q": "1\nx = 2"}),
    'where."a.b"=1': ("where", {"a.b": 1}),
    "where={level = 'easy'}": ("where", {"level": "easy"}),
    "limits.max_episodes=1": ("limits", Limits(max_episodes=1, episode_draws=50)),
    "roles.policy=policy": ("roles", {"policy": "policy"}),
}


@pytest.mark.parametrize("assignment, expected", SETS.items(), ids=SETS.keys())
def test_a_set_takes_a_toml_value_or_a_text(assignment: str, expected: tuple[str, Any], read: Any) -> None:
    assert getattr(read(GOOD, assignment).settings, expected[0]) == expected[1]


def test_a_set_reaches_every_table_and_makes_new_ones(read: Any) -> None:
    job = read(
        GOOD,
        "methods.cot_sc.samples=21",
        "methods.react.steps=2",
        "envs.fever.split=dev",
        "methods.cot_sc.samples=7",
    )
    assert job.methods["cot_sc"] == CotSC(samples=7)
    assert job.methods["react"] == React(steps=2)
    assert job.worlds["fever"].split == "dev"
    assert job.raw["methods"]["react"] == {"steps": 2}


def test_a_set_leaves_the_callers_data_as_they_were() -> None:
    raw = {"envs": {"hotpotqa": {}}, "methods": {"cot": {}}, "models": {"m": {"provider": "scripted"}}}
    before = json.dumps(raw)
    Job.parse(raw, ["methods.cot.max_tokens=5", "limit=3"])
    assert json.dumps(raw) == before


BAD_SETS = {
    "limit": "--set limit: write it as key=value",
    "=5": "--set =5: write it as key=value",
    "a b=5": "--set a b=5: write it as key=value",
    "a..b=5": "--set a..b=5: write it as key=value",
    "limit.x=5": "--set limit.x=5: 'limit' is a value in this job, not a table",
    "limit=abc": "--set limit=abc (limit): input should be a valid integer, not 'abc'",
    "limmit=3": "--set limmit=3 (limmit): unknown key 'limmit'; did you mean 'limit'?",
    "methods.cot.max_token=3": "--set methods.cot.max_token=3 (methods.cot.max_token): unknown key 'max_token'; "
    "did you mean 'max_tokens'?",
    "methods.reakt.steps=3": "(methods.reakt): unknown method 'reakt'; did you mean 'react'?",
    "methods.react={stps=3}": "--set methods.react={stps=3} (methods.react.stps): unknown key 'stps'; did you mean "
    "'steps'?",
    "ids=[a,b]": "--set ids=[a,b] (ids): input should be a valid list, not '[a,b]'",
}


@pytest.mark.parametrize("assignment, said", BAD_SETS.items(), ids=BAD_SETS.keys())
def test_a_bad_set_is_said_as_it_was_typed(assignment: str, said: str, read: Any) -> None:
    with pytest.raises(JobError) as caught:
        read(GOOD, assignment)
    assert said in str(caught.value)


# ---------------------------------------------------------------- paths


def test_files_beside_the_job_are_found_from_anywhere_and_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "t.jsonl").write_text('{"id": 1, "question": "q", "answer": "a"}\n')
    (home / "p.json").write_text('{"cotqa": "P"}')
    (home / "own.py").write_text(OWN.format(answer="a") + "\n\ndef three(votes, left):\n    return 3\n")
    (home / "job.toml").write_text(
        '[models.m]\nprovider = "scripted"\n[envs.mine]\nworld = "qa"\nanswer = "text"\ndata = "t.jsonl"\n'
        'prompts = ["p.json"]\n[methods.own]\nmethod = "own.py:Own"\n[methods.cot_sc]\nuntil = "own.py:three"\n'
    )
    monkeypatch.chdir(away)
    job = Job.read(home / "job.toml")
    assert [task.id for task in job.tasks("mine")] == ["1"]
    again = Job.parse(json.loads(json.dumps(job.raw)), file=away / "run.json")
    assert again.worlds == job.worlds
    assert list(map(again.configs().of, again.plan())) == list(map(job.configs().of, job.plan()))


# ---------------------------------------------------------------- selection


class Numbers(World):
    """As many tasks as wanted, made one by one; `made` counts them."""

    name: ClassVar[str] = "numbers"
    count: int = 10
    made_so_far: ClassVar[int] = 0

    def tasks(self) -> Iterator[Task]:
        for k in range(self.count):
            type(self).made_so_far += 1
            yield Task(f"n{k}", f"{k}?", k, "dev", {"even": k % 2 == 0, "digit": str(k)[-1]})

    def exemplars(self) -> tuple[Exemplar, ...]:
        return ()

    def score(self, task: Task, answer: str | None) -> dict[str, float]:
        return {"em": 0.0}


def select(count: int = 10, **settings: Any) -> list[str]:
    job = Job.of(Numbers(count=count), Cot(), scripted(["x"]), **settings)
    return [task.id for task in job.tasks("numbers")]


SELECTIONS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "all": ({}, list(range(10))),
    "limit": ({"limit": 3}, [0, 1, 2]),
    "limit beyond the end": ({"limit": 30}, list(range(10))),
    "rows": ({"rows": 4}, [0, 1, 2, 3]),
    "rows and limit": ({"rows": 4, "limit": 2}, [0, 1]),
    "ids, in the data's order": ({"ids": ["n7", "n2", "n7"]}, [2, 7]),
    "ids and limit": ({"ids": ["n7", "n2"], "limit": 1}, [2]),
    "ids and where": ({"ids": ["n7", "n2"], "where": {"even": False}}, [7]),
    "where": ({"where": {"even": True}}, [0, 2, 4, 6, 8]),
    "where and limit": ({"where": {"even": False}, "limit": 2}, [1, 3]),
    "where any of": ({"where": {"digit": ["3", "5", "x"]}}, [3, 5]),
    "where both": ({"where": {"digit": ["3", "4"], "even": True}}, [4]),
    "where of the split": ({"where": {"split": "dev"}, "limit": 1}, [0]),
}  # fmt: skip


@pytest.mark.parametrize("settings, expected", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_tasks_are_selected(settings: dict[str, Any], expected: list[int]) -> None:
    assert select(**settings) == [f"n{k}" for k in expected]


NOTHING: dict[str, tuple[dict[str, Any], str]] = {
    "an empty data set": ({"count": 0}, "envs.numbers: no task; there is nothing to run"),
    "no ids": ({"ids": []}, "no task among `ids`, which is empty; there is nothing to run"),
    "ids that are not there": ({"ids": ["n1", "n77", "x"], "limit": 1}, "no task with id 'n77', 'x' among"),
    "an id beyond the rows": ({"ids": ["n5"], "rows": 3}, "no task with id 'n5'"),
    "no match": ({"where": {"even": "x"}}, "no task matches `where`; there is nothing to run"),
    "no match among ids": ({"ids": ["n1"], "where": {"even": True}}, "no task matches `where` among those in `ids`"),
    "no such field": ({"where": {"evne": True}}, "`where` (unknown field 'evne'; did you mean 'even'?)"),
}  # fmt: skip


@pytest.mark.parametrize("settings, said", NOTHING.values(), ids=NOTHING.keys())
def test_a_selection_of_nothing_is_refused_before_the_first_task(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        select(**settings)
    assert said in str(caught.value)
    job = Job.of(Numbers(count=settings.pop("count", 10)), Cot(), scripted(["x"]), **settings)
    with pytest.raises(DataError):
        next(job.tasks("numbers"))


def test_many_missing_ids_are_counted() -> None:
    with pytest.raises(DataError, match=r"'x1', 'x2', 'x3', 'x4', 'x5' and 2 more"):
        select(ids=[f"x{k}" for k in range(1, 8)])


def test_two_tasks_of_one_id_are_refused_by_name() -> None:
    class Twice(Numbers):
        def tasks(self) -> Iterator[Task]:
            yield from (Task(id, "?") for id in ("a", "b", "a"))

    job = Job.of(Twice(), Cot(), scripted(["x"]))
    with pytest.raises(DataError, match=r"envs\.numbers: two tasks have the id 'a'"):
        list(job.tasks("numbers"))


def test_the_papers_500_questions_are_shuffle_seed_233_and_limit_500() -> None:
    order = list(range(7405))
    random.Random(233).shuffle(order)
    assert select(7405, shuffle_seed=233, limit=500) == [f"n{k}" for k in order[:500]]
    assert order[:3] == [3687, 6238, 5388]


def test_fever_takes_them_from_its_first_7405_rows() -> None:
    order = list(range(7405))
    random.Random(233).shuffle(order)
    assert select(9999, rows=7405, shuffle_seed=233, limit=20) == [f"n{k}" for k in order[:20]]


def test_the_published_fever_episodes_are_those(tmp_path: Path) -> None:
    data = Path(os.environ.get("OVERNIGHT_DATA", ""))
    if not (data / "fever/paper_dev.jsonl").is_file():
        pytest.skip("OVERNIGHT_DATA does not hold fever/paper_dev.jsonl")
    job = of(
        envs={"fever": {"data": str(data / "fever/paper_dev.jsonl")}}, rows=7405, shuffle_seed=233, limit=500
    )
    tasks = list(job.tasks("fever"))
    labels = [task.target for task in tasks]
    assert [labels.count(label) for label in ("NOT ENOUGH INFO", "SUPPORTS", "REFUTES")] == [179, 168, 153]
    assert (tasks[0].metadata["row"], tasks[0].input) == (3687, "Paramore is not from Tennessee.")


@pytest.mark.parametrize(
    "settings", [{}, {"where": {"even": True}}, {"ids": ["n0", "n1", "n2"]}, {"rows": 1_000_000}]
)
def test_ten_million_tasks_are_not_read_for_the_first_three(settings: dict[str, Any]) -> None:
    job = Job.of(Numbers(count=10_000_000), Cot(), scripted(["x"]), limit=3, **settings)
    Numbers.made_so_far = 0
    assert len(list(job.tasks("numbers"))) == 3
    assert Numbers.made_so_far <= 5
    Numbers.made_so_far = 0
    next(job.plan())
    assert Numbers.made_so_far <= 3


# ---------------------------------------------------------------- plan


def test_the_plan_goes_task_by_task_so_that_methods_that_share_draws_run_together() -> None:
    job = of(
        envs={"hotpotqa": {}, "fever": {}},
        methods={"cot": {}, "react": {}},
        models={"a": {"provider": "scripted"}, "b": {"provider": "scripted"}},
        limit=2,
        trials=2,
    )
    plan = list(job.plan())
    assert [planned.index for planned in plan] == list(range(32))
    task, other = islice(job.tasks("hotpotqa"), 2)
    expected = [
        f"hotpotqa/{task.id}/{m}/{model}{t}" for t in ("", "#1") for model in "ab" for m in ("cot", "react")
    ]
    assert [planned.id for planned in plan[:8]] == expected
    assert plan[8].task == other
    assert {planned.cell.env for planned in plan[16:]} == {"fever"}
    assert len({planned.id for planned in plan}) == 32


def test_models_with_another_role_solve_no_task() -> None:
    models = {name: {"provider": "scripted"} for name in ("small", "mid", "big")}
    assert of(models=models, roles={"judge": "big"}).policies == ["small", "mid"]
    assert of(models=models, roles={"judge": "big", "policy": "big"}).policies == ["big"]


# ---------------------------------------------------------------- config


class Own(Method):
    name: ClassVar[str] = "own"
    styles: ClassVar[tuple[str, ...]] = ("cot",)
    depth: int = 1


class Marked(Numbers):
    version: ClassVar[str] = "1"
    hint: str = ""
    rule: Path | None = None
    mark: str = "m"

    def tasks(self) -> Iterator[Task]:
        yield Task("t", self.mark and "same?", self.mark, metadata={"x": 1})


def config(job: Job) -> str:
    configs = job.configs()
    return configs.of(next(job.plan()))


def base(
    world: World | None = None, method: Method | None = None, model: Model | None = None, **more: Any
) -> str:
    model = model or OpenAI(model="gpt", base_url="http://a/v1")
    return config(Job.of(world or Marked(), method or Own(), model, **more))


class Newer(Marked):
    version: ClassVar[str] = "2"


CHANGES: dict[str, dict[str, Any]] = {
    "a method's setting": {"method": Own(depth=2)},
    "compat": {"method": Own(compat="reference")},
    "the number of samples": {"method": CotSC(samples=4)},
    "a world's setting": {"world": Marked(hint="x")},
    "a task's content": {"world": Marked(mark="n")},
    "a world's version": {"world": Newer()},
    "another file": {"world": Marked(rule=Path("/a/other.txt"))},
    "the model's name": {"model": OpenAI(model="gpt-2", base_url="http://a/v1")},
    "the model's api": {"model": OpenAI(model="gpt", base_url="http://a/v1", api="completions")},
    "the model's temperature": {"model": OpenAI(model="gpt", base_url="http://a/v1", temperature=0.5)},
    "what else is sent": {"model": OpenAI(model="gpt", base_url="http://a/v1", extra_body={"reasoning_effort": "low"})},
    "the seed": {"seed": 5},
    "a judge": {"roles": {"judge": OpenAI(model="judge")}},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_shapes_an_episode_changes_its_config(change: dict[str, Any]) -> None:
    unchanged = {"method": CotSC(samples=5)} if isinstance(change.get("method"), CotSC) else {}
    if "rule" in str(change.get("world")) and change["world"].rule:
        unchanged = {"world": Marked(rule=Path("/a/rules.txt"))}
    assert base(**unchanged) != base(**change)
    assert base(**change) == base(**change)


FREE: dict[str, dict[str, Any]] = {
    "the endpoint": {"model": OpenAI(model="gpt", base_url="http://b/v1", key_env="OTHER")},
    "calls at once": {"model": OpenAI(model="gpt", base_url="http://a/v1", in_flight=3, max_n=5, timeout=9)},
    "the pace": {"model": OpenAI(model="gpt", base_url="http://a/v1", requests_per_minute=5)},
    "the limits": {"limits": Limits(max_episodes=3)},
    "the selection": {"limit": 1, "ids": ["t"], "where": {"x": 1}, "rows": 5, "shuffle_seed": 3},
    "trials": {"trials": 3},
    "the name": {"name": "other"},
}  # fmt: skip


@pytest.mark.parametrize("change", FREE.values(), ids=FREE.keys())
def test_what_only_says_how_or_how_much_is_run_changes_no_config(change: dict[str, Any]) -> None:
    assert base(**change) == base()


def test_the_folder_of_a_worlds_file_is_no_part_of_its_config() -> None:
    assert base(world=Marked(rule=Path("/a/r.txt"))) == base(world=Marked(rule=Path("/b/r.txt")))


def test_manners_towards_a_live_wiki_are_free() -> None:
    first, second = (
        of(envs={"hotpotqa": {"contact": c, "pace": p}}) for c, p in [("a@x.org", 1.0), ("b@x.org", 9.0)]
    )
    assert config(first) == config(second)
    assert first.shape() == second.shape()


def test_the_text_of_prompt_files_counts_for_the_methods_that_use_it(tmp_path: Path) -> None:
    def configs(cot: str, react: str, folder: str) -> list[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / "p.json"
        path.write_text(json.dumps({"cotqa": cot, "webthink": react}))
        job = of(envs={"hotpotqa": {"prompts": [str(path)]}}, methods={"cot": {}, "react": {}}, limit=1)
        return [job.configs().of(planned) for planned in job.plan()]

    first = configs("a", "b", "one")
    assert configs("a", "b", "two") == first
    assert [x == y for x, y in zip(configs("A", "b", "one"), first, strict=True)] == [False, True]
    assert [x == y for x, y in zip(configs("a", "B", "one"), first, strict=True)] == [True, False]


def test_configs_of_other_cells_are_not_touched() -> None:
    def configs(steps: int) -> dict[str, str]:
        job = of(methods={"cot": {}, "react": {"steps": steps}, "react.b": {"method": "react"}}, limit=1)
        return {planned.cell.method: job.configs().of(planned) for planned in job.plan()}

    one, other = configs(1), configs(2)
    assert {method: one[method] == other[method] for method in one} == {
        "cot": True,
        "react": False,
        "react.b": True,
    }


def test_tasks_of_one_cell_have_configs_of_their_own() -> None:
    job = Job.of(Numbers(), Cot(), scripted(["x"]))
    configs = job.configs()
    assert len({configs.of(planned) for planned in job.plan()}) == 10


# ---------------------------------------------------------------- code

OWN = """\
from runner.methods.base import Method


class Own(Method):
    name = "own"

    async def solve(self, ep):
        ep.answer = "{answer}"
"""


def test_an_edited_method_file_is_noticed_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    code = "import sys; from runner.registry import *; print(code_version(method_class(sys.argv[1])))"

    def version(path: Path) -> str:
        command = [sys.executable, "-c", code, f"{path}:Own"]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    path.write_text(OWN.format(answer="a"))
    first = version(path)
    assert version(path) == first
    assert code_version(method_class(f"{path}:Own")) == first.strip()
    path.write_text(OWN.format(answer="b"))
    assert version(path) != first
    path.write_bytes(OWN.format(answer="a").replace("\n", "\r\n").encode())
    assert version(path) == first  # line ends of another system
    moved = tmp_path / "elsewhere" / "own.py"
    moved.parent.mkdir()
    path.rename(moved)
    assert version(moved) == first


async def test_an_edited_method_file_is_run_as_it_is_now(tmp_path: Path) -> None:
    """In a notebook: the same process, the same path."""
    path = tmp_path / "own.py"
    answers = []
    for answer in ("a", "b", "a"):
        path.write_text(OWN.format(answer=answer))
        job = of(methods={"own": {"method": f"{path}:Own"}}, limit=1)
        run = await library.run(job, outputs=tmp_path / "out", progress=False)
        (row,) = run.trajectories
        answers.append((row["answer"], row["config"]))
    assert [answer for answer, _ in answers] == ["a", "b", "a"]
    assert answers[0][1] == answers[2][1] != answers[1][1]


def test_a_method_file_that_fails_when_loaded_is_said_and_can_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for text, said in [
        ("1 / 0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
        ("Own = 3", "is not a subclass"),
    ]:
        path.write_text(text)
        with pytest.raises(JobError, match=said):
            method_class(f"{path}:Own")
    path.write_text(OWN.format(answer="a"))
    assert method_class(f"{path}:Own").name == "own"


def test_code_that_a_class_takes_from_methods_and_worlds_counts(tmp_path: Path) -> None:
    """A changed parser changes ReAct and not CoT-SC; a changed vote the other way round."""
    program = (
        "import sys; from pathlib import Path; from runner import registry\n"
        "real = Path.read_bytes\n"
        "Path.read_bytes = lambda p: real(p) + (b'#' if p.name == sys.argv[1] else b'')\n"
        "print(*(registry.code_version(registry.method_class(m)) for m in ('react', 'cot_sc', 'react_then_cot_sc')))"
    )

    def versions(edited: str) -> list[str]:
        command = [sys.executable, "-c", program, edited]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()

    plain = versions("nothing")
    same = {name: [a == b for a, b in zip(versions(name), plain, strict=True)] for name in
            ("parsing.py", "voting.py", "prompts.py", "ledger.py", "react_then_cot_sc.py")}  # fmt: skip
    assert same == {
        "parsing.py": [False, True, False],
        "voting.py": [True, False, False],
        "prompts.py": [False, False, False],
        "ledger.py": [True, True, True],
        "react_then_cot_sc.py": [True, True, False],
    }


def test_a_class_typed_into_a_notebook_is_versioned_by_its_functions() -> None:
    program = """
import sys, types
from runner.registry import code_version
versions = []
for answer in ("a", "b", "a"):
    module = types.ModuleType("cell")
    sys.modules["cell"] = module
    exec(sys.argv[1].format(answer=answer), vars(module))
    versions.append(code_version(module.Own))
print(versions[0] == versions[2], versions[0] == versions[1])
"""
    command = [sys.executable, "-c", program, OWN]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout == "True False\n"
    )


# ---------------------------------------------------------------- jobs from objects


class Parrot(Model):
    """A provider of one's own."""

    provider: ClassVar[str] = "parrot"
    word: str = Field("yes", description="What it says.")

    async def call(self, call: Call) -> Reply:
        return Reply([Choice(f"Answer: {self.word}")] * call.n)


async def test_a_job_of_ones_own_world_method_and_model_runs(tmp_path: Path) -> None:
    class Echo(Method):
        name: ClassVar[str] = "echo"

        async def solve(self, ep: Any) -> None:
            (draw,) = await ep.sample("Say it.")
            ep.answer = draw.text

    job = Job.of(Numbers(count=2), Echo(), Parrot(word="no"), name="own", limit=1)
    run = await library.run(job, outputs=tmp_path, progress=False)
    (row,) = run.trajectories
    assert (row["answer"], row["env"], row["method"], row["model"]) == (
        "Answer: no",
        "numbers",
        "echo",
        "policy",
    )
    assert run.manifest["job"]["models"]["policy"]["word"] == "no"


def test_a_job_of_objects_can_be_read_back_where_they_have_names() -> None:
    methods = {"few": CotSC(samples=3), "react": React()}
    job = Job.of(HotpotQA(), methods, scripted(["x"]), limit=3, ids=("a", 1), limits=Limits(max_episodes=7))
    raw = json.loads(json.dumps(job.raw))
    assert (raw["ids"], raw["limits"]) == (["a", "1"], {"max_episodes": 7, "episode_draws": 2000} | NO_BUDGET)
    again = Job.parse(raw)
    assert (again.methods, again.worlds, again.settings.limits) == (
        job.methods,
        job.worlds,
        job.settings.limits,
    )
    assert again.shape() == job.shape()


def test_objects_from_a_file_are_named_by_that_file(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN.format(answer="a"))
    job = Job.of(HotpotQA(), method_class(f"{path}:Own")(), scripted(["x"]))
    assert job.raw["methods"]["own"]["method"] == f"{path}:Own"
    assert type(Job.parse(job.raw).methods["own"]) is type(job.methods["own"])


def test_a_wrong_setting_of_a_job_of_objects_is_said() -> None:
    with pytest.raises(JobError, match=r"job \(limmit\): unknown key 'limmit'; did you mean 'limit'\?"):
        Job.of(HotpotQA(), Cot(), scripted(["x"]), limmit=3)
