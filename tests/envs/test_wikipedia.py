"""Reading an encyclopedia: what each action shows, and how text is cut into sentences."""

from __future__ import annotations

import ast
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.base import Observation
from envs.wikipedia import NO_PAGE, NOTHING_MORE, Compat, Page, WikiSession, fold, split_sentences


class Shelf:
    """A source of a few pages that counts how often it is asked."""

    version = "shelf"

    def __init__(self, *pages: Page, similar: tuple[str, ...] = ()) -> None:
        self.pages = {page.title: page for page in pages}
        self.similar = similar
        self.asked: list[str] = []

    async def open(self, cache: Path) -> None: ...

    async def close(self) -> None: ...

    async def search(self, entity: str) -> Page | tuple[str, ...]:
        self.asked.append(entity)
        return self.pages.get(entity, self.similar)


OSLO = Page(
    "Oslo",
    (
        "Oslo is a city. It was called Christiania until 1925. Many trams run there.",
        "See also",
        "The fjord is to the south. Oslo has a Fjord museum. The Fjord line goes to Denmark",
    ),
)


def session(*pages: Page, compat: Compat = "default", similar: tuple[str, ...] = ()) -> WikiSession:
    return WikiSession(Shelf(*pages, similar=similar), lambda answer: float(answer == "yes"), compat)


async def texts(reader: WikiSession, *actions: str) -> list[str]:
    return [(await reader.step(action)).text for action in actions]


async def test_search_shows_the_first_five_sentences_and_adds_no_full_stop() -> None:
    (shown,) = await texts(session(OSLO), "search[Oslo]")
    assert shown == (
        "Oslo is a city. It was called Christiania until 1925. Many trams run there. See also "
        "The fjord is to the south."
    )


async def test_reference_search_doubles_the_stop_at_a_paragraphs_end_and_drops_short_paragraphs() -> None:
    (shown,) = await texts(session(OSLO, compat="reference"), "search[Oslo]")
    assert shown == (
        "Oslo is a city. It was called Christiania until 1925. Many trams run there.. "
        "The fjord is to the south. Oslo has a Fjord museum."
    )


async def test_a_miss_lists_similar_titles_and_leaves_the_open_page_as_it_was() -> None:
    reader = session(OSLO, similar=("Oslofjord", "O'Slo"))
    seen = await texts(reader, "search[Oslo]", "lookup[Fjord]", "search[Osl]", "lookup[Fjord]")
    assert seen[2] == """Could not find Osl. Similar: ['Oslofjord', "O'Slo"]."""
    assert seen[3] == "(Result 2 / 3) Oslo has a Fjord museum."


async def test_lookup_walks_through_the_results_and_then_says_that_there_are_no_more() -> None:
    reader = session(OSLO)
    seen = await texts(reader, "search[Oslo]", *["lookup[fjord]"] * 4, "lookup[tram]", "lookup[fjord]")
    assert seen[1:] == [
        "(Result 1 / 3) The fjord is to the south.",
        "(Result 2 / 3) Oslo has a Fjord museum.",
        "(Result 3 / 3) The Fjord line goes to Denmark",
        NOTHING_MORE,
        "(Result 1 / 1) Many trams run there.",
        "(Result 1 / 3) The fjord is to the south.",
    ]


async def test_only_the_reference_begins_again_when_the_keyword_changes_its_case() -> None:
    actions = "search[Oslo]", "lookup[fjord]", "lookup[Fjord]"
    ours = await texts(session(OSLO), *actions)
    theirs = await texts(session(OSLO, compat="reference"), *actions)
    assert ours[2] == "(Result 2 / 3) Oslo has a Fjord museum."
    assert theirs[2] == "(Result 1 / 3) The fjord is to the south."


