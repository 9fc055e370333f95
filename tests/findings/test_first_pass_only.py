"""Runs of the first pass alone beside runs of both passes: what is compared, what is unknown, and what says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import make_run, table_rows

from refusal_index.data.analysis import Analysis
from refusal_index.data.rates import completeness
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.planning import PlanOptions, plan_apart, scenarios_of
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import summarise

REFUSED = np.arange(40) % 4 == 0
WRONG = np.arange(40) % 3 == 0
N_REFUSED, N_RIGHT = 10, 20  # q0, q4, ... are refused; of the other 30, the 20 that are no multiple of 3 are right


def first_pass(name: str = "first", draw: int = 0) -> pl.DataFrame:
    rows = table_rows(REFUSED, WRONG, model=name, draw=draw)
    return rows.with_columns(
        wrong=pl.when(~pl.col("refused")).then("wrong"),
        forced_grade=pl.lit(None, pl.String),
        unscored_reason=pl.when("refused").then(pl.lit("forced_not_asked")),
    )


def unforced(name: str = "first") -> RunResults:
    return RunResults.of_tables(name, Path(name), name, "d", {"normal": first_pass(name)})


@pytest.fixture
def both() -> RunResults:
    return make_run("both", n=40, variants=("normal",))


def test_theory_rates_of_a_first_pass_are_compared_over_all_its_questions(both):
    compared = compare_pair((unforced(), both))
    (variant,) = compared.variants
    assert variant.match.matrix.scored.sum(axis=1).tolist() == [40, 40]
    by_name = variant.differences()
    assert by_name["refusal_rate"].first == pytest.approx(N_REFUSED / 40)
    assert by_name["correct_rate"].first == pytest.approx(N_RIGHT / 40)
    assert by_name["correct_given_attempted"].first == pytest.approx(N_RIGHT / 30)
    assert by_name["refusal_rate"].second == pytest.approx(both.tables["normal"]["refused"].mean())
    assert by_name["refusal_rate"].pvalue is not None


@pytest.mark.parametrize("turned", [False, True])
def test_metrics_that_need_forced_answers_are_undefined_with_the_reason(both, turned):
    runs = (both, unforced()) if turned else (unforced(), both)
    compared = compare_pair(runs)
    side = "second" if turned else "first"
    for name in ("refusal_index", "error_rate", "over_refusal", "refusal_precision", "refusal_recall"):
        difference = compared.variants[0].comparison[name]
        assert (difference.estimate, difference.status, difference.pvalue) == (None, "undefined", None)
        assert difference.reason == f"{side}:forced_not_asked"
        assert getattr(difference, side) is None
    of_both = compared.variants[0].comparison["error_rate"]
    assert (of_both.first if turned else of_both.second) == pytest.approx(both.tables["normal"]["wrong"].mean())
    codes = [statement.code for statement in compared.statements]
    assert codes[0] == "difference_unknown"
    assert "never_forced" in codes
    assert "missing_grades" not in codes
    assert compared.to_document()["missing"] == {"first": {}, "both": {}}


def test_ranking_by_ri_names_runs_without_a_forced_pass(both):
    runs = (both, make_run("other", n=40, seed=3, variants=("normal",)), unforced())
    with pytest.raises(OutcomeTableError, match="there was none in first; leave these out"):
        rank(runs, Analysis(metric="refusal_index"))
    by_refusals = {
        runs[run.row].label: run.estimate for run in rank(runs, Analysis(metric="refusal_rate")).ranking.runs
    }
    assert by_refusals["first"] == pytest.approx(N_REFUSED / 40)


def test_planning_says_that_there_was_no_forced_pass(both):
    with pytest.raises(OutcomeTableError, match=r"there was none in first \(normal\)"):
        scenarios_of(unforced())
    with pytest.raises(OutcomeTableError, match="expected a run with a forced pass"):
        plan_apart((both, unforced()), None, PlanOptions())
    assert scenarios_of(both)["normal"].refusal_rate == pytest.approx(both.tables["normal"]["refused"].mean())


def test_repeated_samples_without_grades_are_complete_if_only_the_first_pass_was_planned():
    further = first_pass(draw=1).with_columns(
        wrong=pl.lit(None, pl.Boolean),
        unscored_reason=pl.when("refused").then(pl.lit("forced_not_asked")).otherwise(pl.lit("first_not_graded")),
    )
    assert completeness(further).scored == 0
    assert completeness(further, answered_only=True).scored == 40
    table = pl.concat([first_pass(), further])
    (variant,) = summarise(table, answered_only=True).variants
    assert [caveat.code for caveat in variant.caveats] == ["first_pass_samples"]
    assert variant.caveats[0].values == {"questions": 40, "draws": 2}
    assert variant.is_complete
    assert variant.metric("correct_rate").estimate == pytest.approx(N_RIGHT / 40)


def test_joint_index_over_first_passes_is_undefined_for_lack_of_a_forced_pass():
    table = pl.concat([first_pass(), first_pass().with_columns(variant=pl.lit("low"))])
    (pooled,) = summarise(table, answered_only=True).pooled
    assert (pooled.refusal_index.estimate, pooled.refusal_index.reason) == (None, "forced_not_asked")
    assert set(pooled.left_out.values()) == {"forced_not_asked"}
