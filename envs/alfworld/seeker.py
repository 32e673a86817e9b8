"""A player by rules, who sees only what a model sees: it looks where things are usually kept, one place after another.

It plays the worked examples (`python -m envs.alfworld`), with the thoughts that stand in them, and stands in for a
model in tests of whole runs.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from envs.alfworld.catalogue import STATIONS, likely_places
from envs.alfworld.goals import Goal, Wording, parse_goal
from envs.alfworld.households import put_down

DONE = {"clean": "clean", "heat": "hot", "cool": "cool"}
"""What a thing is after each treatment."""


@dataclass(frozen=True, slots=True)
class Move:
    """An action with the thoughts before it: ReAct's sparse ones, if any, and the goal that is being pursued, as
    ReAct-IM repeats it before each action."""

    action: str
    thoughts: tuple[str, ...] = ()
    pursuit: str = ""


@dataclass(frozen=True, slots=True)
class Voice:
    """How a player words thoughts; `{...}` are filled in. Three voices make three examples."""

    plan: str
    look: str
    found: str
    treat: str
    deliver: str
    light: str
    lamp_seen: str
    again: str


VOICES: Sequence[Voice] = (
    Voice(
        plan="The task comes down to this: {parts}.",
        look="Where would {a_thing} be? Most likely in {places}. I go through them in that order, {first} first.",
        found="There is the {thing}, {name}. I pick it up.",
        treat="I have the {thing} now. Before it goes anywhere it must be {state}, and that is done at the {station}.",
        deliver="The {name} is ready. What is left is to put it in or on the {receptacle}.",
        light="With the {name} in my hand I need the {lamp}. Likely places for one are {places}, so I try {first}.",
        lamp_seen="With the {name} in my hand I need the {lamp}, which I saw at {first}.",
        again="That was one of two. I need another {thing}, and go on with my search at {first}.",
    ),
    Voice(
        plan="Step by step: {parts}.",
        look="I do not see {a_thing} from here. People keep one in {places}, so I check these, beginning at {first}.",
        found="This place has {name}, just what I need, so I take it.",
        treat="{name} is in my hand, but it is not {state} yet. I bring it to the {station}.",
        deliver="Now {name} can go to its place, the {receptacle}.",
        light="I hold {name}. Next comes the {lamp}; it could stand on {places}. I look at {first}.",
        lamp_seen="I hold {name}. The {lamp} is at {first}, as I saw before, and can be used now.",
        again="The first {thing} is in its place. A second one is missing, and {first} is where I look now.",
    ),
    Voice(
        plan="What I have to do: {parts}.",
        look="A good guess for {a_thing} is {places}. I start at {first}.",
        found="I found it: {name}. My hands are free to take it.",
        treat="The next part is to make {name} {state}. For that I go to the {station}.",
        deliver="This part is done too. I carry {name} to the {receptacle} and leave it there.",
        light="Having {name}, I now look for the {lamp}, which may be at {places}. First {first}.",
        lamp_seen="Having {name}, I turn on the {lamp}. It was at {first}.",
        again="One {thing} is done, one is to come. I continue at {first}.",
    ),
)


def room(first: str) -> list[str]:
    """The receptacles of a game's first text, in its order: `cabinet 4`, `cabinet 3`, ..."""
    return _names(first.split("Your task is to:")[0])


def goal_text(first: str) -> str:
    """The goal in a game's first text."""
    return first.split("Your task is to:")[-1].strip()


def seek(
    first: str, wording: Wording = "put", voice: Voice = VOICES[0], after: Sequence[str] = ()
) -> Generator[Move, str, None]:
    """Moves for a game, given its first text; each is answered by `send(observation)`. Ends where the rules know
    nothing more to do: the task is done, or all places have been looked at. `after`: receptacles that are looked at
    later than they would be."""
    goal = parse_goal(goal_text(first))
    if goal is not None:
        player = _Player(goal, room(first), wording, voice, frozenset(after))
        yield from player.play()


def answer(prompt: str, wording: Wording = "put") -> str:
    """What such a player says to a whole prompt, as a model would: the next action; `look` where it knows nothing more
    to do. It depends on nothing but the prompt."""
    first, *turns = prompt.split("\nHere is the task.\n")[-1].removesuffix("\n>").split("\n> ")
    player = seek(first, wording)
    try:
        move = next(player)
        for turn in turns:
            line, _, observation = turn.partition("\n")
            if line == move.action:
                move = player.send(observation)
        return move.action
    except StopIteration:
        return "look"