async def test_lookup_finds_words_written_with_other_dashes_accents_and_quotes() -> None:
    page = Page("Match", ("The score was 13–3 in Malmö. It’s known.",))
    seen = await texts(session(page), "search[Match]", "lookup[13-3]", "lookup[malmo]", "lookup[it's]")
    assert seen[1].startswith("(Result 1 / 1) The score")
    assert seen[2].startswith("(Result 1 / 1) The score")
    assert seen[3] == "(Result 1 / 1) It’s known."


async def test_a_new_page_begins_lookups_again() -> None:
    reader = session(OSLO)
    seen = await texts(reader, "search[Oslo]", "lookup[fjord]", "search[Oslo]", "lookup[fjord]")
    assert seen[3] == seen[1]


async def test_lookup_before_any_page_says_so_and_the_reference_says_no_more_results() -> None:
    assert await texts(session(OSLO), "lookup[fjord]") == [NO_PAGE]
    assert await texts(session(OSLO, compat="reference"), "lookup[fjord]") == [NOTHING_MORE]


async def test_finish_scores_ends_and_every_later_step_gives_the_same_text_without_reward() -> None:
    reader = session(OSLO)
    assert await reader.step("finish[yes]") == Observation("Episode finished, reward = 1", 1.0, True)
    assert reader.answer == "yes"
    assert await reader.step("search[Oslo]") == Observation("Episode finished, reward = 1", 0.0, True)
    assert await reader.step("finish[no]") == Observation("Episode finished, reward = 1", 0.0, True)
    assert reader.answer == "yes"
    await reader.reset()
    assert reader.answer is None
    assert await reader.step("finish[no]") == Observation("Episode finished, reward = 0", 0.0, True)


async def test_an_empty_answer_is_scored_too() -> None:
    reader = WikiSession(Shelf(), lambda answer: 0.25 if answer == "" else 0.0, "reference")
    assert await reader.step("finish[]") == Observation("Episode finished, reward = 0.25", 0.25, True)
    assert reader.answer == ""


@pytest.mark.parametrize("compat", ["default", "reference"])
@pytest.mark.parametrize(
    "action", ["Finish[yes]", "login", "lookup[a] on another site", "search", "", "]", "fin[x]", "\n"]
)
async def test_what_is_no_action_is_called_invalid_and_ends_nothing(action: str, compat: Compat) -> None:
    seen = await session(OSLO, compat=compat).step(action)
    assert seen == Observation(f"Invalid action: {action.strip()}")


async def test_thinking_is_welcome() -> None:
    assert await texts(session(), "think[I wonder]") == ["Nice thought."]


async def test_an_argument_may_hold_brackets_and_line_breaks() -> None:
    page = Page("Foo [bar]", ("A page.",))
    assert await texts(session(page), "search[Foo [bar]]", "search[Foo\n [bar]]") == ["A page.", "A page."]
    reader = session()
    await reader.step("finish[Ravenna (] , also]")
    assert reader.answer == "Ravenna (] , also"


async def test_lone_surrogates_never_reach_an_observation_or_answer() -> None:
    reader = session()
    seen = await texts(reader, "search[\ud835]", "lookup[\ud835]", "\ud835", "finish[\ud835]")
    json.dumps([*seen, reader.answer], ensure_ascii=False).encode()
    assert seen[0] == "Could not find \ufffd. Similar: []."


async def test_the_reference_removes_backslash_n_from_what_it_shows() -> None:
    page = Page("TeX", (r"It writes \newpage for a page.",))
    assert await texts(session(page, compat="reference"), "search[TeX]") == ["It writes ewpage for a page.."]
    assert await texts(session(page), "search[TeX]") == [r"It writes \newpage for a page."]


async def test_the_files_own_sentences_are_shown_as_they_are() -> None:
    own = ("Mr. X vs. Y", "is one. Sentence", "three.", "four.", "five.", "six.")
    page = Page("X", ("".join(own),), own)
    shown, found = await texts(session(page), "search[X]", "lookup[six]")
    assert shown == "Mr. X vs. Y is one. Sentence three. four. five."
    assert found == "(Result 1 / 1) six."


