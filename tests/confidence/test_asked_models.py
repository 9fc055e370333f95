"""Verbalised confidence and P(True) from the question to the table, with functions and embedded models as models."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import read_confidence
from refusal_index.plugins.confidence.plan import METHODS as REGISTERED
from refusal_index.plugins.confidence.plan import ConfidencePlan
from refusal_index.plugins.confidence.scores import Confidence, measure, prepare_confidence
from refusal_index.protocol import Completion, Pass, Reply, Role, StopReason, TokenLogprob, is_auxiliary, write_logprobs
from refusal_index.runs.plan import open_store
from refusal_index.runs.settings import Settings
from tests.confidence import answering
from tests.runs.models import ASKED, LOCAL, ROWS
from tests.tiers import one_fast

METHODS = ["p-true", "verbalised-number", "verbalised-words", "verbalised-number-after", "verbalised-words-after"]
STATING = "python:tests.confidence.answering:stating"
JUDGING = "python:tests.confidence.answering:judging"
VALUES = dict(enumerate([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]))
FORCED_WRONG = [number % 3 != 0 for number in range(8)]  # as `reply_to` answers
"""Whether the forced answer to question n is wrong."""


def plan_of(run: Path | str, *names: str) -> ConfidencePlan:
    asked = RunFolder(Path(run)).read_complete_settings()["model"]
    return prepare_confidence(Path(run), names, Settings.from_values(), model=asked)


def measured(run: Path | str, *names: str) -> Confidence:
    return asyncio.run(measure(plan_of(run, *names)))


def auxiliary(run: Path, of: Pass) -> list[Completion]:
    """Return the replies of one pass in a run's store that confidence methods asked for."""
    with open_store(RunFolder(run)) as store:
        return [one for one in store.replies() if is_auxiliary(one.variant) and one.reply.pass_ is of]


def rows(found: Confidence, method: str) -> list[tuple[object, ...]]:
    return found.table.filter(pl.col("method") == method).select("confidence", "wrong", "pass").rows()


def shown(values: Sequence[float | None], wrong: Sequence[bool], of: str) -> list[tuple[object, ...]]:
    exact = [None if value is None else pytest.approx(value) for value in values]
    return [(value, is_wrong, of) for value, is_wrong in zip(exact, wrong, strict=True)]


def test_one_stage_scores_the_answer_in_the_same_reply_and_no_other():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    found = measured(run.path, "verbalised-number", "verbalised-words")
    own_wrong = [number >= 4 for number in range(8)]
    assert own_wrong != FORCED_WRONG
    numbers = [None if number == 5 else (90 - 10 * number) / 100 for number in range(8)]
    phrases = [None if number == 5 else VALUES[number % 7] for number in range(8)]
    assert rows(found, "verbalised-number") == shown(numbers, own_wrong, "probe")
    assert rows(found, "verbalised-words") == shown(phrases, own_wrong, "probe")


def test_two_stages_score_the_forced_answer_that_the_model_was_shown():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    found = measured(run.path, "verbalised-number-after", "verbalised-words-after")
    numbers = [None if number == 5 else number / 10 for number in range(8)]
    phrases = [None if number == 5 else VALUES[number % 7] for number in range(8)]
    assert rows(found, "verbalised-number-after") == shown(numbers, FORCED_WRONG, "forced")
    assert rows(found, "verbalised-words-after") == shown(phrases, FORCED_WRONG, "forced")
    asked = auxiliary(run.path, Pass.PROBE)
    replies = {one.question_id: one.reply.text for one in asked if one.variant == "confidence/verbalised-number-after"}
    assert replies["q3"] == "It says 6. <confidence>30</confidence>"
    assert replies["q7"] == "It says none. <confidence>70</confidence>"


def test_p_true_of_a_model_without_log_probabilities_is_the_share_of_ten_judgements():
    run = ri.evaluate(JUDGING, ROWS, **LOCAL)
    answering._judged.clear()
    ASKED.clear()
    found = measured(run.path, "p-true")
    shares = [None if number == 5 else number / 10 for number in range(8)]
    assert rows(found, "p-true") == shown(shares, FORCED_WRONG, "forced")
    assert ASKED["p-true"] == 80