@dataclass
class _Player:
    goal: Goal
    places: list[str]
    wording: Wording
    voice: Voice
    after: frozenset[str]
    at: str = ""
    looked: set[str] = field(default_factory=set)
    """Where all that is there was seen."""
    searched: set[str] = field(default_factory=set)
    seen: dict[str, str] = field(default_factory=dict)
    """Things seen and not taken, and where."""
    say: list[str] = field(default_factory=list)
    """Thoughts before the next action."""

    def play(self) -> Generator[Move, str, None]:
        goal, thing = self.goal, self.goal.thing
        self.say.append(self.voice.plan.format(parts=_listed(_parts(goal))))
        for time in range(2 if goal.kind.short == "puttwo" else 1):
            item = yield from self._find(thing, self.voice.look if time == 0 else self.voice.again)
            if item is None:
                return
            self.say.append(self.voice.found.format(thing=thing, name=item))
            yield from self._do(f"take {item} from {self.at}", f"I need to take {item}.")
            self.seen.pop(item)
            if goal.lamp:
                yield from self._light(item)
                return
            if goal.kind.treatment:
                yield from self._treat(item, goal.kind.treatment)
            yield from self._deliver(item)

    def _find(self, thing: str, thought: str) -> Generator[Move, str, str | None]:
        """Go where one is; gives its name."""
        places = self._order(thing)
        known = next((item for item in self.seen if _kind(item) == thing), None)
        first = self.seen[known] if known else (places[0] if places else "nowhere")
        self.say.append(
            thought.format(thing=thing, a_thing=_a(thing), places=_likely(places, thing), first=first)
        )
        pursuit = f"I need to find {_a(thing)}."
        for place in [first] if known else places:
            here = yield from self._visit(place, pursuit)
            self.searched.add(place)
            if item := next((item for item in here if _kind(item) == thing), None):
                return item
        return None

    def _light(self, item: str) -> Generator[Move, str, None]:
        lamp = self.goal.lamp
        places = [place for place in self._order(lamp, anew=True) if place not in self.looked] or [self.at]
        known = next((name for name in self.seen if _kind(name) == lamp), None)
        first = self.seen[known] if known else places[0]
        thought = self.voice.lamp_seen if known else self.voice.light
        self.say.append(thought.format(name=item, lamp=lamp, places=_likely(places, lamp), first=first))
        pursuit = f"I need to find {_a(lamp)}."
        for place in [first] if known else places:
            here = [known] if known and place == self.at else (yield from self._visit(place, pursuit))
            if name := next((name for name in here if name and _kind(name) == lamp), None):
                yield from self._do(f"use {name}", f"I need to use the {lamp} with {item} in hand.")
                return

    def _treat(self, item: str, treatment: str) -> Generator[Move, str, None]:
        station = self._one(STATIONS[treatment].lower())
        self.say.append(
            self.voice.treat.format(
                thing=_kind(item), name=item, state=DONE[treatment], station=_kind(station)
            )
        )
        pursuit = f"I need to {treatment} {item} with the {_kind(station)}."
        if self.at != station:
            self._note((yield from self._do(f"go to {station}", pursuit)), station)
        yield from self._do(f"{treatment} {item} with {station}", pursuit)

    def _deliver(self, item: str) -> Generator[Move, str, None]:
        target = self._one(self.goal.receptacle)
        self.say.append(self.voice.deliver.format(name=item, receptacle=self.goal.receptacle))
        pursuit = f"I need to put {item} in or on the {self.goal.receptacle}."
        yield from self._visit(target, pursuit)
        yield from self._do(put_down(item, target, self.wording), pursuit)

    def _visit(self, place: str, pursuit: str) -> Generator[Move, str, list[str]]:
        """Go to a place and open it if it is closed; gives what is there."""
        here: list[str] = []
        if self.at != place:
            observation = yield from self._do(f"go to {place}", pursuit)
            here = self._note(observation, place)
            if "is closed." in observation:
                observation = yield from self._do(f"open {place}", pursuit)
                here = self._note(observation, place)
        return here

    def _note(self, observation: str, place: str) -> list[str]:
        self.at = place
        here = _names(observation.partition("you see")[2])
        self.seen |= dict.fromkeys(here, place)
        if "is closed." not in observation:
            self.looked.add(place)
        return here

    def _do(self, action: str, pursuit: str) -> Generator[Move, str, str]:
        thoughts, self.say = tuple(self.say), []
        observation = yield Move(action, thoughts, pursuit)
        return observation

    def _order(self, thing: str, anew: bool = False) -> list[str]:
        """Places to look for a thing, the likely kinds first, each kind by number; not where two are to be put."""
        likely = likely_places(thing)
        rank = {kind: k for k, kind in enumerate(likely)}
        left = [
            place
            for place in self.places
            if (anew or place not in self.searched)
            and not (self.goal.kind.short == "puttwo" and _kind(place) == self.goal.receptacle)
        ]
        return sorted(
            left, key=lambda place: (place in self.after, rank.get(_kind(place), 99), *_by_number(place))
        )

    def _one(self, kind: str) -> str:
        """The first receptacle of a kind."""
        return min(
            (place for place in self.places if _kind(place) == kind), key=_by_number, default=f"{kind} 1"
        )


def _names(text: str) -> list[str]:
    return re.findall(r"\ban? (\w+ \d+)", text)


def _kind(name: str) -> str:
    return name.split(" ")[0]


def _by_number(name: str) -> tuple[str, int]:
    kind, number = name.split(" ")
    return kind, int(number)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _likely(places: Sequence[str], thing: str) -> str:
    """Those of the places where the thing may well be, four kinds of them at most; all, where it is not known."""
    there = {_kind(place) for place in places}
    kinds = [kind for kind in likely_places(thing) if kind in there][:4]
    return _listed(_ranges([place for place in places if _kind(place) in kinds] or places), "or")


def _parts(goal: Goal) -> list[str]:
    """A goal in its parts."""
    if goal.lamp:
        return [f"find {_a(goal.thing)}", "take it", f"find {_a(goal.lamp)}", "turn it on while I hold it"]
    treatment = [f"{goal.kind.treatment} it"] if goal.kind.treatment else []
    parts = [f"find {_a(goal.thing)}", "take it", *treatment, f"put it in or on the {goal.receptacle}"]
    return [*parts, f"do the same with a second {goal.thing}"] if goal.kind.short == "puttwo" else parts


def _ranges(places: Sequence[str]) -> list[str]:
    """`drawer (1-3)`, `countertop (1)` for places of one kind."""
    numbers: dict[str, list[str]] = {}
    for place in places:
        kind, number = place.split(" ")
        numbers.setdefault(kind, []).append(number)
    return [f"{kind} ({n[0]}{'-' + n[-1] if len(n) > 1 else ''})" for kind, n in numbers.items()]


def _listed(words: Sequence[str], last: str = "then") -> str:
    return ", ".join(words[:-1]) + (f", {last} " if words[1:] else "") + "".join(words[-1:])
