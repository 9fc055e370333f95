"""Under every fault, paid replies are kept, stored replies are not paid for again, and gaps are reported.

Each scenario of the table runs with every engine: the command in its own process, a server that misbehaves,
and the outcome table compared with that of the undisturbed run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.page import BELOW, _escaped, page, table
from tests.faults.scenario import ENGINES, SOAKED, Engine, Row, Scenario
from tests.faults.scenario_run import NotPossibleHereError, run_scenario
from tests.faults.soak import soak
from tests.faults.table import KEPT, SCENARIOS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "faults.md"
BY_HAND = frozenset({"ray"})
"""Engines whose rows take half a minute each, most of it to start: ``python -m benchmarks.faults`` plays them."""
MAX_KEPT = 4
"""Rows of a scenario that `make test-all` plays at most: the first of its engines."""


def tier(scenario: Scenario, engine: Engine) -> Sequence[pytest.MarkDecorator]:
    is_kept = scenario.title in KEPT and engine.name in scenario.engines[:MAX_KEPT]
    marks = [pytest.mark.slow if is_kept else pytest.mark.nightly]
    return [*marks, pytest.mark.timeout(2 * scenario.limit)] if scenario.planted else marks


def played() -> list[object]:
    return [
        pytest.param(
            scenario,
            engine,
            id=f"{engine.name}: {scenario.title}",
            marks=tier(scenario, engine),
        )
        for scenario in SCENARIOS
        for engine in ENGINES
        if engine.name in scenario.engines and engine.name not in BY_HAND
    ]


@pytest.mark.parametrize(("scenario", "engine"), played())
def test_a_scenario_keeps_its_promise(scenario: Scenario, engine: Engine):
    try:
        row = run_scenario(scenario, engine)
    except NotPossibleHereError as error:
        pytest.skip(str(error))
    assert not row.broken, row


@pytest.mark.nightly
@pytest.mark.parametrize("engine", SOAKED, ids=lambda engine: engine.name)
def test_soak_loses_and_repeats_nothing_with_bounded_memory(engine):
    soaked = soak(engine, 2000)
    assert (soaked.status, soaked.wrong, soaked.repeated) == (0, 0, 0), soaked
    assert soaked.growth < 40, soaked


def test_kept_scenarios_are_in_the_table():
    assert {scenario.title for scenario in SCENARIOS} >= KEPT


def test_scenarios_have_unique_titles_and_known_engines():
    titles = [scenario.title for scenario in SCENARIOS]
    assert len(titles) == len(set(titles))
    assert {name for scenario in SCENARIOS for name in scenario.engines} == {engine.name for engine in ENGINES}


def test_page_lists_exactly_the_scenarios():
    written = PAGE.read_text(encoding="utf-8").partition(BELOW)[2]
    lines = re.findall(r"^\| (.*?) \| ", written, re.MULTILINE)
    others = [line for line in lines if line != "scenario"]
    assert others == list(dict.fromkeys(_escaped(scenario.name) for scenario in SCENARIOS))


def test_page_shows_engine_differences_and_broken_promises():
    one, other = Scenario("g", "a|b", ()), Scenario("g", "c", ())
    rows = [
        Row(one, "inspect", "yes", 0, "", 60, 60, 0, 60, (), 1.0),
        Row(one, "functions", "yes, after resuming", 1, "error: <b>", 60, 60, 3, 60, (), 1.0),
        Row(other, "functions", "1 of 40 rows differ (x 1); error", -9, "", 60, 60, 0, 60, ("outcome",), 1.0),
    ]
    text = page("by hand", [one, other, Scenario("h", "d", ())], rows)
    assert text.startswith("by hand<!-- From here on")
    assert "| d | not run on this machine |  |  |" in text
    assert (
        "| a\\|b | equal (inspect); equal, after resuming (functions) "
        "| in flight | 0 (inspect); 1 (functions) |" in text
    )
    assert "| c | 1 of 40 rows differ (x 1) (not as promised) | nothing | signal 9 |" in text
    assert "| a\\|b | functions | yes, after resuming | 60 of 60 | 3 | 1 | error: \\<b\\> |" in table(rows)
