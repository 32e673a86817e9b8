"""Where data sets lie, and which ones `overnight fetch` brings there.

The files are the publishers' own, byte for byte; their licences are named beside them. `runner.fetch` does
the bringing.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from envs.base import DataError
from envs.tables import nearest

_RAW = "https://raw.githubusercontent.com"
_REACT = f"{_RAW}/ysymyth/ReAct/6bdb3a1fd38b8188fc7ba4102969fe483df8fdc9"
_GSM8K = f"{_RAW}/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data"
_SVAMP = f"{_RAW}/arkilpatel/SVAMP/689d7ccac74b9983a2ac7cc3b264f441b99e7c53"
_STRATEGYQA = f"{_RAW}/eladsegal/strategyqa/1ba1e97452e189569357876f2854b01357ffbe37/data/strategyqa"
_WEBSHOP = f"{_RAW}/princeton-nlp/WebShop/64fa2a5c15c7daa698b9ac93f5bb5437b634c9bd/baseline_models/data"
_HOTPOT = (
    "http://curtis.ml.cmu.edu/datasets/hotpot"  # its HTTPS is broken; the checksum vouches for the bytes
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: where it goes (relative to the data folder), its addresses in the order to try, and its
    sha256 (64 hex digits), or "" where the publisher may change it."""

    path: str
    urls: tuple[str, ...]
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class DataSet:
    """What one name of `overnight fetch` brings."""

    name: str
    about: str
    licence: str
    files: tuple[DataFile, ...]

    def __str__(self) -> str:
        """The line of `overnight fetch --list`."""
        return f"{self.name:<40} {self.about} [{self.licence}]"


def _react_prompt(name: str, sha256: str) -> DataFile:
    return DataFile(f"prompts/react/{name}", (f"{_REACT}/prompts/{name}",), sha256)


