"""Looking up what a folder has paid for: every reply of a run is found, none is sent for, and others are not found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from refusal_index.engines.inspect.paid import paid_replies
from refusal_index.engines.inspect.run import RunPlan, pending_variants, resolve_models, run_variants

from refusal_index.engines.inspect.models import ModelError
from refusal_index.engines.inspect.task import Asking, Decoding
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import GraderKind, Placement, Protocol, Request, load_prompt_set, next_request
from refusal_index.protocol.cost import Assumptions, Estimate, ToAsk, estimate
from refusal_index.protocol.ranges import Range
from tests.engines.fake_api import FakeApi, is_grading
from tests.engines.test_run import sums

COUNT = 8


def run(plan: RunPlan, folder: RunFolder) -> None:
    run_variants(plan, resolve_models(plan), folder, pending_variants(plan, folder))


def left(plan: RunPlan, folder: RunFolder, portions: tuple[int, ...] = (1,)) -> Estimate:
    asking = plan.asking
    protocols = [
        Protocol(load_prompt_set(asking.prompts), variant, asking.grader, asking.placement, asking.think)
        for variant in plan.variants
    ]
    items = [ToAsk(protocol, question, portions) for protocol in protocols for question in plan.dataset.questions]
    with paid_replies(plan, folder) as look:
        return estimate(
            items,
            lambda _request: 1,
            Assumptions(choices=Range.exactly(plan.asking.max_choices)),
            lambda one, request, draw, choices: look(
                one.question.question_id, one.protocol.variant, request, draw, choices
            ),
        )


def files(folder: RunFolder) -> list[Path]:
    return [path for path in folder.cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "asking",
    [
        Asking(attempt_timeout=2),
        Asking(attempt_timeout=2, placement=Placement.SYSTEM, think="/no_think", seed=7),
    ],
)
def test_of_a_finished_run_everything_is_found_and_nothing_sent(plan_for, folder, asking):
    with FakeApi(sums) as api:
        plan = plan_for(api.url, count=COUNT, variants=("low", "high"), asking=asking)
        run(plan, folder)
        sent = sum(api.received.values())
        found = left(plan, folder)
        assert sum(api.received.values()) == sent
    assert found.total.requests == Range()
    assert found.there == sent == len(files(folder))


@pytest.mark.parametrize(
    "change",
    [
        {"decoding": Decoding(temperature=0)},
        {"decoding": Decoding(reasoning_effort="low")},
        {"asking": Asking(attempt_timeout=2, seed=1)},
        {"asking": Asking(attempt_timeout=2, think="/think")},
    ],
)
def test_what_was_asked_otherwise_is_not_found(plan_for, folder, change):
    with FakeApi(sums) as api:
        plan = plan_for(api.url, count=COUNT)
        run(plan, folder)
        assert left(replace(plan, **change), folder).there == 0
        assert left(replace(plan, max_connections=9, max_retries=1), folder).there == len(files(folder))


def test_of_a_part_of_a_run_exactly_the_rest_is_left(plan_for, folder):
    with FakeApi(sums) as api:
        plan = plan_for(api.url, count=COUNT, variants=("low", "high"))
        run(replace(plan, variants=("low",)), folder)
        found = left(plan, folder)
        assert found.first.requests == Range.exactly(COUNT)
        assert found.forced.requests.most == COUNT - COUNT // 2, "what low refused has its forced answer"
        before = sum(api.received.values())
        run(plan, folder)
        assert sum(api.received.values()) - before == COUNT


def test_draws_and_verdicts_are_found(plan_for, folder):
    with FakeApi(lambda m: "A" if is_grading(m) else sums(m), max_choices=4) as api:
        plan = plan_for(api.url, count=3, draws=6, grader="openai-api/fake/grader")
        plan = replace(plan, asking=Asking(grader=GraderKind.MODEL, attempt_timeout=2, max_choices=4))
        run(plan, folder)
        assert left(plan, folder, (6,)).total.requests == Range()
        assert all((body.get("n") or 1) <= 4 for body in api.answered)


def test_without_a_key_nobody_knows_where_replies_lie(plan_for, folder, monkeypatch):
    plan = plan_for("http://127.0.0.1:9/v1")
    monkeypatch.delenv("FAKE_API_KEY")
    with pytest.raises(ModelError, match="FAKE_API_KEY"), paid_replies(plan, folder):
        pass


def test_a_request_that_was_never_sent_is_not_found(plan_for, folder):
    plan = plan_for("http://127.0.0.1:9/v1")
    question = plan.dataset.questions[0]
    request = next_request(question, (), Protocol(load_prompt_set("default"), "low", GraderKind.EXACT))
    assert isinstance(request, Request)
    with paid_replies(plan, folder) as look:
        assert look(question.question_id, "low", request, 0, 1) == ()
