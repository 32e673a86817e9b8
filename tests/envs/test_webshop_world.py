"""WebShop as a world: its tasks and prompts, and whole runs in it."""

import json
from pathlib import Path

import orjson
import pytest
from pydantic import ValidationError

from envs.base import DataError, Outcome, Task, WorldError
from envs.webshop import examples, world
from envs.webshop.goals import Goal
from envs.webshop.world import WebShop
from runner import library
from runner.errors import EpisodeFailed
from runner.job import Job
from runner.methods.act import Act
from runner.methods.react import React
from runner.methods.react_im import ReactIM
from runner.models.scripted import scripted
from tests.shoppers import shopper
from tests.webshop_large import make as make_large
from tests.webshop_large import search, write_files

SMALL = {"count": 240, "recent": 0}


# -- tasks ---------------------------------------------------------------------------------------------
def test_the_splits_are_the_first_500_goals_the_next_1000_and_the_others():
    parts = {split: list(WebShop(split=split).tasks()) for split in ("test", "dev", "train")}
    assert [len(part) for part in parts.values()] == [500, 1000, 900]
    every = list(WebShop(split="").tasks())
    assert [task.id for task in every] == [f"fixed_{number}" for number in range(2400)]
    assert [task.id for part in parts.values() for task in part] == [task.id for task in every]
    assert [task.input for part in parts.values() for task in part] == [task.input for task in every]
    assert {task.split for task in parts["dev"]} == {"dev"}
    for task in every[:20]:
        assert Goal.of(task.input, json.loads(json.dumps(task.target))).asin == task.target["asin"]


def test_tasks_depend_on_the_seed_and_the_kind_of_goals_alone():
    assert list(WebShop(**SMALL).tasks()) == list(WebShop(**SMALL).tasks())
    assert list(WebShop(**SMALL).tasks()) != list(WebShop(**SMALL, seed=1).tasks())
    synthetic = list(WebShop(**SMALL, goals="synthetic", split="").tasks())
    assert len(synthetic) > 240 and " with " in synthetic[0].input


def test_wrong_settings_are_named(tmp_path):
    with pytest.raises(ValidationError, match="there is no split 'valid'; there are: test, dev, train"):
        WebShop(split="valid")
    with pytest.raises(ValidationError):
        WebShop(shown=11)
    items = tmp_path / "items.json"
    items.write_text(json.dumps([{"asin": "B1", "name": "Mug"}]))
    for kind, setting in (("human", "people"), ("synthetic", "attributes")):
        with pytest.raises(
            DataError, match=rf"no {kind} goals; name the file of instructions \(`{setting}`\)"
        ):
            list(WebShop(source=str(items), goals=kind).tasks())
    with pytest.raises(DataError, match="nowhere"):
        list(WebShop(source=str(tmp_path / "nowhere.json")).tasks())


async def test_a_missing_package_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(world, "find_spec", lambda name: None)
    with pytest.raises(WorldError, match=r"needs pip install 'overnight\[webshop\]'") as error:
        await WebShop().open(tmp_path)
    assert "\n" not in str(error.value)


def test_a_world_that_was_closed_lists_its_tasks_again(tmp_path):
    import anyio

    shop = WebShop(**SMALL)
    before = list(shop.tasks())

    async def open_and_close():
        await shop.open(tmp_path)
        await shop.close()

    anyio.run(open_and_close)
    assert list(shop.tasks()) == before


@pytest.mark.parametrize(
    ("rewards", "reward", "success"), [((), 0, 0), ((0.0, 0.5), 0.5, 0), ((0.0, 1.0), 1, 1), ((0.0,), 0, 0)]
)
def test_scores(rewards, reward, success):
    scores = WebShop().score_outcome(Task("t", ""), Outcome(None, rewards, True))
    assert scores == {"reward": reward, "success": success}


# -- prompts -------------------------------------------------------------------------------------------
async def test_the_example_is_what_the_shop_says_today():
    assert await examples.played() == examples.embedded()
    texts = {style: examples.shots(style) for style in examples.STYLES}
    assert all(text.rstrip().endswith("1.0") for text in texts.values())
    assert "think[" not in texts["act"] and 0 < texts["react"].count("think[") < texts["react_im"].count(
        "think["
    )
    for text in texts.values():
        assert text.startswith("Webshop \nInstruction:  \n") and len(text) < 3500
    with pytest.raises(DataError, match="not for 'cot'"):
        examples.shots("cot")


async def test_the_first_prompt_is_the_example_then_the_task(tmp_path):
    model = scripted(lambda call: " click[Buy Now]")
    job = Job.of(WebShop(**SMALL), Act(steps=1), model, ids=["fixed_3"])
    (row,) = (await library.run(job, outputs=tmp_path, progress=False)).trajectories
    assert model.calls[0].request.prompt.endswith(
        f"{examples.shots('act')}\nWebshop \nInstruction:  \n{row['input']} \n[Search] \n\nAction:"
    )


