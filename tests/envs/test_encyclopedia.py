"""The embedded encyclopedia's files agree with one another. Whether they are true, no test can say."""

import json
import re
from collections import Counter
from importlib import resources

FOLDER = resources.files("envs.encyclopedia")


def _text(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def _rows(name):
    return [json.loads(line) for line in _text(name).splitlines()]


ARTICLES = _rows("articles.jsonl")
QUESTIONS = _rows("questions.jsonl")
CLAIMS = _rows("claims.jsonl")
HOTPOTQA = json.loads(_text("exemplars_hotpotqa.json"))
FEVER = json.loads(_text("exemplars_fever.json"))
SENTENCES = {article["title"]: article["sentences"] for article in ARTICLES}
LABELS = {"SUPPORTS", "REFUTES", "NOT ENOUGH INFO"}


def _names_in(title, sentences):
    """Whether `title` stands in the sentences as whole words, its first letter in either case."""
    first = re.escape(title[0])
    if title[0].lower() != title[0]:
        first = f"[{title[0]}{title[0].lower()}]"
    pattern = rf"(?<!\w){first}{re.escape(title[1:])}(?!\w)"
    return any(re.search(pattern, sentence) for sentence in sentences)


def _of_type(kind):
    return [question for question in QUESTIONS if question["type"] == kind]


def _cited(pairs):
    return [SENTENCES[title][index] for title, index in pairs]


def _out_of_range(pairs):
    return [
        pair for pair in pairs if pair[0] not in SENTENCES or pair[1] not in range(len(SENTENCES[pair[0]]))
    ]


def _split(action):
    verb, argument = re.fullmatch(r"(Search|Lookup|Finish)\[(.+)\]", action).groups()
    return verb, argument


def _actions(exemplar):
    return [_split(step["action"]) for step in exemplar["steps"]]


def _missed_searches(exemplar):
    return [
        argument for verb, argument in _actions(exemplar) if verb == "Search" and argument not in SENTENCES
    ]


# -- articles ------------------------------------------------------------------------------------------


def test_there_are_enough_articles_with_the_four_fields():
    assert len(ARTICLES) >= 165
    assert all(list(article) == ["title", "aliases", "sentences", "links"] for article in ARTICLES)


def test_each_title_and_alias_names_one_article():
    names = Counter(name for article in ARTICLES for name in (article["title"], *article["aliases"]))
    assert [name for name, count in names.items() if count > 1] == []
    assert [name for name in names if name != name.strip() or not name] == []


def test_names_that_are_ambiguous_have_no_article_or_alias_of_their_own():
    plain = Counter(re.sub(r" \(.+\)$", "", title) for title in SENTENCES if title.endswith(")"))
    assert len([name for name, count in plain.items() if count >= 2]) >= 4
    names = {name for article in ARTICLES for name in (article["title"], *article["aliases"])}
    assert names & set(plain) == set()


def test_articles_have_five_to_nine_sentences_and_sixty_to_140_words():
    wrong = {
        title: (len(sentences), words)
        for title, sentences in SENTENCES.items()
        if not (5 <= len(sentences) <= 9 and 60 <= (words := len(" ".join(sentences).split())) <= 140)
    }
    assert wrong == {}


def test_some_facts_lie_behind_the_five_sentences_that_a_search_shows():
    assert sum(len(sentences) > 5 for sentences in SENTENCES.values()) > len(SENTENCES) / 2
    pairs = [pair for question in QUESTIONS for pair in question["supporting"]]
    assert any(index >= 5 for _, index in pairs)


def test_each_sentence_is_one_line_that_starts_with_a_capital_and_ends_with_a_full_stop():
    wrong = [
        sentence
        for sentences in SENTENCES.values()
        for sentence in sentences
        if not re.fullmatch(r"[^\W\d_a-z].*[^.\s]\.", sentence) or "  " in sentence
    ]
    assert wrong == []


def test_no_sentence_would_be_cut_in_two_at_a_full_stop():
    wrong = [sentence for sentences in SENTENCES.values() for sentence in sentences if ". " in sentence]
    assert wrong == []


def test_no_article_says_a_sentence_twice():
    assert [title for title, sentences in SENTENCES.items() if len(set(sentences)) < len(sentences)] == []


def test_links_lead_to_other_articles_that_the_sentences_name():
    wrong = [
        (article["title"], link)
        for article in ARTICLES
        for link in article["links"]
        if link not in SENTENCES or link == article["title"] or not _names_in(link, article["sentences"])
    ]
    assert wrong == []
    assert [
        article["title"] for article in ARTICLES if len(set(article["links"])) < len(article["links"])
    ] == []


def test_articles_link_to_two_others_on_average():
    assert sum(len(article["links"]) for article in ARTICLES) >= 2 * len(ARTICLES)


# -- questions -----------------------------------------------------------------------------------------


def test_there_are_enough_questions_of_each_type():
    counts = Counter(question["type"] for question in QUESTIONS)
    assert set(counts) == {"bridge", "comparison", "yesno"}
    assert len(QUESTIONS) >= 66
    assert counts["bridge"] >= 30
    assert counts["comparison"] >= 15
    assert counts["yesno"] >= 15


def test_question_ids_count_up_and_no_question_is_asked_twice():
    assert [question["id"] for question in QUESTIONS] == [
        f"enc-q{n:03d}" for n in range(1, len(QUESTIONS) + 1)
    ]
    assert len({question["question"].casefold() for question in QUESTIONS}) == len(QUESTIONS)
    assert all(question["question"].endswith("?") for question in QUESTIONS)


def test_supporting_sentences_exist_and_come_from_two_articles():
    assert [q["id"] for q in QUESTIONS if _out_of_range(q["supporting"])] == []
    assert [q["id"] for q in QUESTIONS if len({title for title, _ in q["supporting"]}) != 2] == []


def test_bridge_answers_stand_in_a_supporting_sentence():
    wrong = [
        question["id"]
        for question in _of_type("bridge")
        if not any(question["answer"] in sentence for sentence in _cited(question["supporting"]))
    ]
    assert wrong == []


def test_the_first_supporting_article_of_a_bridge_links_to_the_second():
    links = {article["title"]: article["links"] for article in ARTICLES}
    wrong = []
    for question in _of_type("bridge"):
        (first, _), (second, _) = question["supporting"]
        if second not in links[first]:
            wrong.append(question["id"])
    assert wrong == []


def test_bridge_questions_do_not_give_their_answer_away():
    wrong = [q["id"] for q in _of_type("bridge") if q["answer"].casefold() in q["question"].casefold()]
    assert wrong == []


def test_comparison_answers_are_one_of_the_two_things_compared():
    wrong = [
        question["id"]
        for question in _of_type("comparison")
        if question["answer"] not in [title for title, _ in question["supporting"]]
        and not any(question["answer"] in sentence for sentence in _cited(question["supporting"]))
    ]
    assert wrong == []


def test_comparisons_name_both_things_and_do_not_always_choose_the_same_one():
    first = 0
    for question in _of_type("comparison"):
        text = question["question"].casefold()
        places = {title: text.find(title.casefold()) for title, _ in question["supporting"]}
        assert min(places.values()) >= 0, question["id"]
        first += min(places, key=places.__getitem__) == question["answer"]
    assert 0 < first < len(_of_type("comparison"))


def test_yes_and_no_are_about_equally_frequent():
    counts = Counter(question["answer"] for question in _of_type("yesno"))
    assert set(counts) == {"yes", "no"}
    assert abs(counts["yes"] - counts["no"]) <= 2


def test_answers_are_short():
    assert [q["id"] for q in QUESTIONS if not 1 <= len(q["answer"].split()) <= 5] == []


# -- claims --------------------------------------------------------------------------------------------


def test_there_are_enough_claims_of_each_label():
    counts = Counter(claim["label"] for claim in CLAIMS)
    assert set(counts) == LABELS
    assert min(counts.values()) >= 22
    assert max(counts.values()) - min(counts.values()) <= 4


def test_claim_ids_count_up_and_no_claim_is_made_twice():
    assert [claim["id"] for claim in CLAIMS] == [f"enc-c{n:03d}" for n in range(1, len(CLAIMS) + 1)]
    assert len({claim["claim"].casefold() for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim["claim"].endswith(".") for claim in CLAIMS)


def test_claims_that_can_be_judged_cite_sentences_that_exist():
    judged = [claim for claim in CLAIMS if claim["label"] != "NOT ENOUGH INFO"]
    assert [c["id"] for c in judged if not c["evidence"] or _out_of_range(c["evidence"])] == []
    assert [c["id"] for c in judged if "about" in c] == []


def test_claims_that_can_not_be_judged_cite_nothing_but_are_about_an_article():
    open_claims = [claim for claim in CLAIMS if claim["label"] == "NOT ENOUGH INFO"]
    assert [c["id"] for c in open_claims if c["evidence"] or c["about"] not in SENTENCES] == []


# -- exemplars -----------------------------------------------------------------------------------------


def test_there_are_six_worked_questions_and_three_worked_claims_one_of_each_label():
    assert len(HOTPOTQA) == 6
    assert sorted(exemplar["answer"] for exemplar in FEVER) == sorted(LABELS)
    assert all(set(e) - {"observations"} == {"question", "answer", "reasoning", "steps"} for e in HOTPOTQA)
    assert all(set(e) - {"observations"} == {"claim", "answer", "reasoning", "steps"} for e in FEVER)


def test_exemplars_are_not_among_the_tasks():
    asked = {question["question"].casefold() for question in QUESTIONS}
    claimed = {claim["claim"].casefold() for claim in CLAIMS}
    assert [e["question"] for e in HOTPOTQA if e["question"].casefold() in asked] == []
    assert [e["claim"] for e in FEVER if e["claim"].casefold() in claimed] == []


def test_exemplars_take_two_to_four_steps_and_finish_once_with_their_answer():
    for exemplar in HOTPOTQA + FEVER:
        actions = _actions(exemplar)
        assert 2 <= len(actions) <= 4
        assert actions[-1] == ("Finish", exemplar["answer"])
        assert [verb for verb, _ in actions].count("Finish") == 1


def test_every_step_of_an_exemplar_has_a_thought_of_its_own():
    thoughts = [step["thought"] for exemplar in HOTPOTQA + FEVER for step in exemplar["steps"]]
    assert len(set(thoughts)) == len(thoughts)
    assert all(thought and thought.strip() == thought and "\n" not in thought for thought in thoughts)


def test_reasoning_leads_to_the_answer():
    for exemplar in HOTPOTQA + FEVER:
        assert exemplar["reasoning"].startswith("Let's think step by step. ")
        assert exemplar["reasoning"].endswith(f" So the answer is {exemplar['answer']}.")


def test_exactly_one_search_of_the_exemplars_misses_and_a_similar_title_is_searched_next():
    missed = [exemplar for exemplar in HOTPOTQA + FEVER if _missed_searches(exemplar)]
    assert len(missed) == 1
    assert missed[0] in HOTPOTQA
    actions = _actions(missed[0])
    place = next(n for n, (_, argument) in enumerate(actions) if argument not in SENTENCES)
    verb, title = actions[place + 1]
    assert verb == "Search"
    assert title in SENTENCES
    assert title.startswith(f"{actions[place][1]} (")


def test_lookups_of_the_exemplars_find_something_that_the_search_did_not_show():
    lookups = 0
    for exemplar in HOTPOTQA + FEVER:
        page = None
        for verb, argument in _actions(exemplar):
            if verb == "Search":
                page = argument
            elif verb == "Lookup":
                lookups += 1
                holding = [argument.casefold() in sentence.casefold() for sentence in SENTENCES[page]]
                assert any(holding[5:])
                assert not any(holding[:5])
    assert lookups >= 1


def test_answers_of_worked_questions_can_be_read_off_what_the_actions_show():
    for exemplar in HOTPOTQA:
        shown, page = "", None
        for verb, argument in _actions(exemplar):
            if verb == "Search" and argument in SENTENCES:
                page = argument
                shown += " ".join(SENTENCES[page][:5])
            elif verb == "Lookup":
                shown += next(s for s in SENTENCES[page] if argument.casefold() in s.casefold())
        assert exemplar["answer"] in {"yes", "no"} or exemplar["answer"] in shown
