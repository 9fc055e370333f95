"""The page of rules is made from the table of scenarios, and says what the scenarios promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.rules import BATCHES, FOLDER, REPLIES, RUN, TABLES, Rule, statuses, with_tables
from tests.faults.scenario import DONE, Scenario, Step
from tests.faults.table import SCENARIOS

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "what-happens-when.md"
OF_ENDS = [rule for table in (RUN, FOLDER, BATCHES) for rule in table.rules]
ALL = [rule for table in TABLES.values() for rule in table.rules]


def test_the_page_is_as_generated():
    """If it is not: ``python -m benchmarks.faults --rules docs/what-happens-when.md``."""
    written = PAGE.read_text(encoding="utf-8")
    assert with_tables(written) == written
    for rule in ALL:
        assert f"| {' | '.join((rule.situation, *rule.cells))} |\n" in written


def test_each_scenario_shows_a_rule_of_how_it_ends_or_of_its_reply():
    rules = [*OF_ENDS, *REPLIES.rules]
    assert [scenario.title for scenario in SCENARIOS if not any(rule.is_shown_by(scenario) for rule in rules)] == []


@pytest.mark.parametrize("rule", OF_ENDS, ids=lambda rule: rule.situation)
def test_scenarios_of_a_rule_promise_the_exit_statuses_that_it_names(rule):
    for scenario in SCENARIOS:
        if rule.is_shown_by(scenario):
            promised = scenario.promise.status
            assert {*(promised if isinstance(promised, tuple) else (promised,))} <= statuses(rule), scenario.title


def test_each_rule_is_shown_by_a_scenario_or_names_a_test():
    written = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    for rule in ALL:
        is_shown = any(rule.is_shown_by(scenario) for scenario in SCENARIOS)
        assert is_shown == bool(rule.rows), rule
        assert is_shown or f"def {rule.tested}(" in written, rule


def test_no_cell_breaks_its_table():
    for rule in ALL:
        for cell in (rule.situation, *rule.cells):
            assert not re.search(r"[|\n]", cell), rule


def test_rule_is_shown_by_group_and_name_and_names_its_statuses():
    scenario = Scenario("Some group", "a fault", (Step(),))
    rule = Rule("x", ("y", "0, 1* or that of the signal"), "group: a f")
    assert rule.is_shown_by(scenario)
    assert not Rule("x", ("y", "0"), "^a fault").is_shown_by(scenario)
    assert not Rule("x", ("y", "0"), tested="test_x").is_shown_by(scenario)
    assert statuses(rule) == {DONE, 1, -9}
    assert statuses(Rule("x", ("y", "130"))) == {130}
