"""What methods ask, and the scores that come of it."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data import Outcome, Question
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import read_confidence
from refusal_index.plugins.confidence.method import Prompt
from refusal_index.plugins.confidence.model_scores import PROMPTS, SCALE
from refusal_index.plugins.confidence.plan import METHODS, ConfidencePlan, Probing
from refusal_index.plugins.confidence.plan import METHODS as REGISTERED
from refusal_index.plugins.confidence.scores import Confidence, measure, prepare_confidence
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    Role,
    Step,
    StopReason,
    TokenLogprob,
    completions_and_outcomes,
    is_auxiliary,
    load_prompt_set,
    next_requests,
    used_completions,
    write_logprobs,
)
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import open_store
from tests.confidence import answering
from tests.runs.models import ASKED, LOCAL, ROWS
from tests.tiers import one_fast

# --- Requests of confidence methods

QUESTION = Question("q", "How much is 2 + 2?", "4", choices=("3", "4"))
PROMPT_SET = load_prompt_set("default")


def probing(*, is_graded: bool = False, think: str = "") -> Probing:
    prompt = Prompt("judge", "{question}\n{answer}: true?", is_graded)
    wording = Protocol(PROMPT_SET, "normal", GraderKind.EXACT, think=think)
    return Probing(GraderKind.EXACT, prompt, wording, {"q": "{question} 4"})


def completion(text: str, draw: int = 0, asked: Role = Role.MODEL) -> Completion:
    return Completion("q", "p-true", draw, Reply(Pass.PROBE, asked, text))


def test_prompt_inserts_question_and_answer_literally():
    request = probing().request(probing().step(QUESTION, []), QUESTION)
    assert request.messages[0].content == (
        "Question: How much is 2 + 2?\n\nChoose one of these answers and give its letter:\nA) 3\nB) 4\n"
        "{question} 4: true?"
    )
    assert request.pass_ is Pass.PROBE
    assert (
        probing(think="/no_think")
        .request(Step(Pass.PROBE, Role.MODEL), QUESTION)
        .messages[0]
        .content.endswith("true?\n\n/no_think")
    )


@pytest.mark.parametrize("draws", [1, 3])
def test_each_draw_is_requested_once(draws):
    conversation = Conversation(QUESTION, "p-true", probing(), draws)
    (first,) = next_requests(conversation, [])
    assert (first.step.pass_, first.n) == (Pass.PROBE, draws)
    replies = [completion("A", draw) for draw in range(draws)]
    assert next_requests(conversation, replies) == []
    assert used_completions(conversation, replies) == replies
    assert [one.wrong for one in completions_and_outcomes(conversation, replies)[1]] == [None] * draws, (
        "nobody grades these"
    )


def test_probe_answer_is_graded_by_the_grader_of_the_run():
    conversation = Conversation(QUESTION, "p", probing(is_graded=True))
    assert completions_and_outcomes(conversation, [completion("<answer>4</answer>")])[1][0].wrong is False
    assert completions_and_outcomes(conversation, [completion("<answer>5</answer>")])[1][0].wrong is True
    by_model = replace(probing(is_graded=True), grader=GraderKind.MODEL)
    step = by_model.step(QUESTION, [Reply(Pass.PROBE, Role.MODEL, "<answer>4</answer>")])
    assert (step.role, step.prediction) == (Role.GRADER, "4")
    assert "<prediction>\n4\n" in by_model.request(step, QUESTION).messages[0].content
    verdict = Reply(Pass.PROBE, Role.GRADER, "A")
    graded = by_model.step(QUESTION, [Reply(Pass.PROBE, Role.MODEL, "<answer>4</answer>"), verdict])
    assert isinstance(graded, Outcome)
    assert graded.wrong is False


# --- Prompts of confidence methods do not change

WORDS = {
    "verbalised-number": "3567b255a3038641",
    "verbalised-words": "913238118f8a0002",
    "verbalised-number-after": "1c3b16c2498a4a49",
    "verbalised-words-after": "c2cf1c2b91d3fbe3",
    "p-true": "ce078a685f845810",
}
RANGES = {  # Intelligence Community Directive 203 (2015), 2.e
    "almost no chance": (0.01, 0.05),
    "very unlikely": (0.05, 0.20),
    "unlikely": (0.20, 0.45),
    "about even": (0.45, 0.55),
    "likely": (0.55, 0.80),
    "very likely": (0.80, 0.95),
    "almost certain": (0.95, 0.99),
}


def test_prompt_texts_match_their_recorded_hashes():
    """Replies are stored under the prompt's name, so changed text needs a new name."""
    found = {name: hashlib.sha256(one.template.encode()).hexdigest()[:16] for name, one in PROMPTS.items()}
    assert found == WORDS