async def test_a_page_without_text_says_so() -> None:
    assert await texts(session(Page("Blank", ("",))), "search[Blank]") == ["The page Blank is empty."]


BEACH = Page("Beach", ("Beach may refer to:", "Beach (film), a film", "Beach, a town"))


async def test_a_disambiguation_page_shows_what_it_offers_and_is_not_opened() -> None:
    options = Page("Mercury", ("Mercury may refer to:",), None, ("Mercury (planet)", "Mercury (element)"))
    reader = session(OSLO, BEACH, options)
    seen = await texts(reader, "search[Oslo]", "search[Beach]", "search[Mercury]", "lookup[tram]")
    assert seen[1] == "Could not find Beach. Similar: ['Beach (film)', 'Beach']."
    assert seen[2] == "Could not find Mercury. Similar: ['Mercury (planet)', 'Mercury (element)']."
    assert seen[3] == "(Result 1 / 1) Many trams run there."


async def test_a_disambiguation_page_without_a_list_shows_similar_titles_or_at_least_itself() -> None:
    bare = Page("Rose", ("Rose may also refer to:",))
    assert await texts(session(bare, similar=("Rose", "Rosé")), "search[Rose]") == [
        "Could not find Rose. Similar: ['Rosé']."
    ]
    assert await texts(session(bare), "search[Rose]") == ["Rose may also refer to:"]


async def test_the_reference_searches_a_disambiguation_page_again_in_brackets() -> None:
    shelf = Shelf(BEACH, similar=("Beach", "Beaches", "a", "b", "c", "d"))
    seen = await texts(WikiSession(shelf, len, "reference"), "search[Beach]")
    assert seen == ["Could not find [Beach]. Similar: ['Beach', 'Beaches', 'a', 'b', 'c']."]
    assert shelf.asked == ["Beach", "[Beach]"]


@pytest.mark.parametrize("compat", ["default", "reference"])
async def test_a_restored_session_goes_on_without_its_source(compat: Compat) -> None:
    actions = ["search[Oslo]", "lookup[fjord]", "lookup[fjord]", "search[no]", "lookup[fjord]", "finish[yes]"]
    actions += ["lookup[x]"]
    straight = session(OSLO, compat=compat)
    expected = [await straight.step(action) for action in actions]
    reader = session(OSLO, compat=compat)
    for k, action in enumerate(actions):
        again = session(compat=compat)
        again.restore(json.loads(json.dumps(reader.snapshot())))
        if not action.startswith("search"):
            assert await again.step(action) == expected[k]
            assert again.answer == ("yes" if k >= 5 else None)
        await reader.step(action)


async def test_a_restored_page_keeps_its_own_sentences() -> None:
    reader = session(Page("X", ("A. Ba.",), ("A. Ba.",)))
    await reader.step("search[X]")
    again = session()
    again.restore(json.loads(json.dumps(reader.snapshot())))
    assert await texts(again, "lookup[b]") == ["(Result 1 / 1) A. Ba."]


# -- sentences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("J. K. Rowling wrote it. She was born in 1965.", 2),
        ("He lives in the U.S. and works for the U.S. Army. It is far.", 2),
        ("She left the U.S. The year was 1990.", 2),
        ("Dr. Watson met Mr. Holmes at St. Bartholomew. They talked.", 2),
        ("Some metals, e.g. Iron or i.e. Steel, rust.", 1),
        ("It weighs 3.5 kg. That is approx. 8 lb.", 2),
        ("Symphony No. 5 is by Ludwig van Beethoven. No. He wrote nine.", 3),
        ("It fell on Sept. 11. Nobody saw it.", 2),
        ("He worked for Apple Inc. The firm is big.", 2),
        ("Martin Luther King Jr. Day is in January.", 1),
        ("Roe v. Wade was decided. So it went.", 2),
        ("It contains vitamin C. It is sour.", 2),
        ("Yahoo! is a company. What? Yes!", 3),
        ('He said "Go." Then he left. (It rained.) Later it stopped.', 4),
        ("It has a source.[12] It has two.[3][note 4] The end.", 2),
        ("It has a source.[12] It has two.[3][4] The end.", 3),
        ("He was born c. 1500. 15 people came.", 2),
        ("They met in Washington, D.C. In 1999 they left.", 2),
        ("これは本です。それはペンです。", 2),
        ("One line\nanother line", 2),
        ("no end", 1),
        ("", 0),
        (" \n ", 0),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, sentences: int) -> None:
    assert len(split_sentences(text)) == sentences


