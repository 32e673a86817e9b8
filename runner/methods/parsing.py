"""What models write, read: one parser for thoughts and actions.

It takes `Search[Foo [bar]]`, a missing closing bracket, lower case, markdown around the words, full-width
signs, `Search("Foo")`, two actions in one reply (the first counts), an action on the thought's own line, an
observation that the model invented (cut off) and an answer over two lines. `reference_split` and
`reference_action` are the public ReAct code's own rules, accidents included.

Replies may be of any length: every pattern is anchored and possessive, so that reading takes linear time.
"""

from __future__ import annotations

import re

_NUMBER = r"(?:[ \t]*+\d++)?+"
_MARKS = r"[ \t>*_#`-]*+"
_COLON = r"[:：][ \t*_]*+"
_VERB = r"[^\W\d_]\w*+"
_OPEN = r"[ \t*`]*+[\[［【]"

_MARKER = re.compile(
    rf"^{_MARKS}(?P<word>thought|action|observation){_NUMBER}"
    rf"(?:{_MARKS}{_COLON}(?:(?P=word){_NUMBER}{_MARKS}{_COLON})*+|(?<=\d){_MARKS}$)",
    re.IGNORECASE | re.MULTILINE,
)
"""`Thought 1:`, `**Action:**`, `action 2：`, an echo `Thought 1: Thought 1:`, or a line of just `### Action 1`."""
_INLINE = re.compile(rf"\baction{_NUMBER}{_MARKS}{_COLON}`*+(?={_VERB}{_OPEN})", re.IGNORECASE)
"""A marker amid a line, with an action after it."""
_BARE = re.compile(rf"{_MARKS}(?P<action>{_VERB}{_OPEN})")
_MENTION = re.compile(rf"(?<!\w)(?P<action>{_VERB}[\[［【])")
_FENCE = re.compile(r"^[ \t]*+```\w*+[ \t]*+$\n?", re.MULTILINE)

_ACTION = re.compile(rf"(?<!\w)_*+(?P<verb>{_VERB})[ \t*`]*+\[")
_CALL = re.compile(rf"(?P<verb>{_VERB})\((?:\w++[ \t]*+=[ \t]*+(?=[\"']))?+")
_WIDE = str.maketrans("［］【】（）", "[][]()")
_CLOSING = frozenset("]］】")
_QUOTES = "\"'`“”"
_EDGES = "*`" + "".join(filter(str.isspace, map(chr, range(0x3001))))
_AFTER = _EDGES + ".,;!\"'"
"""What may follow an action's bracket and say nothing."""


def split(text: str) -> tuple[str, str | None]:
    """(thought, action text) of one reply; the action is None where there is none to be found.

    The reply continues a prompt that ends in `Thought i:`, so text before the first marker is thought.
    """
    thoughts: list[str] = []
    action = None
    for word, piece in _pieces(_FENCE.sub("", text.replace("\r\n", "\n"))):
        if word == "observation":
            break  # invented: the world has not spoken yet
        if word == "action" and piece:
            action = piece
            break
        if piece and piece not in thoughts[-1:]:
            thoughts.append(piece)
    thought = "\n".join(thoughts)
    if action is None:
        thought, action = _unmarked(thought)
    if thought.count("**") % 2:
        thought = thought.strip().strip("*")
    return thought.strip(), action


def _pieces(text: str) -> list[tuple[str, str]]:
    """The text cut at its markers: (marker word or "" for what stands before the first, stripped text)."""
    pieces, at, word = [], 0, ""
    for mark in _MARKER.finditer(text):
        pieces.append((word, text[at : mark.start()].strip()))
        at, word = mark.end(), mark["word"].lower()
    pieces.append((word, text[at:].strip()))
    return pieces


