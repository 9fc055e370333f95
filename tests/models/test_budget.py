"""A budget ends a run in order: exactly so many requests, no more dollars, no more seconds; and it resumes."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from refusal_index.data.run_json import UNPRICED, Price, Prices
from refusal_index.models.settings import SettingError
from refusal_index.protocol import Completion, Pass, Reply, Role
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan
from refusal_index.runs.settings import Limits
from refusal_index.runs.writing import Run
from tests.models.fake_api import FakeApi
from tests.models.test_run import sums


def run(plan: Plan) -> Run:
    return asyncio.run(execute(plan))


PRICES = Prices(Price(1.0, 2.0), Price(10.0, 10.0))


def reply(asked: Role = Role.MODEL, read: int = 1_000_000, written: int = 500_000, requests: int = 1) -> Completion:
    return Completion("q", "low", 0, Reply(Pass.FIRST, asked, "x"), 0, read, written, requests)


def test_requests_are_counted_as_they_are_sent():
    budget = Budget(Limits(max_requests=3))
    for _ in range(3):
        assert budget.used_up() is None
        with budget.one_request():
            pass
    assert budget.used_up() == "the budget of 3 requests is used up; raise it to continue from here"


def test_requests_of_earlier_commands_count():
    budget = Budget(Limits(max_requests=3))
    budget.count_earlier(Path("run"), [reply(), reply(requests=0), reply()], UNPRICED)
    assert budget.used_up() is None
    with budget.one_request():
        assert budget.used_up() is not None


def test_dollars_against_tokens_times_prices():
    budget = Budget(Limits(max_cost=10.0))
    budget.count([reply()], PRICES)
    assert budget._cost == 1.0 + 1.0
    budget.count([reply(Role.GRADER, 100_000, 0)], PRICES)
    assert budget._cost == 3.0


def test_what_came_in_a_batch_costs_its_share_of_the_price():
    budget, rated = Budget(Limits(max_cost=10.0)), replace(PRICES, batch_rate=0.25)
    budget.count(
        [reply(), replace(reply(), in_batch=True), replace(reply(Role.GRADER, 100_000, 0), in_batch=True)], rated
    )
    assert budget._cost == 2.0 + 0.5 + 0.25


def test_what_is_on_its_way_is_expected_to_cost_what_others_did_on_average():
    budget = Budget(Limits(max_cost=10.0))
    budget.count([reply(), reply()], PRICES)
    assert budget.used_up() is None, "4 spent, 2 for the next"
    with budget.one_request():
        assert budget.used_up() is None, "4 spent, 2 in flight, 2 for the next"
        with budget.one_request():
            assert budget.used_up() is None, "10 in all"
            with budget.one_request():
                assert "$10.00" in budget.used_up()
    assert budget.used_up() is None, "what came back without an answer cost nothing that is known"


def test_seconds_against_a_clock():
    now = [5.0]
    budget = Budget(Limits(max_time=60), lambda: now[0])
    now[0] = 64.9
    assert budget.used_up() is None
    now[0] = 65.0
    assert budget.used_up() == "the time of 60 seconds is up; run the same command again to resume"


def test_a_run_ends_in_order_after_so_many_requests_and_goes_on_with_a_larger_budget(plan_for):
    with FakeApi(sums) as api:
        whole = run(plan_for(api.url, count=12))
        needed = len(api.answered)
        api.answered.clear()
        first = run(plan_for(api.url, count=12, out="limited", max_requests=7))
        assert len(api.answered) == 7
        assert first.ended == "the budget of 7 requests is used up; raise it to continue from here"
        assert not first.is_complete
        again = run(plan_for(api.url, count=12, out="limited", max_requests=7))
        assert len(api.answered) == 7, "nothing further is sent within the same budget"
        assert again.ended == first.ended
        last = run(plan_for(api.url, count=12, out="limited"))
        assert len(api.answered) == needed
    assert last.ended is None
    assert last.outcomes.equals(whole.outcomes)


def test_a_budget_in_dollars_needs_prices(plan_for):
    with pytest.raises(SettingError, match=r"max_cost.*requires .*price"):
        plan_for("http://127.0.0.1:9/v1", max_cost=1.0)


@pytest.mark.parametrize(("max_cost", "most"), [(0.0, 0), (1e-9, 1), (0.00005, 2)])
def test_no_request_goes_beside_the_first_before_its_cost_is_known(plan_for, max_cost, most):
    """As many requests as connections were sent, whatever they cost, also where nothing was to be spent."""
    with FakeApi(sums) as api:
        plan = plan_for(api.url, count=12, max_cost=max_cost, price="1,1")
        with contextlib.suppress(RunFailedError):
            assert run(plan).ended is not None
        assert len(api.answered) <= most


def test_a_small_budget_is_told_as_it_was_given():
    """It was told as $0.00, and the time as 0 seconds."""
    assert "$0.004 is" in (exceeded(Limits(max_cost=0.004)) or "")
    assert "$0.00005 is" in (exceeded(Limits(max_cost=0.00005)) or "")
    assert exceeded(Limits(max_time=0.5)) == "the time of 0.5 seconds is up; run the same command again to resume"


def exceeded(limits: Limits) -> str | None:
    times = iter((0.0, 1.0))
    budget = Budget(limits, lambda: next(times))
    budget.count([reply()], PRICES)
    return budget.used_up()