def test_every_prompt_belongs_to_the_method_of_the_same_name():
    for name, prompt in PROMPTS.items():
        assert METHODS[name].prompts == (prompt,)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=lambda one: one.name)
def test_prompt_contains_question_and_answer_verbatim(prompt):
    asked = prompt.template.format(question="Who {wrote} Emma?", answer="{question} <b>")
    assert "Who {wrote} Emma?" in asked
    assert ("{question} <b>" in asked) is not prompt.is_graded


@pytest.mark.parametrize("name", ["verbalised-words", "verbalised-words-after"])
def test_prompt_lists_phrases_in_order_without_values(name):
    template, scale = PROMPTS[name].template, SCALE
    assert f": {', '.join(scale)}." in template
    assert not any(character.isdigit() for character in template)


def test_scale_is_increasing_symmetric_and_within_icd_203_ranges():
    scale = SCALE
    assert list(scale) == list(RANGES)
    assert all(low <= scale[phrase] <= high for phrase, (low, high) in RANGES.items())
    values = list(scale.values())
    assert values == sorted(values)
    assert [one + other for one, other in zip(values, reversed(values), strict=True)] == pytest.approx([1] * 7)


# --- Verbalised confidence and P(True), end to end

ASKED_METHODS = ["p-true", "verbalised-number", "verbalised-words", "verbalised-number-after", "verbalised-words-after"]
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
        return [reply for reply in store.replies() if is_auxiliary(reply.variant) and reply.reply.pass_ is of]


def rows(found: Confidence, method: str) -> list[tuple[object, ...]]:
    return found.table.filter(pl.col("method") == method).select("confidence", "wrong", "pass").rows()


def expected_rows(values: Sequence[float | None], wrong: Sequence[bool], of: str) -> list[tuple[object, ...]]:
    exact = [None if value is None else pytest.approx(value) for value in values]
    return [(value, is_wrong, of) for value, is_wrong in zip(exact, wrong, strict=True)]


def test_one_stage_scores_only_the_answer_in_the_same_reply():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    found = measured(run.path, "verbalised-number", "verbalised-words")
    own_wrong = [number >= 4 for number in range(8)]
    assert own_wrong != FORCED_WRONG
    numbers = [None if number == 5 else (90 - 10 * number) / 100 for number in range(8)]
    phrases = [None if number == 5 else VALUES[number % 7] for number in range(8)]
    assert rows(found, "verbalised-number") == expected_rows(numbers, own_wrong, "probe")
    assert rows(found, "verbalised-words") == expected_rows(phrases, own_wrong, "probe")


def test_two_stages_score_the_forced_answer_shown_to_the_model():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    found = measured(run.path, "verbalised-number-after", "verbalised-words-after")
    numbers = [None if number == 5 else number / 10 for number in range(8)]
    phrases = [None if number == 5 else VALUES[number % 7] for number in range(8)]
    assert rows(found, "verbalised-number-after") == expected_rows(numbers, FORCED_WRONG, "forced")
    assert rows(found, "verbalised-words-after") == expected_rows(phrases, FORCED_WRONG, "forced")
    asked = auxiliary(run.path, Pass.PROBE)
    replies = {one.question_id: one.reply.text for one in asked if one.variant == "confidence/verbalised-number-after"}
    assert replies["q3"] == "It says 6. <confidence>30</confidence>"
    assert replies["q7"] == "It says none. <confidence>70</confidence>"