_ALL = (
    DataSet(
        "hotpotqa",
        "7,405 multi-hop questions (dev), as the ReAct paper's code reads them, and with their paragraphs",
        "CC BY-SA 4.0",
        (
            DataFile(
                "hotpotqa/hotpot_dev_v1_simplified.json",
                (f"{_REACT}/data/hotpot_dev_v1_simplified.json",),
                "05001dcdeb2b2b2243a88f23daaf8de9237494cd387e13bc25854d3e031101d3",
            ),
            DataFile(
                "hotpotqa/hotpot_dev_distractor_v1.json",
                (f"{_HOTPOT}/hotpot_dev_distractor_v1.json",),
                "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
            ),
        ),
    ),
    DataSet(
        "hotpotqa-train",
        "90,447 training questions with their paragraphs (566 MB)",
        "CC BY-SA 4.0",
        (
            DataFile(
                "hotpotqa/hotpot_train_v1.1.json",
                (f"{_HOTPOT}/hotpot_train_v1.1.json",),
                "26650cf50234ef5fb2e664ed70bbecdfd87815e6bffc257e068efea5cf7cd316",
            ),
        ),
    ),
    DataSet(
        "fever",
        "9,999 claims to verify (paper_dev)",
        "CC BY-SA 3.0",
        (
            DataFile(
                "fever/paper_dev.jsonl",
                ("https://fever.ai/download/fever/paper_dev.jsonl", f"{_REACT}/data/paper_dev.jsonl"),
                "41158707810008747946bf23471e82df53e77a513524b9e3ec1c2e674ef5ef8c",
            ),
        ),
    ),
    DataSet(
        "gsm8k",
        "1,319 grade-school maths problems (test)",
        "MIT",
        (
            DataFile(
                "gsm8k/test.jsonl",
                (f"{_GSM8K}/test.jsonl",),
                "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            ),
        ),
    ),
    DataSet(
        "svamp",
        "1,000 arithmetic word problems",
        "MIT",
        (
            DataFile(
                "qa/svamp.json",
                (f"{_SVAMP}/SVAMP.json",),
                "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
            ),
        ),
    ),
    DataSet(
        "strategyqa",
        "229 yes/no questions whose steps are implicit (dev)",
        "MIT",
        (
            DataFile(
                "qa/strategyqa_dev.json",
                (f"{_STRATEGYQA}/dev.json",),
                "0d94842ffb022db8fd5ecd2168b785d5cf67f6faf64f665476bad544a3eb9dde",
            ),
        ),
    ),
    DataSet(
        "aqua",
        "254 algebra questions with five options (test)",
        "Apache-2.0",
        (
            DataFile(
                "qa/aqua_test.jsonl",
                (f"{_RAW}/google-deepmind/AQuA/master/test.json",),
                "de41581881ef95c5588c44ddc701c77fd480839241dd422a0d181262af24520c",
            ),
        ),
    ),
    DataSet(
        "react-prompts",
        "the prompts of the ReAct paper's code, for a world's `prompts` setting",
        "MIT",
        (
            _react_prompt(
                "prompts_naive.json", "f35e8c17bbd620b90857712484c51005f5440641a37cff0b042b82ac7f3d71b5"
            ),
            _react_prompt("fever.json", "bfd7793d8766e020a817c8a56b2228f230298fb161f9fa87fa543b4b38d46c03"),
            _react_prompt(
                "alfworld.json", "543db9ac10afbfbecbfae0c5b3ca0aac3c3016488f3a6989b2f6a8337888d686"
            ),
            _react_prompt(
                "alfworld_3prompts.json", "a10976b4ae99f4802aa9e621933bb71065ae103f2bd273a24466ab1005fbc45a"
            ),
        ),
    ),
    DataSet(
        "webshop",
        "12,087 human shopping instructions and the query of each goal (no products)",
        "MIT",
        (
            DataFile(
                "webshop/human_goals.json",
                (f"{_WEBSHOP}/human_goals.json",),
                "b68746ed66cd31fdc5f70eb3f5831a46b38163563b57a66ddcab8fd60ee0cbdc",
            ),
            DataFile(
                "webshop/goal_query_map.json",
                (f"{_WEBSHOP}/goal_query_map.json",),
                "1524f438ffbc51c7e308e635d7d9e14fa696b08f5d4300922d454ef0105cea86",
            ),
        ),
    ),
)
DATASETS: dict[str, DataSet] = {dataset.name: dataset for dataset in _ALL}


def data_folder() -> Path:
    """The folder that fetched data goes to: $OVERNIGHT_DATA, else `overnight` in the user's data folder
    ($XDG_DATA_HOME or ~/.local/share; ~/Library/Application Support on macOS; %LOCALAPPDATA% on Windows).
    It need not exist."""
    told = os.environ.get("OVERNIGHT_DATA")
    if told:
        return Path(told).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "overnight"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "overnight"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "overnight"


def cache_folder() -> Path:
    """The folder for what can be made again (indexes, pages, digests): $OVERNIGHT_CACHE, else `overnight` in
    the user's cache folder ($XDG_CACHE_HOME or ~/.cache; ~/Library/Caches on macOS). It need not exist."""
    told = os.environ.get("OVERNIGHT_CACHE")
    if told:
        return Path(told).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "overnight"
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "overnight" / "Cache"
        )
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overnight"


def find(path: str | Path) -> Path:
    """Where a data file is: at `path` as given, else at `path` within the data folder.

    Raises DataError if it is at neither place; the message names the `overnight fetch` that brings it, or
    the file whose name comes nearest.
    """
    given = Path(path).expanduser()
    if given.exists():
        return given
    there = data_folder() / given
    if there.exists():
        return there
    brought = {file.path: dataset.name for dataset in _ALL for file in dataset.files}
    looked = (
        f"{path}: no such file"
        if given.is_absolute()
        else f"{path}: no such file, here or in {data_folder()}"
    )
    name = next((name for place, name in brought.items() if there == data_folder() / place), None)
    if name:
        raise DataError(f"{looked}; bring it with: overnight fetch {name}")
    near = {
        entry.name for folder in {given.parent, there.parent} if folder.is_dir() for entry in folder.iterdir()
    }
    near |= {Path(place).name for place in brought if Path(place).parent == given.parent}
    raise DataError(f"{looked}{nearest(given.name, near)}; check `data`, or see: overnight fetch --list")