def _unmarked(thought: str) -> tuple[str, str | None]:
    """The thought cut before an action that no marker at a line's start announces: one after a marker amid a
    line, on a line of its own, or `Verb[...]` at the very end."""
    if inline := _INLINE.search(thought):
        return thought[: inline.start()], thought[inline.end() :].strip()
    start, end = 0, len(thought)
    for line in thought.split("\n"):
        closed = line.rstrip(_AFTER).endswith(tuple(_CLOSING))
        found = _BARE.match(line)
        if found and not closed and _CLOSING & set(line):
            found = None  # prose goes on after the bracket
        if found is None and closed and start + len(line) == end:
            found = next((m for m in _MENTION.finditer(line) if m["action"][0].isupper()), None)
        if found:
            at = start + found.start("action")
            return thought[:at].rstrip(" \t>*_#`-"), thought[at:].strip()
        start += len(line) + 1
    return thought, None


def canonical_action(text: str) -> str:
    """The action as worlds take it: `verb[argument]` with a lower-case verb, on one line.

    Text in which nothing has that form comes back as its first line; the world will call it invalid.
    """
    text = text.strip(_EDGES)
    return _read(text) or _read(text.translate(_WIDE)) or text.split("\n", 1)[0].strip(_EDGES)


def _read(text: str) -> str | None:
    line = text.split("\n", 1)[0]
    if found := _ACTION.search(line) or _ACTION.search(text):
        argument = " ".join(_argument(text[found.end() :], "[", "]").split())
        if argument[:1] == argument[-1:] == "`" or argument[:2] == argument[-2:] == "**":
            argument = argument.strip(_EDGES)
        # letter by letter, as "İ".lower() is two characters, of which one is no letter
        verb = "".join(letter.lower()[0] for letter in found["verb"]).rstrip("_")
        return f"{verb}[{argument}]"
    # `Search("x")` is an action; `go to the door (left)` is not.
    if (found := _CALL.match(line)) and line.rstrip(_AFTER).endswith(")"):
        argument = _argument(line[found.end() :], "(", ")").strip()
        if len(argument) > 1 and argument[0] in _QUOTES and argument[-1] in _QUOTES:
            argument = argument[1:-1]
        return _read(f"{found['verb']}[{argument}]")
    return None


def shown_action(action: str) -> str:
    """A canonical action as prompts show it: `Search[…]`."""
    return action[:1].upper() + action[1:]


def _argument(rest: str, opening: str, close: str) -> str:
    """What stands between the brackets, given the text after the opening one."""
    line = rest.split("\n", 1)[0]
    if close not in line and close in rest:
        end = _matching(rest, opening, close)
        if end >= 0:
            return rest[:end]  # an answer over two lines
    end = _matching(line, opening, close)
    if end < 0:  # closing brackets are missing, at least the last one
        head = line[: line.rfind(close) + 1] or line
        return head + close * (head.count(opening) - head.count(close))
    whole, after = line.rstrip(_AFTER), line[end + 1 :]
    if (
        whole.endswith(close)
        and after.count(close) > after.count(opening)
        and after.strip(_AFTER + close)  # else just one too many
    ):
        return whole[:-1]  # a lone closing bracket inside: `Finish[Ravenna (] , also]`
    return line[:end]


def _matching(text: str, opening: str, close: str) -> int:
    """Where the bracket before the text is closed, -1 for nowhere."""
    depth = 1
    for at, character in enumerate(text):
        depth += (character == opening) - (character == close)
        if depth == 0:
            return at
    return -1


def reference_split(text: str, i: int) -> tuple[str, str | None]:
    """The public code's rule: exactly one `\\nAction i: ` or no action, and then the thought is the first
    line (ysymyth/ReAct, hotpotqa.ipynb and FEVER.ipynb)."""
    parts = text.strip().split(f"\nAction {i}: ")
    if len(parts) == 2:
        return parts[0], parts[1]
    return text.strip().split("\n")[0], None


def reference_action(text: str) -> str:
    """The public code lowers the first character and hands the rest to the world as it is. (An empty action
    ended its process with an IndexError; here it is an invalid action.)"""
    return text[:1].lower() + text[1:]