def test_p_true_without_logprobs_is_the_share_of_ten_judgements():
    run = ri.evaluate(JUDGING, ROWS, **LOCAL)
    answering._judged.clear()
    ASKED.clear()
    found = measured(run.path, "p-true")
    shares = [None if number == 5 else number / 10 for number in range(8)]
    assert rows(found, "p-true") == expected_rows(shares, FORCED_WRONG, "forced")
    assert ASKED["p-true"] == 80


def test_methods_share_forced_answers_and_repeat_no_request():
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    ASKED.clear()
    first = measured(run.path, *ASKED_METHODS)
    asked = Counter(ASKED)
    forced_in_the_run = run.outcomes["forced_grade"].drop_nulls().len()
    assert asked == Counter(run=8 - forced_in_the_run, **{"p-true": 80}, **dict.fromkeys(ASKED_METHODS[1:], 8))
    again = measured(run.path, *ASKED_METHODS)
    assert asked == ASKED
    assert again.table.equals(first.table)
    assert read_confidence(run.folder.confidence).equals(first.table)
    assert again.usage.requests == 0


@one_fast("name", ASKED_METHODS)
def test_requests_use_the_prompt_text(name):
    run = ri.evaluate(STATING, ROWS, **LOCAL)
    measured(run.path, name)
    (prompt,) = REGISTERED[name].prompts
    kept = auxiliary(run.path, Pass.PROBE)
    assert Counter(one.question_id for one in kept) == dict.fromkeys((f"q{n}" for n in range(8)), prompt.draws)
    assert ASKED[name] == 8 * prompt.draws, "each message began and ended as the prompt does"


@pytest.mark.slow
def test_embedded_model_gets_no_score_from_verbalised_methods_or_p_true():
    run = ri.evaluate("almanac/base", limit=12, variants="low")
    table = measured(run.path, *ASKED_METHODS).table
    counted = table.group_by("method").agg(pl.len(), given=pl.col("confidence").count())
    assert sorted(counted.rows()) == sorted((name, 12, 0) for name in ASKED_METHODS)
    assert table["wrong"].null_count() == 0


def planted(plan: ConfidencePlan, replies: Sequence[tuple[Reply, TokenLogprob | None]]) -> list[str]:
    """Put judgements into the store as though a provider had given them, and return the ids of their questions."""
    with open_store(plan.folder) as store:
        for question_id, (reply, token) in zip(plan.questions, replies, strict=True):
            logprobs = None if token is None else write_logprobs([token])
            store.put([Completion(question_id, "confidence/p-true", 0, reply, logprobs=logprobs)])
    return list(plan.questions)


def judgement(
    text: str, stop_reason: StopReason = StopReason.STOP, **shares: float
) -> tuple[Reply, TokenLogprob | None]:
    """Return a judgement and its token, with the probabilities of its alternatives."""
    held = {name: math.log(share) for name, share in shares.items()}
    return Reply(Pass.PROBE, Role.MODEL, text, stop_reason), (
        TokenLogprob(text, held[text], tuple(held.items())) if held else None
    )


def test_p_true_from_provider_logprobs():
    run = ri.evaluate("almanac/base", limit=5, variants="low")
    replies = [
        judgement("A", A=0.9, B=0.1),
        judgement("B", A=0.15, B=0.45),
        judgement("A", A=0.2, B=0.1, Lima=0.6),
        judgement("Lima", Lima=0.9, A=0.05),
        judgement("A", StopReason.LENGTH, A=0.9, B=0.1),
    ]
    ids = planted(plan_of(run.path, "p-true"), replies)
    found = measured(run.path, "p-true").table
    scores = [pytest.approx(0.9), pytest.approx(0.25), None, None, None]
    assert dict(found.select("question_id", "confidence").rows()) == dict(zip(ids, scores, strict=True))


def test_missing_logprobs_fall_back_to_sampling():
    run = ri.evaluate("almanac/base", limit=2, variants="low")
    planted(plan_of(run.path, "p-true"), [judgement("B"), judgement("A")])
    measured(run.path, "p-true")
    kept = Counter(one.question_id for one in auxiliary(run.path, Pass.PROBE))
    assert set(kept.values()) == {10}


def test_judgement_of_a_replaced_answer_is_requested_again():
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
