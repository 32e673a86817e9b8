"""The Java machine in which ScienceWorld's simulator runs: whether it can be there, and how it is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from envs.base import WorldError

PACKAGE = "scienceworld"
OPTIONS = (
    "-XX:+UseSerialGC",  # the other collectors take a thread a core and half as much memory again
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # the same identity hash for all: sets and maps then keep the order of insertion
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # the random generator's state is read by reflection
)


def missing() -> str:
    """What has to be installed before an engine can start, in one line; "" for nothing."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "ScienceWorld's simulator is not installed; run: pip install 'overnight[scienceworld]'"
    if java() is None:
        return (
            "ScienceWorld's simulator needs Java 11 or newer, and there is no `java` on PATH or in JAVA_HOME; "
            "install one (Debian: apt install default-jre-headless, macOS: brew install openjdk)"
        )
    return ""


def java() -> str | None:
    """The Java to be used: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (own := shutil.which("java", path=str(Path(home) / "bin"))):
        return own
    return shutil.which("java")


def start(heap: int) -> Any:
    """The gateway to a new Java machine with at most `heap` megabytes of heap; it ends with this process, also with one
    that is killed. Raises WorldError, with what to do, where there is no package, no Java or too old a one."""
    if problem := missing():
        raise WorldError(problem)
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from scienceworld.constants import JAR_PATH

    program = java()
    try:
        port, token, process = launch_gateway(
            classpath=JAR_PATH,
            javaopts=[f"-Xmx{heap}m", *OPTIONS],
            java_path=program,
            die_on_exit=True,
            enable_auth=True,  # what listens on a port of this machine obeys only its owner
            return_proc=True,
            cwd=tempfile.gettempdir(),  # it leaves a file where it stands
        )
    except ValueError as error:  # no port was printed
        said = subprocess.run([str(program), "-version"], capture_output=True, text=True, check=False).stderr
        raise WorldError(
            f"Java did not start with a heap of {heap} MB ({program}: {said.split(chr(10))[0]}); ScienceWorld "
            "needs Java 11 or newer, and `heap` may be too large for this machine"
        ) from error
    parameters = GatewayParameters(port=port, auth_token=token)
    return JavaGateway(gateway_parameters=parameters, java_process=process)
