"""What calls are thought to use before they are made, and what they are charged in the end."""

from __future__ import annotations

from runner.models.base import Call, Params, Request, Text, Turn, Usage
from runner.models.charge import Charges
from runner.models.openai import OpenAI


def call(characters: int = 400, max_tokens: int = 100, n: int = 1) -> Call:
    text = Text("x" * characters)
    return Call(Request("m", (Turn("prompt", text),), Params(max_tokens=max_tokens)), n=n)


def test_before_any_reply_four_characters_are_a_token_and_the_limit_is_expected() -> None:
    charge = Charges().of(call(400, 100, n=3))
    assert (charge.input, charge.output) == (100.0, 300.0)


def test_replies_teach_the_characters_of_a_token_and_the_length_of_a_reply() -> None:
    charges = Charges()
    for _ in range(12):
        real = charges.real(call(), Usage(prompt=200, completion=20, calls=1))
        assert (real.input, real.output) == (200.0, 20.0)
    learnt = charges.of(call())
    assert (learnt.input, round(learnt.output, 6)) == (200.0, 20.0)


def test_a_provider_that_charges_the_limit_is_charged_the_limit() -> None:
    charges = Charges(max_tokens=True)
    for _ in range(5):
        assert charges.real(call(n=2), Usage(prompt=100, completion=9, calls=1)).output == 200.0
    assert charges.of(call(n=2)).output == 200.0


def test_cached_prompts_and_generated_tokens_count_only_where_the_provider_counts_them() -> None:
    usage = Usage(prompt=100, completion=9, cached=60, calls=1)
    real = Charges(cached=False, output=False).real(call(), usage)
    assert (real.input, real.output) == (40.0, 0.0)
    assert Charges(output=False).of(call()).output == 0.0


def test_a_services_row_says_what_it_counts() -> None:
    gemini = OpenAI(model="m", service="gemini", base_url="http://127.0.0.1:9/v1")
    azure = OpenAI(model="m", service="azure", base_url="http://127.0.0.1:9/v1")
    assert (gemini.charges_output, gemini.charges_max_tokens) == (False, False)
    assert (azure.charges_output, azure.charges_max_tokens) == (True, True)