@given(st.text() | st.text(alphabet='aB .!?\n"[1]U。'))
def test_no_character_is_lost_and_no_sentence_is_empty(text: str) -> None:
    cut = split_sentences(text)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and sentence for sentence in cut)


@given(st.text() | st.text(alphabet='aB .!?\n"[1]U。'))
def test_every_sentence_stands_in_the_text_and_ends_at_a_mark(text: str) -> None:
    once = split_sentences(text)
    assert all(sentence in text for sentence in once)
    assert len(once) <= 1 + sum(text.count(end) for end in ".!?…。！？") + len(text.splitlines())


def test_folding_forgives_case_accents_dashes_quotes_and_underscores() -> None:
    assert fold("  Beyoncé_Knowles – “X” ") == fold('BEYONCE KNOWLES - "x"')
    assert fold("Łódź") == "lodz"
    assert fold("Strasse") == fold("Straße")
    assert fold("[The Beach]") != fold("The Beach")


@given(st.text())
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert fold(fold(text)) == fold(text)


# -- the published transcripts -------------------------------------------------------------------------


def golden() -> list[dict[str, Any]]:
    folder = os.environ.get("OVERNIGHT_DATA")
    file = Path(folder or "", "fever/react_davinci002_0_249.jsonl.gz")
    if not folder or not file.is_file():
        pytest.skip("needs $OVERNIGHT_DATA/fever/react_davinci002_0_249.jsonl.gz")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


async def test_reference_observations_have_the_form_of_the_published_ones() -> None:
    """The pages of 2022 are not at hand: each search is answered by a page or titles made from what was shown,
    and the session must show just that; invalid actions, rewards and lookups without a page need none."""
    checked = dict.fromkeys(["page", "similar", "nothing", "invalid", "finished"], 0)
    for row in golden():
        shelf = Shelf()
        label = row["label"]
        reader = WikiSession(shelf, lambda answer, label=label: float(answer == label), "reference")  # type: ignore[misc]
        for _, action, expected in row["steps"]:
            sent = action[:1].lower() + action[1:]
            entity = sent[len("search[") : -1]
            if expected.startswith("Could not find "):
                name, _, titles = expected.removeprefix("Could not find ").partition(". Similar: ")
                shelf.similar = tuple(ast.literal_eval(titles.removesuffix(".")))
                if name == f"[{entity}]":
                    shelf.pages[entity] = Page(entity, (f"{entity} may refer to:",))
                kind = "similar"
            elif sent.startswith("search["):
                shelf.pages[entity] = Page(entity, (expected.removesuffix("."),))
                kind = "page"
                if expected.count(". ") >= 5 or not expected.endswith("."):
                    continue  # shown with accidents of a page that can't be told from it
            elif expected == NOTHING_MORE:
                kind = "nothing"
            elif expected.startswith("Invalid action"):
                kind = "invalid"
            elif expected.startswith("Episode finished"):
                kind = "finished"
            else:
                continue  # a sentence further down the page
            if kind == "nothing" and reader.page is not None:
                continue  # depends on the rest of the page
            assert (await reader.step(sent)).text == expected
            checked[kind] += 1
    assert min(checked.values()) > 0, checked
    assert checked["finished"] == 247
    assert checked["invalid"] == 12
