"""Prompts: a world's examples in the form of each prompting style, and how a prompt becomes messages.

The styles are the ReAct paper's ablations of one set of worked examples (section 3.2): `react` keeps
everything, `act` drops the thoughts, `cot` the actions and observations, `standard` both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import orjson

from envs.base import DataError, Exemplar, Task, World
from envs.data import find
from envs.tables import listed, nearest
from runner.models.base import Text, Turn

Style: TypeAlias = Literal["standard", "cot", "act", "react"]
Prompt: TypeAlias = str | Text

FILE_KEYS: Mapping[str, str] = {"standard": "webqa", "cot": "cotqa", "act": "webact", "react": "webthink"}
"""What the public repository's prompt files call each style."""

CONTINUE = (
    "The user's message is an unfinished text. Reply with its continuation only, in exactly the form the "
    "examples in it have, beginning right after its last character. Do not repeat or explain anything."
)
"""The system message with which a chat model is asked to go on with a raw prompt."""


def opening(world: World, style: Style, task: Task) -> Text:
    """Instruction and examples, then the task's own introduction and a newline. The first part is the same
    object for all tasks, so that it is encoded once."""
    return few_shot(world, style) + (world.introduce(task) + "\n")


def few_shot(world: World, style: Style) -> Text:
    """What stands before the task: from the job's prompt files as they are, else instruction and examples
    of the world. Raises DataError when no key, or more than one, fits."""
    made: Text | None = world.made.get(style)
    if made is None:
        _check_keys(world.prompt_keys, world.prompts)
        made = world.made[style] = Text(
            _from_files(world.prompts, style, world.prompt_keys) if world.prompts else _built(world, style)
        )
    return made


def _built(world: World, style: Style) -> str:
    instruction = world.instruction(style)
    if instruction and not instruction.endswith("\n"):
        instruction += "\n"
    return instruction + "".join(example(world.introduction, shot, style) for shot in world.exemplars())


def example(label: str, shot: Exemplar, style: Style) -> str:
    """One worked example in a style, ending with a newline."""
    head = f"{label}: {shot.input}\n"
    if style == "standard":
        return f"{head}Answer: {shot.answer}\n"
    if style == "cot":
        return f"{head}Thought: {shot.reasoning}\nAnswer: {shot.answer}\n"
    lines = [head]
    for i, (thought, action, observation) in enumerate(shot.steps, 1):
        if style == "react":
            lines.append(f"Thought {i}: {thought}\n")
        lines.append(f"Action {i}: {action}\n")
        if i < len(shot.steps):
            lines.append(f"Observation {i}: {observation}\n")
    return "".join(lines)


def _from_files(files: Sequence[Path], style: Style, keys: Mapping[str, str]) -> str:
    texts: dict[str, str] = {}
    for file in files:
        texts.update(_read(file))
    where = ", ".join(str(file) for file in files)
    instruction = keys.get(f"{style}_instruction") or next(
        (name for name in texts if name.endswith(f"_{style}_instruction")), None
    )
    chosen = [instruction] if instruction else []
    chosen.append(keys.get(style) or _choose(texts, style, where))
    for key in chosen:
        if key not in texts:
            raise DataError(
                f"{where}: no prompt {key!r}{nearest(key, texts)}; there are: {listed(sorted(texts))}"
            )
    return "".join(texts[key] for key in chosen)


def _choose(texts: Mapping[str, str], style: Style, where: str) -> str:
    """The public files' own choice: `…_simple6` (HotpotQA) or `…_simple3` (FEVER), else the only one."""
    begin = FILE_KEYS[style]
    named = [key for key in texts if key.startswith(begin)]
    usual = [key for key in (f"{begin}_simple6", f"{begin}_simple3") if key in named]
    for fitting in (usual, named):
        if len(fitting) == 1:
            return fitting[0]
    if usual:
        why = f"both {usual[0]} and {usual[1]} are there"
    elif named:
        why = f"several begin with {begin!r}: {listed(sorted(named))}"
    else:
        why = f"none begins with {begin!r}; there are: {listed(sorted(texts))}"
    raise DataError(
        f"{where}: which prompt serves {style!r}? {why}. Name one in the job: prompt_keys = {{{style} = '...'}}"
    )


def _check_keys(keys: Mapping[str, str], files: Sequence[Path]) -> None:
    known = [*FILE_KEYS, *(f"{style}_instruction" for style in FILE_KEYS)]
    for key in keys:
        if key not in known:
            raise DataError(
                f"prompt_keys: no style {key!r}{nearest(key, known)}; there are: {listed(sorted(known))}"
            )
    if keys and not files:
        raise DataError("prompt_keys: names keys of prompt files, and `prompts` names no file")


def _read(file: Path) -> dict[str, str]:
    try:
        content = orjson.loads(find(file).read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DataError(f"{file}: not JSON ({error})") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
        raise DataError(f"{file}: a prompt file is one JSON object of names and texts")
    return content


def to_turns(prompt: Prompt, api: Literal["completions", "chat"]) -> tuple[Turn, ...]:
    """How a prompt goes to an endpoint.

    `completions`: as it is, one turn of role `prompt`. `chat`: a system message that asks for the
    continuation (`CONTINUE`), then the whole prompt as one user message.
    """
    text = Text(prompt) if isinstance(prompt, str) else prompt
    if api == "completions":
        return (Turn("prompt", text),)
    return (_GO_ON, Turn("user", text))


_GO_ON = Turn("system", Text(CONTINUE))