async def test_prompt_files_take_the_examples_place(tmp_path):
    file = tmp_path / "prompts.json"
    file.write_bytes(orjson.dumps({"mine": "Shop well.\n", "act": "Act.\n"}))
    shop = WebShop(**SMALL, prompts=[file], prompt_keys={"react": "mine"})
    task = next(shop.tasks())
    assert shop.shots("react", task) == "Shop well.\n" and shop.shots("act", task) == "Act.\n"
    with pytest.raises(DataError, match="no prompt 'react_im'; there are: act, mine"):
        shop.shots("react_im", task)


def test_a_long_prompt_keeps_the_example_and_its_end():
    shop = WebShop(count=240, recent=4000)
    example = shop.shots("react", next(shop.tasks()))
    assert shop.window(example + "x" * 100) is None
    prompt = example + "".join(f"{number:05}" for number in range(2000))
    cut = shop.window(prompt)
    assert len(cut) == 4000 and cut.startswith(example) and cut.endswith("01998" + "01999")
    assert WebShop(recent=0).window(prompt) is None


# -- runs ----------------------------------------------------------------------------------------------
def job_of(methods, model, **settings):
    shop = WebShop(**{**SMALL, **settings})
    return Job.of(shop, methods, model, limit=12), shop


async def test_each_method_buys_what_is_asked_for(tmp_path):
    methods = {method.name: method for method in (Act(), React(), ReactIM())}
    policy = shopper(WebShop(**SMALL).tasks())
    run = await library.run(job_of(methods, scripted(policy), shown=10)[0], outputs=tmp_path, progress=False)
    rows = list(run.trajectories)
    assert len(rows) == 36 and {row["status"] for row in rows} == {"finished"}
    assert all(row["scores"] == {"reward": 1.0, "success": 1.0} for row in rows)
    assert all(row["answer"] == row["target"]["asin"] for row in rows)
    assert all(row["steps"][-1]["action"] == "click[Buy Now]" for row in rows)


async def test_thoughts_are_answered_and_shown(tmp_path):
    policy = shopper(WebShop(**SMALL).tasks(), thinks=True)
    job, _ = job_of({"react": React()}, model := scripted(policy), shown=10)
    run = await library.run(job, outputs=tmp_path, progress=False)
    assert all(row["scores"]["success"] == 1 for row in run.trajectories)
    assert any(
        "\n\nAction: think[I have to look for it first.]\nObservation: OK.\n\nAction:"
        in str(call.request.prompt)
        for call in model.calls
    )


async def test_an_episode_without_a_purchase_scores_nothing_and_loops_are_noted(tmp_path):
    job, _ = job_of({"act": Act(steps=5)}, scripted(lambda call: " click[Back to Search]"))
    run = await library.run(job, outputs=tmp_path, progress=False)
    for row in run.trajectories:
        assert row["status"] == "step_limit" and row["scores"] == {"reward": 0.0, "success": 0.0}
        assert row["flags"] == ["repeats"] and row["n_steps"] == 5


async def test_an_interrupted_purchase_goes_on_where_it_was(tmp_path):
    policy, broken = shopper(WebShop(**SMALL).tasks()), {"yes": True}

    def script(call):
        said = policy(call)
        if broken["yes"] and said == " click[Buy Now]":
            raise EpisodeFailed("no more")
        return said

    job, _ = job_of({"act": Act()}, scripted(script), shown=10)
    run = await library.run(job, outputs=tmp_path, progress=False)
    assert {row["status"] for row in run.trajectories} == {"error"}
    broken["yes"] = False
    job, _ = job_of({"act": Act()}, model := scripted(script), shown=10)
    run = await library.resume(run.path, job=job, progress=False)
    assert all(row["scores"]["success"] == 1 for row in run.trajectories)
    assert len(model.calls) == 12  # of each episode only the purchase


async def test_the_ready_job_runs_with_another_model(tmp_path):
    file = Path(__file__).parents[2] / "jobs" / "webshop.toml"
    words = ['models.policy={provider="scripted",replies=[" search[lamp]", " click[Buy Now]"]}', "limit=2"]
    run = await library.run(Job.read(file, words), outputs=tmp_path, progress=False)
    assert len(list(run.trajectories)) == 4 and run.status == "finished"


# -- a large shop --------------------------------------------------------------------------------------
def test_the_proof_of_a_large_shop_in_small(tmp_path):
    """What `python -m tests.full webshop` does at 1.18 million products."""
    write_files(tmp_path, 1500, words=3000)
    assert make_large(tmp_path)["index_mb"] > 1
    found = search(tmp_path, 40)
    assert found["products"] == 1500 and found["full_share"] > 0.9 and found["goals"] > 1500
    shop = WebShop(
        source=str(tmp_path / "items.json"),
        attributes=tmp_path / "attributes.json",
        goals="synthetic",
        split="dev",
    )
    tasks = list(shop.tasks())
    assert len(tasks) == 1000 and tasks[0].id == "fixed_500"
