"""Gates where answers are missing or were refused again: what is left out and imputed, and what the verdict says."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.findings.test_gate import draws_of, guard, run_of
from tests.tiers import one_fast

import refusal_index.render.comparison
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.asked import Asked
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.gate import decide
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.imputation import (
    CELLS,
    IS_REFUSED_AGAIN,
    cells_used,
    filled_in,
    imputed,
    imputed_in_cells,
    is_missing,
    with_absent,
    with_forced_grades,
    without_refused_again,
)
from refusal_index.findings.judged_runs import JudgedRuns
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults
from refusal_index.render.sentences import sentence
from refusal_index.stats import compare_metrics, refusal_index

N = 2000
LENIENT = Policy(max_missing=0.05)


def rows_of(run: RunResults) -> pl.DataFrame:
    return run.tables["normal"]


def with_rows(run: RunResults, rows: pl.DataFrame) -> RunResults:
    return run.with_tables({"normal": rows})


def refusing_again(run: RunResults, chosen: np.ndarray) -> RunResults:
    """Let the forced pass refuse the chosen questions again, which counts as wrong."""
    again = pl.Series(chosen)
    return with_rows(
        run,
        rows_of(run).with_columns(
            wrong=pl.when(again).then(pl.lit(value=True)).otherwise("wrong"),
            forced_grade=pl.when(again).then(pl.lit("refused")).otherwise("forced_grade"),
        ),
    )


def without_grades(run: RunResults, chosen: np.ndarray) -> RunResults:
    gone = pl.Series(chosen)
    names = ("refused", "wrong", "first_grade", "forced_grade")
    return with_rows(run, rows_of(run).with_columns(pl.when(~gone).then(name).alias(name) for name in names))


def some_of(possible: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    chosen = np.zeros(possible.size, dtype=bool)
    chosen[np.random.default_rng(seed).choice(np.flatnonzero(possible), count, replace=False)] = True
    return chosen


def flags(run: RunResults) -> tuple[np.ndarray, np.ndarray]:
    rows = rows_of(run)
    return rows["refused"].to_numpy(), rows["wrong"].to_numpy()


@pytest.fixture(scope="module")
def base() -> RunResults:
    return run_of(*draws_of(0.6, 1, n=N), "base")


@pytest.fixture(scope="module")
def equal() -> RunResults:
    return run_of(*draws_of(0.6, 3, n=N), "candidate")


# --- Refused again


def test_index_guard_leaves_out_what_either_run_refused_again(base, equal):
    again = [some_of(flags(run)[0], 20, seed) for seed, run in enumerate((equal, base))]
    runs = [refusing_again(run, chosen) for run, chosen in zip((equal, base), again, strict=True)]
    found = decide(*runs, Policy())
    kept = ~again[0] & ~again[1]
    expected = compare_metrics(*(np.stack([one[kept] for one in pair]) for pair in zip(*map(flags, runs), strict=True)))
    assert guard(found, "refusal_index").guard.estimate == pytest.approx(expected["refusal_index"].estimate, abs=1e-12)
    whole = compare_metrics(*(np.stack(pair) for pair in zip(*map(flags, runs), strict=True)))
    assert guard(found, "correct_rate").guard.estimate == pytest.approx(whole["correct_rate"].estimate, abs=1e-12)
    as_scored = [refusal_index(*one).estimate for one in map(flags, runs)]
    assert [one.index_as_scored for one in found.refused_again.values()] == pytest.approx(as_scored, abs=1e-12)
    assert [one.count for one in found.refused_again.values()] == [20, 20]


def test_model_that_refuses_at_random_and_again_does_not_pass_a_bound_on_ri():
    refused = some_of(np.ones(1000, dtype=bool), 406)
    wrong = np.random.default_rng(1).random(1000) < 0.5
    eager = refusing_again(run_of(refused[np.newaxis], wrong[np.newaxis]), refused)
    assert refusal_index(*flags(eager)).estimate > 0.99, "as the paper scores it"
    found = decide(eager, None, Policy(at_least={"refusal_index": 0.5}))
    assert found.verdict == "inconclusive"
    assert found.statements[0].values["reasons"][0].code == "guard_refused_again"
    assert "max_refused_again" in str(found)


def test_above_the_limit_ri_is_not_judged_and_other_guards_are(base, equal):
    refused, _ = flags(equal)
    often = refusing_again(equal, some_of(refused, int(refused.sum() * 0.1) + 1))
    found = decide(often, base, Policy())
    assert {one.guard.name for one in found.guards if one.test.verdict == "inconclusive"} == {"refusal_index"}
    assert decide(often, base, Policy(max_refused_again=0.2)).verdict == "pass"
    knows_less = run_of(*draws_of(0.6, 3, n=N, error=-1.2), "less")
    refused, _ = flags(knows_less)
    assert decide(refusing_again(knows_less, refused), base, Policy()).verdict == "fail"


def test_unanswerable_question_is_not_refused_again():
    rows = pl.DataFrame(
        {
            "question_id": ["a", "b"],
            "question": ["?", "?"],
            "answerable": [True, False],
            "refused": [True, True],
            "wrong": [True, True],
            "forced_grade": ["refused", "refused"],
        }
    )
    assert without_refused_again(rows)["wrong"].to_list() == [None, True]


def test_table_without_forced_grades_says_that_refused_again_is_unknown(base, equal):
    bare = [with_rows(run, rows_of(run).with_columns(forced_grade=pl.lit(None, pl.String))) for run in (equal, base)]
    codes = [statement.code for statement in decide(*bare, Policy()).statements]
    assert "gate_refused_again_unknown" in codes
    assert "gate_refused_again_unknown" not in [
        statement.code for statement in decide(equal, base, Policy()).statements
    ]


# --- Imputation


def table(refused: list[bool | None], wrong: list[bool | None]) -> pl.DataFrame:
    ids = [f"q{number:03}" for number in range(len(refused))]
    given = {"question_id": ids, "refused": refused, "wrong": wrong}
    shared = {
        "model": "m",
        "dataset": "d",
        "variant": "v",
        "question": "?",
        "gold": "!",
        "answerable": True,
        "forced_grade": None,
        "draw": 0,
        "cluster": None,
        "weight": None,
    }
    return pl.DataFrame(given, schema_overrides={"refused": pl.Boolean, "wrong": pl.Boolean}).with_columns(
        **{name: pl.lit(value) for name, value in shared.items()}
    )


def counts(rows: pl.DataFrame) -> list[int]:
    """Return the number of rows in each cell."""
    places = rows.select(2 * pl.col("refused").cast(pl.Int64) + pl.col("wrong").cast(pl.Int64)).to_series()
    return [int((places == place).sum()) for place in range(len(CELLS))]


@pytest.mark.parametrize(("adverse", "right"), [("refused_right", 20), ("refused_wrong", 10)])
def test_forced_answers_get_twice_the_odds_by_theory(adverse, right):
    rows = table([True] * 90 + [False] * 10, [True] * 30 + [False] * 30 + [None] * 30 + [True] * 10)
    assert counts(imputed(rows, [adverse]))[2:] == [30 + right, 30 + 30 - right]


def test_unknown_rows_are_spread_over_four_cells_by_theory():
    rows = table(
        [False] * 40 + [True] * 60 + [None] * 30,
        [False] * 10 + [True] * 30 + [False] * 20 + [True] * 40 + [None] * 30,
    )
    # 10, 30, 20 and 40 in 100; twice the odds for the two in the middle: 10, 60, 40 and 40 in 150
    assert counts(imputed(rows, ["answered_wrong", "refused_right"])) == [10 + 2, 30 + 12, 20 + 8, 40 + 8]


@given(
    st.lists(st.tuples(st.sampled_from([None, False, True]), st.sampled_from([None, False, True])), min_size=1),
    st.sets(st.sampled_from(CELLS)),
    st.randoms(use_true_random=False),
)
def test_imputation_keeps_what_is_known_in_any_order_of_rows(cells, adverse, random):
    rows = table(*map(list, zip(*cells, strict=True)))
    filled = imputed(rows, adverse)
    assert not is_missing(filled).any()
    for name in ("refused", "wrong"):
        known = rows[name].is_not_null()
        assert filled.filter(known)[name].equals(rows.filter(known)[name])
    order = list(range(rows.height))
    random.shuffle(order)
    assert imputed(rows[order], adverse).sort("question_id").equals(filled)


@given(st.sampled_from(CELLS), st.integers(0, 12))
def test_chosen_number_of_missing_rows_falls_into_the_cell(cell, count):
    rows = table([True, False] * 10 + [None] * 12, [True, True, False, False] * 5 + [None] * 12)
    found = counts(imputed_in_cells(rows, [cell], count))
    assert sum(found) == 32
    others = found[CELLS.index(cell)] - 5 - count
    assert 0 <= others <= np.ceil((12 - count) / 4), "the rest is spread evenly, as the graded rows are"


def test_absent_questions_get_a_row_without_a_grade():
    rows = with_absent(table([True, False], [True, False]), ["q000", "q009"], n_unknown=2)
    assert rows["question_id"].to_list() == ["q000", "q001", "q009", "absent 0", "absent 1"]
    assert is_missing(rows).sum() == 3


@pytest.mark.parametrize(
    ("metric", "against_candidate", "against_baseline"),
    [
        ("refusal_index", {"refused_right", "answered_wrong"}, {"refused_wrong", "answered_right"}),
        ("correct_rate", {"refused_right", "refused_wrong", "answered_wrong"}, {"answered_right"}),
        ("correct_given_attempted", {"answered_wrong"}, {"answered_right"}),
        ("refusal_rate", {"refused_right", "refused_wrong"}, {"answered_right", "answered_wrong"}),
    ],
)
def test_cells_that_count_against_a_metric_by_its_definition(base, equal, metric, against_candidate, against_baseline):
    runs = {"candidate": equal, "baseline": base}
    judged = JudgedRuns(runs, {role: rows_of(run) for role, run in runs.items()}, Policy(), DEFAULT_ANALYSIS)
    (named,) = [named for named in judged.guards if named.guard.name == metric]
    assert set(judged._adverse(named, "candidate")) == against_candidate
    assert set(judged._adverse(named, "baseline")) == against_baseline


# --- Missing answers


def test_verdict_without_missing_answers_has_no_imputation(base, equal):
    found = decide(equal, base, Policy())
    assert found.verdict == "pass"
    assert {one.test.worst_imputed for one in found.guards} == {None}
    assert found.tipping_point is None


def test_guard_passes_only_if_it_holds_after_imputation_in_either_run(base, equal):
    gone = some_of(np.ones(N, dtype=bool), 80)
    for candidate, baseline in ((without_grades(equal, gone), base), (equal, without_grades(base, gone))):
        found = decide(candidate, baseline, LENIENT)
        observed = guard(found, "correct_rate").test
        assert observed.worst_imputed < observed.worst
        # between the two limits: the graded answers alone would pass
        margin = -(observed.worst + observed.worst_imputed) / 2
        tight = decide(candidate, baseline, LENIENT.changed(margins={"correct_rate": margin}))
        decided = guard(tight, "correct_rate")
        assert (decided.test.verdict, decided.is_blocked) == ("inconclusive", True)
        assert decided.code == "guard_imputed"
        assert tight.more_questions is None
        assert "more_questions" not in [statement.code for statement in tight.statements]


def test_correct_rate_after_imputation_by_theory(base, equal):
    gone = some_of(np.ones(N, dtype=bool), 80)
    found = decide(without_grades(equal, gone), base, LENIENT)
    rows = rows_of(without_grades(equal, gone))
    answered_right = rows.filter(~pl.col("refused") & ~pl.col("wrong")).height
    others = rows.drop_nulls(["refused", "wrong"]).height - answered_right
    right = answered_right + 80 * answered_right / (answered_right + 2 * others)
    refused, wrong = flags(base)
    baseline = float((~refused & ~wrong).mean())
    runs = {"candidate": without_grades(equal, gone), "baseline": base}
    judged = JudgedRuns(runs, {role: rows_of(run) for role, run in runs.items()}, LENIENT, DEFAULT_ANALYSIS)
    (named,) = [named for named in judged.guards if named.guard.name == "correct_rate"]
    (interval,) = named.guard.imputed
    low, high = interval(0.9)
    assert (low + high) / 2 == pytest.approx(right / N - baseline, abs=1 / N)
    assert low == pytest.approx(guard(found, "correct_rate").test.worst_imputed)


def test_failure_needs_the_graded_answers_only(base):
    worse = run_of(*draws_of(0.6, 3, n=N, error=-1.2), "less")
    gone = some_of(np.ones(N, dtype=bool), 20)
    assert decide(without_grades(worse, gone), base, LENIENT).verdict == "fail"


@one_fast("room", [0.008, 0.004, 0.01, 0.013])
def test_tipping_point_is_the_smallest_number_in_the_worst_cell(base, equal, room):
    gone = some_of(np.ones(N, dtype=bool), 90)
    candidate = without_grades(equal, gone)
    whole = decide(candidate, base, LENIENT)
    test = guard(whole, "correct_rate").test
    policy = LENIENT.changed(
        margins={"correct_rate": -test.worst + room, "refusal_index": 0.4, "correct_given_attempted": 0.4}
    )
    found = decide(candidate, base, policy)
    point = found.tipping_point
    assert (point.run, point.metric, point.missing) == ("candidate", "correct_rate", 90)
    assert 0 < point.count < 90

    def passes(count: int) -> bool:
        filled = with_rows(candidate, imputed_in_cells(rows_of(candidate), point.cells, count))
        return guard(decide(filled, base, policy), "correct_rate").test.verdict == "pass"

    assert passes(point.count - 1)
    assert not passes(point.count)
    text = str(found)
    assert f"{point.count} of the candidate's 90 missing answers" in " ".join(text.split())


def test_tipping_point_of_refusals_without_a_forced_grade_by_brute_force():
    eager = [run_of(*draws_of(0.6, seed, n=N, refusal=-0.9), name) for seed, name in ((1, "base"), (3, "candidate"))]
    base, equal = eager
    missing_grades = some_of(flags(equal)[0], 90)
    gone = pl.Series(missing_grades)
    names = ("wrong", "forced_grade")
    candidate = with_rows(equal, rows_of(equal).with_columns(pl.when(~gone).then(name).alias(name) for name in names))
    worst = guard(decide(candidate, base, LENIENT), "refusal_index").test.worst_imputed
    policy = LENIENT.changed(
        margins=dict.fromkeys(("correct_rate", "correct_given_attempted", "refusal_rate"), 0.5)
        | {"refusal_index": -worst + 0.01}
    )
    point = decide(candidate, base, policy).tipping_point
    assert (point.metric, point.missing, point.cells) == ("refusal_index", 90, ("refused_right",))
    rows = rows_of(candidate)

    def passes(count: int) -> bool:
        """Whether the guard on RI passes with this number of ungraded refusals right when forced."""
        filled = with_rows(candidate, imputed_in_cells(rows, ["refused_right"], count))
        return guard(decide(filled, base, policy), "refusal_index").test.verdict == "pass"

    assert all(passes(count) for count in {*range(0, point.count, 10), point.count - 1})
    assert not passes(point.count)


def test_tipping_point_counts_questions_not_their_samples(base, equal):
    gone = some_of(np.ones(N, dtype=bool), 90)
    candidate = without_grades(equal, gone)
    margin = -guard(decide(candidate, base, LENIENT), "correct_rate").test.worst + 0.008
    policy = LENIENT.changed(margins={"correct_rate": margin, "refusal_index": 0.4, "correct_given_attempted": 0.4})
    again = rows_of(candidate).with_columns(draw=pl.lit(1, rows_of(candidate)["draw"].dtype))
    twice = with_rows(candidate, pl.concat([rows_of(candidate), again]))
    once, repeated = (decide(run, base, policy).tipping_point for run in (candidate, twice))
    assert repeated == once


def test_only_a_question_that_is_known_to_have_no_right_answer_is_not_refused_again():
    rows = pl.DataFrame({"refused": True, "forced_grade": "refused", "answerable": [None, True, False]})
    assert rows.filter(IS_REFUSED_AGAIN).height == 2


@given(st.integers(0, 12))
def test_missing_rows_fall_into_the_worst_cell_that_they_can_be_in(count):
    rows = table(
        [True, False] * 10 + [None] * 4 + [True] * 4 + [False] * 4, [True, True, False, False] * 5 + [None] * 12
    )
    worst = ["answered_wrong", "refused_right"]
    filled = imputed_in_cells(rows, worst, count)
    assert not is_missing(filled).any()
    assert filled["refused"][24:].to_list() == [True] * 4 + [False] * 4
    in_worst = filled.tail(12).filter(pl.col("refused") != pl.col("wrong")).height
    assert in_worst >= count
    expected = {0: (), 8: ("answered_wrong",), 9: tuple(worst), 12: tuple(worst)}
    assert cells_used(rows, worst, count) == expected.get(count, ("answered_wrong",) if count < 9 else tuple(worst))


def test_guard_on_ri_stays_if_the_runs_share_no_answer_that_neither_refused_again():
    first = np.arange(N) % 2 == 0
    wrong = np.random.default_rng(0).random(N) < 0.4
    runs = []
    for refused, name in ((first, "candidate"), (~first, "base")):
        again = refused.copy()
        again[np.flatnonzero(refused)[:2]] = False
        runs.append(refusing_again(run_of(refused[np.newaxis], wrong[np.newaxis], name), again))
    for policy, code in ((Policy(), "guard_refused_again"), (Policy(max_refused_again=0.9999), "guard_unjudged")):
        found = decide(*runs, policy)
        assert [one.guard.name for one in found.guards] == list(policy.margins)
        assert found.verdict == "inconclusive", "the rates alone would pass"
        assert found.statements[0].values["reasons"][0].code == code
    assert "the runs share too few questions that neither refused again" in " ".join(str(found).split())
    assert "undefined" in str(found)


def test_questions_that_only_the_baseline_was_asked_do_not_count(base, equal):
    half = with_rows(equal, rows_of(equal).head(N // 2))
    place = np.arange(N)
    again = refusing_again(base, flags(base)[0] & ((place < 20) | (place >= N // 2)))
    gone = without_grades(again, (place >= 20) & (place < 24) | (place >= N - 60))
    sample = {"dataset": {"name": "d"}, "seed": 0}
    runs = [replace(run, settings=sample, asked={"normal": Asked(rows_of(run).height, 0)}) for run in (half, gone)]
    found = decide(*runs, LENIENT.changed(margins={"refusal_index": 0.3, "correct_given_attempted": 0.2}))
    assert found.verdict == "pass", str(found)
    counted = found.refused_again["baseline"]
    assert (counted.count, counted.refusals) == (
        int(flags(base)[0][:20].sum()),
        rows_of(gone).head(N // 2).filter("refused").height,
    )
    assert found.tipping_point.missing == 4


def test_prompt_of_a_policy_does_not_matter_to_tables_without_prompts():
    candidate, base = (run_of(*draws_of(0.6, seed), variant=None) for seed in (3, 1))
    assert str(decide(candidate, base, Policy(variant="normal"))) == str(decide(candidate, base, Policy()))


def test_table_is_to_be_completed_and_a_run_to_be_run_again(base, equal):
    candidate = without_grades(equal, some_of(np.ones(N, dtype=bool), 2))
    for run, advice in (
        (candidate, "Complete the table."),
        (replace(candidate, settings={"seed": 0}), "Run the 'refusal-index run' command"),
    ):
        for policy in (Policy(), Policy(max_missing=0)):
            assert advice in " ".join(str(decide(run, base, policy)).split())


def test_verdict_with_caveats_fits_one_screen(base, equal):
    refused_again = [refusing_again(run, some_of(flags(run)[0], 100)) for run in (equal, base)]
    once_more = [refusing_again(run, some_of(flags(run)[0], 10)) for run in (equal, base)]
    for runs, margin in ((refused_again, 0.1), (once_more, 0.015)):
        found = decide(*runs, Policy(margins={"refusal_index": margin}))
        assert found.verdict == "inconclusive"
        lines = [line for text in str(found).splitlines() for line in textwrap.wrap(text, 80) or [""]]
        assert len(lines) <= 20 - 2, "the command line adds a blank line and one that names --out"


def test_pass_that_no_missing_answer_can_turn_says_so(base, equal):
    found = decide(without_grades(equal, some_of(np.ones(N, dtype=bool), 2)), base, Policy())
    assert (found.verdict, found.tipping_point.count) == ("pass", None)


def test_absent_questions_are_imputed_too(base, equal):
    short = with_rows(equal, rows_of(equal).head(N - 10))
    found = decide(short, base, Policy())
    assert found.missing["candidate"] == pytest.approx(10 / N)
    assert guard(found, "correct_rate").test.worst_imputed is not None


def test_theory_guard_on_ri_stays_where_runs_share_too_little_without_what_was_refused_again():
    rng = np.random.default_rng(0)
    runs = []
    for label in ("one", "two"):
        refused = rng.random(4000) < 0.7
        wrong = rng.random(4000) < 0.3
        runs.append(refusing_again(run_of(refused[np.newaxis], wrong[np.newaxis], label), refused))
    for policy in (Policy(), Policy(max_refused_again=0.99)):
        found = decide(*runs, policy)
        assert found.verdict == "inconclusive"
        assert guard(found, "refusal_index").reason == "too_few_not_refused_again"
        assert {one.test.verdict for one in found.guards if one.guard.name != "refusal_index"} == {"pass"}


def test_guard_on_corrected_ri_leaves_out_samples_that_were_refused_again():
    """Agrees with corrected RI of runs in which these samples have no grade; as wrong answers they raise it."""
    runs = [run_of(*draws_of(0.6, seed, n=800, draws=3), label) for label, seed in (("candidate", 3), ("base", 1))]
    refused, _ = flags(runs[0])
    chosen = refused & (np.random.default_rng(0).random(refused.size) < 0.08)
    again = refusing_again(runs[0], chosen)
    gone = pl.Series(chosen)
    columns = (pl.when(~gone).then(name).alias(name) for name in ("wrong", "forced_grade"))
    ungraded = with_rows(runs[0], rows_of(runs[0]).with_columns(columns))
    found = guard(decide(again, runs[1], Policy(metric="corrected_refusal_index")), "corrected_refusal_index")
    options = Analysis()
    expected = PairComparison((ungraded, runs[1]), options).variants[0].corrected
    as_scored = PairComparison((again, runs[1]), options).variants[0].corrected
    assert found.guard.estimate == pytest.approx(expected.estimate, abs=1e-12)
    assert found.guard.estimate < as_scored.estimate


def test_missing_samples_count_against_a_guard_on_corrected_ri_after_imputation():
    base, candidate = (run_of(*draws_of(0.6, seed, n=800, draws=3), "m") for seed in (1, 3))
    short = without_grades(candidate, np.random.default_rng(1).random(2400) < 0.03)
    found = guard(
        decide(short, base, Policy(metric="corrected_refusal_index", max_missing=0.05)), "corrected_refusal_index"
    )
    assert found.test.worst_imputed < found.test.worst


def test_theory_bound_on_ri_rests_on_the_candidate_alone(base, equal):
    often = refusing_again(base, flags(base)[0])
    found = decide(equal, often, Policy(at_least={"refusal_index": 0.2}))
    margin, bound = (one for one in found.guards if one.guard.name == "refusal_index")
    assert (margin.test.verdict, margin.refused_again, margin.test.pvalue_holm) == ("inconclusive", ("baseline",), 1)
    assert (bound.test.verdict, bound.refused_again) == ("pass", ())


def test_theory_no_tipping_point_where_ri_is_not_judged(base, equal):
    refused, _ = flags(equal)
    often = refusing_again(equal, some_of(refused, int(refused.sum() * 0.12)))
    assert decide(without_grades(often, some_of(~refused, 2)), base, Policy()).tipping_point is None


def with_sampling(run: RunResults) -> RunResults:
    rows = rows_of(run)
    weights = np.random.default_rng(5).uniform(0.5, 2, rows.height)
    clusters = [f"cluster {number % 400}" for number in range(rows.height)]
    return with_rows(run, rows.with_columns(weight=pl.Series(weights), cluster=pl.Series(clusters)))


def test_absent_questions_with_clusters_and_weights_are_imputed(base, equal):
    """Five questions are in the other run only, and three in neither."""
    requested = {"normal": Asked(N)}
    runs = [with_sampling(run) for run in (equal, base)]
    candidate = replace(with_rows(runs[0], rows_of(runs[0]).head(N - 8)), asked=requested)
    baseline = replace(with_rows(runs[1], rows_of(runs[1]).head(N - 3)), asked=requested)
    found = decide(candidate, baseline, Policy(at_least={"refusal_index": 0.2, "correct_rate": 0.1}))
    assert found.verdict == "pass"
    assert all(one.test.worst_imputed is not None for one in found.guards)
    rows = with_absent(rows_of(candidate), rows_of(baseline)["question_id"], [rows_of(baseline)], 3)
    kept = ("question_id", "question", "gold", "cluster", "weight")
    assert rows.select(kept)[: N - 3].equals(rows_of(baseline).select(kept))
    assert rows["weight"][-1] == pytest.approx(rows_of(baseline)["weight"].mean())
    assert rows["cluster"][-3:].to_list() == ["absent 0", "absent 1", "absent 2"]


def test_theory_absent_questions_are_not_unanswerable(base, equal):
    """Limits on refusals by whether a question has a right answer pass although five answers are absent."""

    def without_some_gold(run: RunResults) -> RunResults:
        lacks = pl.Series(np.arange(N) % 4 == 0)
        return with_rows(run, rows_of(run).with_columns(answerable=~lacks, wrong=pl.col("wrong") | lacks))

    candidate, baseline = (without_some_gold(run) for run in (equal, base))
    requested = {"normal": Asked(N)}
    short = replace(with_rows(candidate, rows_of(candidate).head(N - 5)), asked=requested)
    limits = {"refused_unanswerable": 0.2, "refused_answerable": 0.2}
    assert decide(short, baseline, Policy(margins=limits)).verdict == "pass"
    both = [short, replace(with_rows(baseline, rows_of(baseline).head(N - 5)), asked=requested)]
    assert decide(*both, Policy(margins=limits)).verdict == "pass"
    alone = decide(short, None, Policy(at_most={"refused_answerable": 0.9}, at_least={"refused_unanswerable": 0.1}))
    assert alone.verdict == "pass"


# --- Corrected RI


def sampled_twice(seed: int, name: str) -> RunResults:
    """Return a run with two draws and a forced answer to every question."""
    refused, wrong = draws_of(0.6, seed, n=N, draws=2)
    run = run_of(refused, wrong, name)
    forced = pl.when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct"))
    rows = rows_of(run)
    return with_rows(run, rows.with_columns(forced_grade=forced.cast(rows["forced_grade"].dtype)))


@pytest.fixture(scope="module")
def twice() -> tuple[RunResults, RunResults]:
    return sampled_twice(3, "candidate"), sampled_twice(1, "base")


CORRECTED = Policy(metric="corrected_refusal_index", margins={"corrected_refusal_index": 0.2}, max_missing=0.05)


def with_forced(run: RunResults, chosen: pl.Expr, grade: str, **flags: bool | None) -> RunResults:
    """Give the chosen rows another forced grade, and other flags."""
    rows = rows_of(run)
    new = {name: pl.when(chosen).then(pl.lit(value)).otherwise(name) for name, value in flags.items()}
    lit = pl.lit(grade).cast(rows["forced_grade"].dtype)
    return with_rows(run, rows.with_columns(forced_grade=pl.when(chosen).then(lit).otherwise("forced_grade"), **new))


def is_one_of(share: int) -> pl.Expr:
    return pl.col("question_id").str.tail(4).cast(pl.Int64) % share == 0


def test_corrected_ri_leaves_out_what_any_draw_refused_again(twice):
    candidate, base = twice
    again = pl.col("refused") & (pl.col("draw") == 1) & is_one_of(8)
    eager = with_forced(candidate, again, "refused", wrong=True)
    ungraded = with_forced(candidate, again, "unscored", wrong=None)
    found, expected = (
        guard(decide(run, base, CORRECTED), "corrected_refusal_index").guard.estimate for run in (eager, ungraded)
    )
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("refused", [True, False])
def test_corrected_ri_is_not_judged_if_a_later_draw_or_an_answered_question_is_refused_again_too_often(twice, refused):
    candidate, base = twice
    again = (pl.col("refused") == refused) & (pl.col("draw") == 1)
    eager = with_forced(candidate, again & is_one_of(2), "refused", **({"wrong": True} if refused else {}))
    found = decide(eager, base, CORRECTED)
    assert found.verdict == "inconclusive"
    assert guard(found, "corrected_refusal_index").refused_again == ("candidate",)
    assert decide(eager, base, Policy(margins={"refusal_index": 0.2})).verdict == "pass", "RI rests on the first draws"


def test_corrected_ri_after_imputation_is_that_of_rows_with_the_forced_grades_filled_in(twice):
    candidate, base = twice
    gone = pl.col("refused") & (pl.col("draw") == 1) & is_one_of(10)
    lacks = with_forced(candidate, gone, "unscored", wrong=None)
    found = guard(decide(lacks, base, CORRECTED), "corrected_refusal_index")
    count = rows_of(lacks).filter(gone).height
    graded = with_forced_grades(rows_of(lacks)).drop_nulls("wrong")
    cells = Counter(graded.select("refused", "wrong").iter_rows())
    right = round(count * 2 * cells[True, False] / (2 * cells[True, False] + cells[True, True]))
    filled = filled_in(rows_of(lacks), imputed(with_forced_grades(rows_of(lacks)), ["refused_right", "answered_wrong"]))
    grades = filled.filter(gone)["forced_grade"].cast(pl.String).value_counts()
    assert dict(grades.iter_rows()) == {"correct": right, "incorrect": count - right}
    completed = guard(decide(with_rows(lacks, filled), base, CORRECTED), "corrected_refusal_index")
    assert found.test.worst_imputed == pytest.approx(completed.test.worst, abs=1e-12)
    assert found.test.worst_imputed < found.test.worst


# --- Policies


def test_every_new_statement_has_a_sentence(base, equal):
    refused, _ = flags(equal)
    candidate = without_grades(refusing_again(equal, some_of(refused, 300)), some_of(np.ones(N, dtype=bool), 10))
    found = decide(candidate, base, Policy.from_document({"max_missing": 0.02}, "x"))
    assert all(sentence(statement) for statement in found.statements)


# --- Other results


def test_comparison_and_ranking_say_that_a_run_was_refused_again_often(base, equal):
    refused, _ = flags(equal)
    often = refusing_again(replace(equal, label="often"), some_of(refused, int(refused.sum() * 0.06)))
    pair = PairComparison((often, base), Analysis())
    ranked = rank((often, base, equal), Analysis())
    for found in (pair, ranked):
        (caveat,) = [statement for statement in found.statements if statement.code == "forced_refusals_of"]
        assert (caveat.severity, caveat.values["run"]) == ("serious", "often")
        assert "often refused again" in " ".join(str(found).split())