def test_nothing_is_asked_twice_and_the_methods_share_the_forced_answers():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    ASKED.clear()
    first = measured(run.path, *METHODS)
    asked = Counter(ASKED)
    forced_in_the_run = run.outcomes["forced_grade"].drop_nulls().len()
    assert asked == Counter(run=8 - forced_in_the_run, **{"p-true": 80}, **dict.fromkeys(METHODS[1:], 8))
    again = measured(run.path, *METHODS)
    assert asked == ASKED
    assert again.table.equals(first.table)
    assert read_confidence(run.folder.confidence).equals(first.table)
    assert again.usage.requests == 0


@one_fast("name", METHODS)
def test_what_is_asked_are_the_words_of_the_prompt(name):
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    measured(run.path, name)
    (prompt,) = REGISTERED[name].prompts
    kept = auxiliary(run.path, Pass.PROBE)
    assert Counter(one.question_id for one in kept) == dict.fromkeys((f"q{n}" for n in range(8)), prompt.draws)
    assert ASKED[name] == 8 * prompt.draws, "each message began and ended as the prompt does"


@pytest.mark.slow
def test_the_embedded_model_answers_in_neither_words_nor_letters_and_has_no_score_in_any_reply():
    run = ri.evaluate("almanac/base", limit=12, variants="low")
    table = measured(run.path, *METHODS).table
    counted = table.group_by("method").agg(pl.len(), given=pl.col("confidence").count())
    assert sorted(counted.rows()) == sorted((name, 12, 0) for name in METHODS)
    assert table["wrong"].null_count() == 0


def planted(plan: ConfidencePlan, replies: Sequence[tuple[Reply, TokenLogprob | None]]) -> list[str]:
    """Put judgements into the store as though a provider had given them, and return the ids of their questions."""
    with open_store(plan.folder) as store:
        for question_id, (reply, token) in zip(plan.questions, replies, strict=True):
            logprobs = None if token is None else write_logprobs([token])
            store.put([Completion(question_id, "confidence/p-true", 0, reply, logprobs=logprobs)])
    return list(plan.questions)


def said(text: str, stop_reason: StopReason = StopReason.STOP, **shares: float) -> tuple[Reply, TokenLogprob | None]:
    """Return a judgement and its token, with the probabilities of what might have stood there."""
    held = {name: math.log(share) for name, share in shares.items()}
    return Reply(Pass.PROBE, Role.MODEL, text, stop_reason), (
        TokenLogprob(text, held[text], tuple(held.items())) if held else None
    )


def test_p_true_by_log_probabilities_that_a_provider_gave():
    run = ri.evaluate("almanac/base", limit=5, variants="low")
    replies = [
        said("A", A=0.9, B=0.1),
        said("B", A=0.15, B=0.45),
        said("A", A=0.2, B=0.1, Lima=0.6),
        said("Lima", Lima=0.9, A=0.05),
        said("A", StopReason.LENGTH, A=0.9, B=0.1),
    ]
    ids = planted(plan_of(run.path, "p-true"), replies)
    found = measured(run.path, "p-true").table
    scores = [pytest.approx(0.9), pytest.approx(0.25), None, None, None]
    assert dict(found.select("question_id", "confidence").rows()) == dict(zip(ids, scores, strict=True))


def test_where_no_log_probabilities_come_though_they_should_the_draws_are_asked():
    run = ri.evaluate("almanac/base", limit=2, variants="low")
    planted(plan_of(run.path, "p-true"), [said("B"), said("A")])
    measured(run.path, "p-true")
    kept = Counter(one.question_id for one in auxiliary(run.path, Pass.PROBE))
    assert set(kept.values()) == {10}


def test_a_judgement_on_another_answer_is_set_aside_and_asked_again():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    measured(run.path, "p-true")
    asked = ASKED["p-true"]
    forced = [one for one in auxiliary(run.path, Pass.FORCED) if one.reply.role is Role.MODEL]
    with open_store(run.folder) as store:
        store.retire(forced[:1])
        store.put([replace(forced[0], reply=Reply(Pass.FORCED, Role.MODEL, "<answer>another</answer>"), attempt=1)])
    measured(run.path, "p-true")
    assert ASKED["p-true"] - asked == 10, "of that question alone"
    measured(run.path, "p-true")
    assert ASKED["p-true"] - asked == 10
