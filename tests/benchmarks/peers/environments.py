"""Who is measured, and where each one's environment is: a virtual environment per peer, made on demand only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from envs.data import cache_folder

DONE = "installed.txt"
"""Written last into an environment: the packages that it was made with."""
TOLD = ("httpx", "httpx2", "aiohttp", "openai", "pyreqwest", "uvloop")
"""Packages whose versions say what a peer's calls go through, beside its own."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One that is measured: a script, run by the Python of `environment` ("" is the one that measures)."""

    script: str
    environment: str = ""
    packages: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    steps: bool = False
    """Whether it also does the job of eight calls an episode."""


OPENAI = ("openai[aiohttp]==3.57.0",)
PEERS = {
    "overnight": Peer("ours.py", steps=True),
    "bare pyreqwest": Peer("bare_pyreqwest.py", steps=True),
    "bare httpx": Peer("bare_httpx.py", "httpx", ("httpx==0.28.1",)),
    "openai": Peer("openai_sdk.py", "openai", OPENAI),
    "openai, aiohttp": Peer("openai_sdk.py", "openai", OPENAI, ("aiohttp",)),
    "litellm": Peer("litellm_loop.py", "litellm", ("litellm==1.110.2",)),
    "curator": Peer("curator_llm.py", "curator", ("bespokelabs-curator==0.1.31",)),
    "lm-eval": Peer("lmeval.py", "lm-eval", ("lm-eval[api]==0.4.13",)),
    "inspect-ai": Peer(
        "inspect_eval.py",
        "inspect-ai",
        ("inspect-ai==0.3.285", "openai==3.57.0", "uvloop==0.23.0"),
        steps=True,
    ),
    "verifiers": Peer("verifiers_env.py", "verifiers", ("verifiers==0.1.14",), steps=True),
}
OURS = "overnight"
FLOOR = "bare pyreqwest"


def default_folder() -> Path:
    return cache_folder() / "benchmarks"


def python_of(peer: Peer, folder: Path) -> Path:
    return folder / peer.environment / "bin" / "python" if peer.environment else Path(sys.executable)


def lacking(peer: Peer, folder: Path) -> str:
    """Why a peer cannot be measured; empty if it can."""
    if not peer.environment:
        return ""
    done = folder / peer.environment / DONE
    if not done.exists():
        return "not installed; `--install` makes it, in the folder that `--environments` names"
    if (made := done.read_text("utf-8").split()) != list(peer.packages):
        return f"installed as {', '.join(made)}, wanted as {', '.join(peer.packages)}"
    return ""


def install(names: Iterable[str], folder: Path) -> list[str]:
    """Makes the environments that are lacking; the names of those that could not be made."""
    failed: list[str] = []
    for name in names:
        peer = PEERS[name]
        if not lacking(peer, folder):
            continue
        place, python = folder / peer.environment, python_of(peer, folder)
        sys.stderr.write(f"{name}: {', '.join(peer.packages)}\n")
        (place / DONE).unlink(missing_ok=True)
        try:
            _run(sys.executable, "-m", "venv", place)
            _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages)
            # as an installed package has it: no start-up is measured that compiles first; some packages hold
            # files of other Pythons, which do not compile
            subprocess.run([python, "-m", "compileall", "-qq", place / "lib"], check=False)
        except (subprocess.CalledProcessError, OSError) as error:
            sys.stderr.write(f"{name}: cannot be installed ({error})\n")
            failed.append(name)
        else:
            (place / DONE).write_text("\n".join(peer.packages) + "\n", encoding="utf-8")
    return failed


def _run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=sys.stderr)


def versions(peer: Peer, folder: Path) -> dict[str, str]:
    """Versions of a peer's packages and of those that its calls go through, as they are installed."""
    names = [package.partition("==")[0].partition("[")[0] for package in peer.packages]
    code = """
import importlib.metadata as m, json, sys
found = {}
for name in sys.argv[1:]:
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""
    words = [python_of(peer, folder), "-c", code, *dict.fromkeys([*names, *TOLD])]
    told = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(told.stdout))
