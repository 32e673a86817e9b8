"""Two questions, reckoned by hand: what 21 chains cost, asked for one by one, together, and in windows.

Prices a million tokens: 1 dollar in, 0.1 from the cache, 4 out. A chain has 100 tokens. The short prompt has 900
tokens, which OpenAI does not cache; the long one 1,200, of which it caches 1,152 (9 steps of 128).
"""

from __future__ import annotations

import pytest

from runner import library
from runner.job import Job
from runner.methods.cot_sc import CotSC
from runner.models.asking import ANY, Cache, used
from runner.models.base import Choice, Reply, Usage
from runner.models.prices import Price
from runner.models.scripted import Scripted
from tests.echo import Echo

PRICE = Price(input=1.0, output=4.0, cached=0.1)
SHORT, LONG, CHAIN = 900, 1200, 100
OPENAI = Cache()


def dollars(windows, prompt, cache=None):
    """In millionths."""
    return PRICE.of(used(windows, prompt, CHAIN, cache)) * 1e6


@pytest.mark.parametrize(
    ("windows", "prompt", "cache", "by_hand"),
    [
        # 21 single calls: every one pays the prompt.
        ([1] * 21, SHORT, None, 21 * 900 + 21 * 400),
        ([1] * 21, LONG, None, 21 * 1200 + 21 * 400),
        # With a cache all but the first read it, if the prompt is long enough.
        ([1] * 21, SHORT, OPENAI, 21 * 900 + 21 * 400),
        ([1] * 21, LONG, OPENAI, 1200 + 20 * (48 + 115.2) + 21 * 400),
        ([1] * 21, SHORT, ANY, 900 + 20 * 90 + 21 * 400),
        # One call of n = 21 pays the prompt once, cache or not.
        ([21], SHORT, None, 900 + 8400),
        ([21], LONG, OPENAI, 1200 + 8400),
        # Windows: the short question is settled by its first 11 chains, the long one needs 3 more.
        ([11], SHORT, None, 900 + 4400),
        ([11, 3], LONG, None, 2 * 1200 + 5600),
        ([11, 3], LONG, OPENAI, 1200 + 48 + 115.2 + 5600),
    ],
)
def test_two_questions_by_hand(windows, prompt, cache, by_hand):
    assert dollars(windows, prompt, cache) == pytest.approx(by_hand)


def test_both_questions_together():
    def both(short, long, cache=None):
        return dollars(short, SHORT, cache) + dollars(long, LONG, cache)

    assert both([1] * 21, [1] * 21) == pytest.approx(27_300 + 33_600)
    assert both([1] * 21, [1] * 21, OPENAI) == pytest.approx(27_300 + 12_864)
    assert both([21], [21]) == pytest.approx(9_300 + 9_600)
    assert both([11], [11, 3]) == pytest.approx(5_300 + 8_000)
    assert both([11], [11, 3], OPENAI) == pytest.approx(5_300 + 6_963.2)


class Counted(Scripted):
    """Charges a prompt of 900 or 1,200 tokens and 100 for a chain, with a cache like OpenAI's where `caches`."""

    caches: bool = False

    async def call(self, call):
        long = "word1" in call.request.prompt
        prompt = LONG if long else SHORT
        kept = OPENAI.kept(prompt) if self.caches and call.first else 0
        self._calls.append(call)
        usage = Usage(prompt=prompt, completion=CHAIN * call.n, cached=kept, calls=1)
        wrong = range(7, 10) if long else ()  # so that its leader is not safe before draw 14
        texts = [f"Answer: {'no' if call.first + k in wrong else 'yes'}" for k in range(call.n)]
        return Reply([Choice(text) for text in texts], usage, cost_usd=PRICE.of(usage))


@pytest.mark.parametrize(
    ("until", "max_n", "caches", "by_hand"),
    [
        ("all", 1, False, 27_300 + 33_600),
        ("all", 21, False, 9_300 + 9_600),
        ("lossless", 21, False, 5_300 + 8_000),
        ("lossless", 21, True, 5_300 + 6_963.2),
    ],
)
async def test_a_run_pays_what_was_reckoned(tmp_path, until, max_n, caches, by_hand):
    model = Counted(max_n=max_n, caches=caches)
    job = Job.of(Echo(count=2), CotSC(until=until), model)
    run = await library.run(job, outputs=tmp_path, progress=False)
    assert run.manifest["totals"]["paid_usd"] == pytest.approx(by_hand / 1e6, abs=1e-6)
    drawn = [row["votes"]["n_drawn"] for row in run.trajectories]
    assert drawn == ([21, 21] if until == "all" else [11, 14])
    chains = run.summary["money"]["chains"]
    saved = 42 - sum(drawn)
    assert (chains["saved"], chains["tokens_saved"]) == (saved, saved * CHAIN)
    assert run.summary["money"]["provider_cache_tokens"] == (1152 if caches else 0)
