"""Gate decisions: by metric, paired by question, and never in favour of missing data."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import fisher_exact

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.asked import Asked
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.changed_questions import change_limit, most_changed, permutation_pvalue
from refusal_index.findings.gate import GateResult, decide
from refusal_index.findings.gate_policy import (
    MARGINS,
    Policy,
    PolicyError,
    read_policy,
)
from refusal_index.findings.guards import questions_for_margins
from refusal_index.findings.run_results import RunResults, runs_of_table
from refusal_index.findings.summary import summarise
from refusal_index.render.gate import guard_table
from refusal_index.stats import (
    AtLook,
    GroupSequential,
    compare_corrected,
    compare_metrics,
    corrected_refusal_index,
)

N = 600
WIDE = {"refusal_index": 0.25, "correct_rate": 0.1, "correct_given_attempted": 0.1}


def grade_of(wrong: bool) -> Grade:
    return Grade.INCORRECT if wrong else Grade.CORRECT


def outcome_of(refused: bool, wrong: bool) -> Outcome:
    first = Grade.REFUSED if refused else grade_of(wrong)
    return Outcome(refused, wrong, first, grade_of(wrong), None, "reply", "reply")


def run_of(
    refused: np.ndarray, wrong: np.ndarray, label: str = "m", variant: str | None = "normal", first_id: int = 0
) -> RunResults:
    """Make a run from arrays of refusals and errors, shape (draws, n)."""
    table = outcome_table(
        (
            Identification(label, "d", variant, draw),
            Question(f"q{first_id + i:04}", f"question {first_id + i}", "!"),
            outcome,
        )
        for draw, rows in enumerate(zip(refused, wrong, strict=True))
        for i, outcome in enumerate(map(outcome_of, *map(np.ndarray.tolist, rows)))
    )
    return runs_of_table(Path(f"{label}.parquet"), table, {})[0]


def draws_of(rho: float, seed: int, n: int = N, draws: int = 1, refusal: float = 0.3, error: float = -0.1):
    """Sample refusals and errors of a model; all models share the difficulty of the questions."""
    hard = np.random.default_rng(99).standard_normal(n)
    rng = np.random.default_rng(seed)
    inclined = rho * hard + math.sqrt(1 - rho * rho) * np.random.default_rng(98).standard_normal(n)
    noise = 0.4 * rng.standard_normal((2, draws, n))
    return inclined + noise[0] > refusal, hard + noise[1] > error


@pytest.fixture(scope="module")
def base() -> RunResults:
    return run_of(*draws_of(0.6, 1), "base")


def incomplete(found: GateResult) -> tuple[str, ...]:
    """Return the runs for whose missing answers there is no verdict."""
    obstacle = found.obstacle
    return () if obstacle is None else tuple(role for role, _ in obstacle.values["missing"])


def guard(found: GateResult, metric: str):
    (one,) = [one for one in found.guards if one.guard.name == metric]
    return one


def test_gate_numbers_match_paired_comparison(base):
    candidate = run_of(*draws_of(0.5, 2), "candidate")
    found = decide(candidate, base, Policy())
    arrays = [
        np.stack([one.tables["normal"][name].to_numpy() for one in (candidate, base)]) for name in ("refused", "wrong")
    ]
    expected = compare_metrics(*arrays)
    for metric in ("refusal_index", "correct_rate", "refusal_rate"):
        one, difference = guard(found, metric), expected[metric]
        assert one.guard.estimate == difference.estimate
        worst = difference.confidence_interval(0.9)[0 if one.guard.higher_is_better else 1]
        assert one.test.worst == pytest.approx(worst, abs=1e-12)
    assert found.questions == N


def test_equal_model_passes_and_less_accurate_model_fails_on_correct_rate(base):
    assert decide(run_of(*draws_of(0.6, 3), "as good"), base, Policy(margins=WIDE)).verdict == "pass"
    found = decide(run_of(*draws_of(0.6, 3, error=-1.2), "knows less"), base, Policy())
    assert found.verdict == "fail"
    assert guard(found, "correct_rate").test.verdict == "fail"
    assert "correct" in found.why


def test_model_with_uninformative_refusals_fails_the_index_guard(base):
    found = decide(run_of(*draws_of(-0.3, 3), "guessing"), base, Policy())
    assert guard(found, "refusal_index").test.verdict == "fail"
    assert found.statements[0].values["reasons"][0].values["metrics"][0] == "refusal_index"


def test_guards_that_fail_for_the_same_reason_are_named_together(base):
    _, wrong = draws_of(0.6, 3, error=-1.2)
    found = decide(run_of(np.zeros_like(wrong), wrong, "answers, and knows less"), base, Policy())
    beyond, undefined = sorted(found.statements[0].values["reasons"], key=lambda one: one.code)
    assert (beyond.code, undefined.code) == ("guard_beyond", "guard_undefined")
    assert beyond.values["metrics"] == ["correct_rate", "correct_given_attempted"]
    assert undefined.values["metrics"] == ["refusal_index"]


def test_inconclusive_verdict_says_how_many_questions_would_pass(base):
    found = decide(run_of(*draws_of(0.6, 3), "as good"), base, Policy())
    assert found.verdict == "inconclusive"
    assert found.recommended_questions > N
    estimate = guard(found, "refusal_index").guard.estimate
    on_its_limit = decide(found.candidate, base, Policy(margins={"refusal_index": abs(estimate)}))
    assert on_its_limit.recommended_questions > N, "the true difference may be 0"
    repeated = decide(base, base, Policy(margins={"refusal_index": 0.001}))
    worst = guard(repeated, "refusal_index").test.worst
    assert repeated.recommended_questions == pytest.approx(N * -worst / 0.001, abs=1)
    assert repeated.more_questions is None or repeated.more_questions + N == repeated.recommended_questions
    worse = decide(run_of(*draws_of(0.6, 3, error=-0.35), "worse"), base, Policy(margins=WIDE))
    assert (worse.verdict, worse.recommended_questions) == ("inconclusive", None)


def test_questions_for_margins_give_80_percent_power_to_pass_and_to_fail():
    table = pl.DataFrame(dict(zip(("refused", "wrong"), (one[0] for one in draws_of(0.6, 1)), strict=True)))
    (variant,) = summarise(read_outcomes(table)).variants
    errors = {name: (variant.metric(name).high - variant.metric(name).low) / 2 / ndtri(0.975) for name in MARGINS}
    needed = questions_for_margins(variant, DEFAULT_ANALYSIS, Policy())
    reach = {name: margin / (math.sqrt(2 * N / needed) * errors[name]) for name, margin in MARGINS.items()}
    assert sum(ndtr(ndtri(0.95) - one) for one in reach.values()) <= 0.2, "an equal candidate passes"
    # of a candidate that is worse by twice the margin with the widest interval, with Holm's adjustment for four guards
    assert ndtr(min(reach.values()) - ndtri(1 - 0.05 / 4)) == pytest.approx(0.8, abs=1e-3)
    assert questions_for_margins(variant, DEFAULT_ANALYSIS, Policy(margins={"refusal_index": 0.0})) is None
    never = summarise(read_outcomes(table.with_columns(refused=pl.lit(value=False)))).variants[0]
    assert questions_for_margins(never, DEFAULT_ANALYSIS, Policy()) is None


def test_model_that_never_refuses_fails_however_accurate(base):
    _, wrong = draws_of(0.6, 3)
    answers = run_of(np.zeros_like(wrong), wrong, "answers")
    found = decide(answers, base, Policy())
    assert found.verdict == "fail"
    failed = {one.guard.name for one in found.guards if one.test.verdict == "fail"}
    assert {"refusal_index", "correct_given_attempted"} <= failed
    assert "it refused no question" in found.why
    knows_more = run_of(np.zeros_like(wrong), draws_of(0.6, 3, error=1.5)[1], "knows more")
    found = decide(knows_more, base, Policy())
    assert [one.guard.name for one in found.guards if one.test.verdict == "fail"] == ["refusal_index"]


def test_model_that_refuses_everything_fails_rates_and_index(base):
    _, wrong = draws_of(0.6, 3)
    found = decide(run_of(np.ones_like(wrong), wrong, "refuses"), base, Policy())
    verdicts = {one.guard.name: one.test.verdict for one in found.guards}
    assert verdicts["correct_rate"] == verdicts["refusal_rate"] == verdicts["refusal_index"] == "fail"
    assert verdicts["correct_given_attempted"] == "inconclusive"
    assert "it refused every question" in found.why


def test_few_questions_without_refusals_are_inconclusive(base):
    few = np.zeros((1, 40), bool)
    wrong = draws_of(0.6, 3)[1][:, :40]
    small = RunResults.of_tables("base", base.source, "base", "d", {"normal": base.tables["normal"].head(40)})
    found = decide(run_of(few, wrong, "few"), small, Policy())
    assert guard(found, "refusal_index").test.verdict == "inconclusive"
    assert found.verdict != "pass"


def test_model_compared_with_itself_passes_without_variance(base):
    found = decide(base, base, Policy())
    assert found.verdict == "pass"
    assert all(one.reason == "constant_difference" for one in found.guards)
    assert guard(found, "correct_rate").test.worst == pytest.approx(-(1 - 0.05 ** (1 / N)))
    twenty = RunResults.of_tables("base", base.source, "base", "d", {"normal": base.tables["normal"].head(20)})
    assert decide(twenty, twenty, Policy()).verdict == "inconclusive"


CORRECTED = Policy(metric="corrected_refusal_index")


def test_gate_guards_ri_unless_policy_selects_the_corrected_index():
    models = [draws_of(0.6, seed, draws=2) for seed in (2, 1)]
    runs = [run_of(*model, name) for model, name in zip(models, "ba", strict=True)]
    single = compare_metrics(*(np.stack([model[part][0] for model in models]) for part in (0, 1)))["refusal_index"]
    results = [corrected_refusal_index(*model, single=[part[0] for part in model]) for model in models]
    for policy, expected in ((Policy(), single), (CORRECTED, compare_corrected(*results))):
        (one,) = (one for one in decide(*runs, policy).guards if one.guard.name == policy.metric)
        assert one.guard.estimate == pytest.approx(expected.estimate, abs=1e-12)
        assert one.test.worst == pytest.approx(expected.confidence_interval(0.9).low, abs=1e-12)
        assert decide(runs[1], runs[1], policy).verdict == "pass"


def test_undefined_corrected_index_is_inconclusive_without_fallback(base):
    twice, once = run_of(*draws_of(0.6, 2, draws=2), "twice"), run_of(*draws_of(0.6, 2), "once")
    for sides in ((twice, base), (once, run_of(*draws_of(0.6, 1, draws=2), "base")), (once, base)):
        found = decide(*sides, CORRECTED.changed(margins=WIDE | {"corrected_refusal_index": 1.0}))
        one = guard(found, "corrected_refusal_index")
        assert (found.verdict, one.test.verdict) == ("inconclusive", "inconclusive")
        assert (one.guard.estimate, one.reason) == (None, "no_repeated_questions")
        assert "corrected RI cannot be judged" in found.why
    bound = decide(once, None, CORRECTED.changed(at_least={"corrected_refusal_index": -1.0}))
    assert (bound.verdict, bound.guards[0].reason) == ("inconclusive", "no_repeated_questions")
    refused, wrong = draws_of(0.6, 2)
    never = decide(
        run_of(np.zeros_like(refused), wrong, "never"), None, CORRECTED.changed(at_least=bound.policy.at_least)
    )
    assert (never.verdict, never.guards[0].reason) == ("inconclusive", "no_repeated_questions")


def test_bounds_on_a_table_without_recorded_questions_add_a_note(base):
    policy, note = Policy(at_least={"refusal_index": -0.5}), "does not record which questions were asked"
    assert note in str(decide(base, None, policy))
    assert note not in str(decide(recorded(base), None, policy))


def missing_of(run: RunResults, count: int) -> RunResults:
    """Leave the last questions of a run unfinished."""
    rows = run.tables["normal"].with_row_index()
    last = pl.col("index") >= rows.height - count
    changed = rows.with_columns(
        *(pl.when(~last).then(name).alias(name) for name in ("refused", "wrong", "first_grade", "forced_grade")),
        unscored_reason=pl.when(last).then(pl.lit("not_finished")),
    )
    return RunResults.of_tables(run.label, run.source, run.model, run.dataset, {"normal": changed.drop("index")})


def test_run_with_too_many_missing_grades_is_inconclusive(base):
    policy = Policy(margins={"refusal_index": 0.2}, max_missing=0.02)
    assert decide(missing_of(base, 12), base, policy).verdict == "pass"  # exactly 2%
    found = decide(missing_of(base, 13), base, policy)
    assert {one.test.verdict for one in found.guards} == {found.verdict} == {"inconclusive"}
    assert "2.17% of the candidate's questions" in found.why
    assert found.more_questions is None
    assert incomplete(decide(base, missing_of(base, 13), policy)) == ("baseline",)
    worse = run_of(*draws_of(0.6, 3, error=-1.2), "knows less")
    assert decide(missing_of(worse, 12), base, policy).verdict == "fail"
    assert decide(missing_of(worse, 60), base, policy).verdict == "inconclusive"
    assert decide(missing_of(base, 13), base, policy.changed(max_missing=0.1)).verdict == "pass"


def test_run_without_any_grade_is_matched_and_inconclusive(base):
    nothing = missing_of(base, N)
    for policy in (Policy(), Policy(max_missing=0.999), Policy(max_missing=0.999, at_least={"correct_rate": 0.0})):
        found = decide(nothing, base, policy)
        assert (found.verdict, found.questions, found.missing["candidate"]) == ("inconclusive", 0, 1.0)
        text = str(found)
        assert "100% of the candidate's questions" in text
        assert "more questions" not in text
        assert json.dumps(found.to_document(), allow_nan=False)
    half = missing_of(base, N // 2)
    rows = base.tables["normal"]
    other = rows.with_columns(
        pl.when(pl.int_range(pl.len()) >= N // 2).then(name).alias(name) for name in ("refused", "wrong")
    )
    apart = RunResults.of_tables("apart", base.source, "m", "d", {"normal": other})
    found = decide(half, apart, Policy(max_missing=0.6, at_least={"correct_rate": 0.0}))
    assert found.verdict == "inconclusive"
    assert "too few questions have a grade in both" in found.why
    assert found.more_questions is None
    assert "would settle it" not in str(found)


def without(run: RunResults, count: int) -> RunResults:
    """Delete the last questions of a run from its table."""
    return run.with_tables({name: rows.head(rows.height - count) for name, rows in run.tables.items()})


def recorded(run: RunResults, questions: int = N, seed: int = 0) -> RunResults:
    """Record the dataset and the number of questions a run asked, as its folder does."""
    settings = {"dataset": {"name": "d", "sha256": "0", "questions": questions}, "seed": seed}
    return replace(run, settings=settings, asked={"normal": Asked(questions)})


@pytest.mark.parametrize(
    ("keep", "share"),
    [
        (lambda run: run, 450 / N),  # bare tables: every question in either is expected
        (recorded, 450 / N),  # a folder records how many there were
    ],
    ids=["tables", "folders"],
)
def test_absent_questions_count_as_missing_on_either_side(base, keep, share):
    worse = run_of(*draws_of(0.2, 3, error=-0.4), "worse")
    assert decide(keep(worse), keep(base), Policy()).verdict == "fail"
    for gone, sides in (
        ("candidate", (keep(without(worse, 450)), keep(base))),
        ("baseline", (keep(base), keep(without(worse, 450)))),
    ):
        found = decide(*sides, Policy(margins=dict.fromkeys(MARGINS, 1.0)))
        assert (found.verdict, incomplete(found), found.missing[gone]) == ("inconclusive", (gone,), share)
        assert f"75% of the {gone}'s questions" in found.why
    policy = Policy(margins={"refusal_index": 0.2}, max_missing=0.02)
    few = decide(keep(without(base, 12)), keep(base), policy)
    assert (few.verdict, few.missing["candidate"]) == ("pass", 0.02)
    assert decide(keep(without(base, 13)), keep(base), policy).verdict == "inconclusive"


def test_recorded_smaller_sample_is_compared_on_its_questions(base):
    small = recorded(without(base, 450), 150)
    for sides in ((small, recorded(base)), (recorded(base), small), (small, base), (base, small)):
        found = decide(*sides, Policy(margins=dict.fromkeys(MARGINS, 1.0)))
        assert (found.verdict, found.questions, set(found.missing.values())) == ("pass", 150, {0.0})
    missing = decide(recorded(without(base, 460), 150), recorded(base), Policy())
    assert (missing.verdict, missing.missing["candidate"]) == ("inconclusive", 10 / 150)
    other_seed = decide(recorded(without(base, 450), 150, seed=1), recorded(base), Policy())
    assert incomplete(other_seed) == ()


def test_baseline_with_other_questions_is_rejected_with_shared_count(base):
    shifted = run_of(*draws_of(0.6, 3), "other", first_id=301)
    with pytest.raises(OutcomeTableError, match=r"at least half of .* got 299 shared \(candidate 600, baseline 600\)"):
        decide(shifted, base, Policy())
    half = run_of(*draws_of(0.6, 3), "half", first_id=300)
    found = decide(half, base, Policy())
    assert (found.questions, found.match.left_out) == (300, (300, 300))


def test_gate_requires_choosing_one_of_several_variants(base):
    rows = base.tables["normal"]
    both = {name: rows.with_columns(variant=pl.lit(name)) for name in ("normal", "high")}
    run = RunResults.of_tables("two", base.source, "m", "d", both)
    with pytest.raises(OutcomeTableError, match="one prompt to judge, got normal, high"):
        decide(run, run, Policy())
    with pytest.raises(OutcomeTableError, match="one prompt to judge"):
        decide(run, None, Policy(at_least={"correct_rate": 0.1}))
    with pytest.raises(OutcomeTableError, match="no prompt 'low'"):
        decide(run, run, Policy(variant="low"))
    assert decide(run, run, Policy(variant="high")).variant == "high"
    assert decide(run, base, Policy()).variant == "normal"


def test_gate_accounts_for_clusters(base):
    other = run_of(*draws_of(0.6, 3), "other")
    alike = {"cluster": (pl.int_range(pl.len()) // 20).cast(pl.String)}

    def clustered(run: RunResults) -> RunResults:
        rows = {name: table.with_columns(**alike) for name, table in run.tables.items()}
        return RunResults.of_tables(run.label, run.source, run.model, run.dataset, rows)

    plain, grouped = decide(other, base, Policy()), decide(clustered(other), clustered(base), Policy())
    assert grouped.sampling["clusters"] == 30
    assert plain.sampling is None
    for one, another in zip(plain.guards, grouped.guards, strict=True):
        assert one.guard.estimate == pytest.approx(another.guard.estimate)
        assert one.test.worst != another.test.worst
    same = decide(clustered(base), clustered(base), Policy())
    assert guard(same, "correct_rate").test.worst == pytest.approx(-(1 - 0.05 ** (1 / 30)))


def test_fixed_bounds_need_no_baseline(base):
    rate = float((~base.tables["normal"]["refused"] & ~base.tables["normal"]["wrong"]).mean())
    bounds = {"at_least": {"correct_rate": rate - 0.1}, "at_most": {"refusal_rate": 0.7}}
    assert decide(base, None, Policy(**bounds)).verdict == "pass"
    assert decide(base, None, Policy(at_least={"correct_rate": rate + 0.1})).verdict == "fail"
    found = decide(base, None, Policy(at_least={"correct_rate": rate - 0.01}))
    assert found.verdict == "inconclusive"
    assert found.more_questions == math.ceil((found.guards[0].test.times - 1) * N) > 0
    with pytest.raises(PolicyError, match="got neither"):
        decide(base, None, Policy())


def test_all_bounds_and_margins_must_hold(base):
    found = decide(base, base, Policy(at_least={"correct_rate": 0.9}))
    assert found.verdict == "fail"
    assert [one.against_baseline for one in found.guards] == [True] * 4 + [False]


def test_bounds_and_margins_use_the_same_p(base):
    high_p = replace(base, about={"weighted_score_p": 3.0})
    found = decide(base, high_p, Policy(margins={"weighted_score": 0.1}, at_least={"weighted_score": -3}))
    margin, bound = (one for one in found.guards if one.guard.name == "weighted_score")
    assert margin.candidate == pytest.approx(bound.candidate)


def test_index_bound_fails_if_the_index_is_undefined(base):
    _, wrong = draws_of(0.6, 3)
    for refused in (np.zeros_like(wrong), np.ones_like(wrong)):
        assert decide(run_of(refused, wrong, "m"), None, Policy(at_least={"refusal_index": -1})).verdict == "fail"


def test_gate_at_a_look_uses_the_group_sequential_level(base):
    other, look = run_of(*draws_of(0.6, 3), "other"), AtLook(GroupSequential.planned(5 * N), N)
    alone, early = decide(other, base, Policy()), decide(other, base, Policy(), look=look)
    assert early.level_at_look == look.level < early.alpha == alone.alpha == 0.05
    assert alone.level_at_look is None
    assert "90% interval" in str(early)
    for before, now in zip(alone.guards, early.guards, strict=True):
        assert now.test.worst < before.test.worst if now.guard.higher_is_better else now.test.worst > before.test.worst
        assert now.test.pvalue_beyond == before.test.pvalue_beyond
    worst = decide(run_of(*draws_of(0.6, 3, error=-0.9), "worse"), base, Policy(), look=look)
    test = guard(worst, "correct_rate").test
    assert test.pvalue_holm == pytest.approx(4 * look.pvalue(test.pvalue_beyond))


def never_forced(run: RunResults) -> RunResults:
    """Return a run without its forced pass, in which every second question is unanswerable."""
    rows = run.tables["normal"].with_columns(
        wrong=pl.when(~pl.col("refused")).then("wrong"),
        forced_grade=pl.lit(None, pl.String),
        forced_reply=pl.lit(None, pl.String),
        unscored_reason=pl.when("refused").then(pl.lit("forced_not_asked")),
        answerable=pl.int_range(pl.len()) % 2 == 0,
    )
    return RunResults.of_tables("never", run.source, "m", "d", {"normal": rows})


def test_refusals_by_answerability_are_those_of_the_questions_compared(base):
    """Every question that the smaller candidate shares is answerable; the baseline has unanswerable ones besides."""
    rows = base.tables["normal"].with_columns(answerable=pl.int_range(pl.len()) < N // 2)
    baseline = RunResults.of_tables("split", base.source, "m", "d", {"normal": rows})
    for kept, stated in ((N // 2, []), (N, ["The candidate", "The baseline"])):
        candidate = RunResults.of_tables("part", Path("part.parquet"), "m", "d", {"normal": rows.head(kept)})
        found = decide(candidate, baseline, Policy())
        refused = [one.values["run"] for one in found.statements if one.code == "refused_by_answerable"]
        assert refused == stated


def test_gate_rejects_a_baseline_without_a_forced_pass(base):
    with pytest.raises(OutcomeTableError, match=r"baseline: expected forced answers .* got a first pass only"):
        decide(base, never_forced(base), Policy())


def test_bounds_on_refusals_alone_need_no_forced_pass(base):
    never = never_forced(base)
    rates = {"refused_answerable": 0.9, "refused_unanswerable": 0.9, "refusal_rate": 0.9}
    found = decide(never, None, Policy(at_most=rates))
    assert found.verdict == "pass"
    assert found.missing == {"candidate": 0}
    assert found.questions == N
    refused = never.outcomes.group_by("answerable").agg(pl.col("refused").mean()).sort("answerable")["refused"]
    shown = [guard(found, name).candidate for name in ("refused_unanswerable", "refused_answerable")]
    assert shown == pytest.approx(refused.to_list())
    assert guard(found, "refusal_rate").candidate == pytest.approx(never.outcomes["refused"].mean())
    assert decide(never, None, Policy(at_most={"refused_answerable": 0.01})).verdict == "fail"
    with pytest.raises(OutcomeTableError, match="candidate: expected forced answers"):
        decide(never, None, Policy(at_most=rates, at_least={"refusal_index": 0}))


def test_most_changed_questions_list_worst_losses_first():
    before = run_of(np.array([[0, 0, 0, 1, 1, 0]] * 2, bool), np.array([[0, 0, 1, 1, 0, 0]] * 2, bool), "a")
    now = run_of(
        np.array([[0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 1, 0]], bool),
        np.array([[1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0]], bool),
        "b",
    )
    rows = [one.tables["normal"] for one in (now, before)]
    found = most_changed(*rows, [f"q{i:04}" for i in range(6)], exact=True)
    assert [(one.question_id, one.baseline, one.candidate, one.change) for one in found] == [
        ("q0002", "answered_wrong", "answered_right", 2.0),
        ("q0000", "answered_right", "answered_right", -1.0),
        ("q0001", "answered_right", "refused_right", -1.0),
    ]
    assert found[1].draws_candidate == "1 of 2"
    assert [one.question_id for one in most_changed(*rows, ["q0001", "q0002"], exact=True, limit=1)] == ["q0002"]


def test_questions_are_compared_on_draws_present_in_both_runs():
    before = run_of(np.zeros((2, 2), bool), np.array([[0, 0], [1, 1]], bool), "a").tables["normal"]
    now = run_of(np.zeros((1, 2), bool), np.array([[0, 1]], bool), "b").tables["normal"]
    (one,) = most_changed(now, before, ["q0000", "q0001"], exact=True)
    assert (one.question_id, one.draws_baseline, one.draws_candidate, one.change) == ("q0001", "1 of 1", "1 of 1", -2.0)


def samples(*worths: str, label: str) -> pl.DataFrame:
    """Return the rows of a run; each string gives a question's samples by letter: right, wrong or (f) refused."""
    refused, wrong = (np.array([[letter in kind for letter in worth] for worth in worths]).T for kind in ("f", "wf"))
    return run_of(refused, wrong, label).tables["normal"]


def test_changes_within_sampling_noise_are_listed_last_and_marked():
    ids = [f"q{i:04}" for i in range(4)]
    before = samples("rrrrr", "rrwwf", "rwrwr", "rrrrr", label="a")
    now = samples("wwwww", "rwwff", "wrrwf", "rrrrf", label="b")
    one, *others = most_changed(now, before, ids, exact=False)
    assert [(other.question_id, other.may_be_noise) for other in others] == [
        ("q0001", True),
        ("q0002", True),
        ("q0003", True),
    ]
    assert not one.may_be_noise
    assert (one.question_id, one.change, change_limit(now, before, ids, exact=False)) == ("q0000", -2.0, None)
    # Benjamini-Hochberg: p = 2/252 is above 0.05/7, the limit for the smallest of 7 p-values
    many = samples("rrrrr", *["rrwwf"] * 6, label="a"), samples("wwwww", *["rrwwf"] * 6, label="b")
    assert [one.may_be_noise for one in most_changed(*many[::-1], [f"q{i:04}" for i in range(7)], exact=False)] == [
        True
    ]


def test_larger_changes_that_may_be_noise_come_after_smaller_ones_beyond_it():
    before = samples("r" * 8, "r" * 8, label="a")
    now = samples("f" * 8, "w" * 8, label="b")
    cut = [rows.filter((pl.col("question_id") == "q0000") | (pl.col("draw") < 2)) for rows in (now, before)]
    found = most_changed(*cut, ["q0000", "q0001"], exact=False)
    assert [(one.change, one.may_be_noise) for one in found] == [(-1.0, False), (-2.0, True)]


@pytest.mark.parametrize(
    ("draws", "exact", "why"),
    [(1, False, "single_responses"), (3, False, "too_few_samples"), (4, False, None), (1, True, None)],
)
def test_change_limit_says_why_no_change_can_be_shown(draws, exact, why):
    before, now = samples("r" * draws, label="a"), samples("w" * draws, label="b")
    assert change_limit(now, before, ["q0000"], exact) == why
    (one,) = most_changed(now, before, ["q0000"], exact)
    assert one.may_be_noise == (why is not None)
    assert change_limit(now, before, [], exact) is None


@pytest.mark.parametrize(("draws", "why"), [(7, "too_few_samples"), (8, None)])
def test_one_change_among_many_questions_needs_more_samples_by_enumeration(draws, why):
    """One of 200 questions is listed if 200 times its p-value, 2 / (number of permutations), is at most .05."""
    ways = sum(1 for _ in itertools.combinations(range(2 * draws), draws))
    assert (200 * 2 / ways > 0.05) == (why is not None)
    ids, rest = [f"q{i:04}" for i in range(200)], ["r" * draws] * 199
    before, now = samples("r" * draws, *rest, label="a"), samples("w" * draws, *rest, label="b")
    assert change_limit(now, before, ids, exact=False) == why
    (one,) = most_changed(now, before, ids, exact=False)
    assert one.may_be_noise == (why is not None)


WORTHS = st.lists(st.sampled_from((1.0, 0.0, -1.0)), min_size=1, max_size=5)


@given(WORTHS, WORTHS)
def test_permutation_pvalue_against_brute_force_property(first, second):
    every = np.array(first + second)
    apart = [
        abs(every[list(chosen)].mean() - np.delete(every, list(chosen)).mean())
        for chosen in itertools.combinations(range(len(every)), len(first))
    ]
    share = np.mean(np.array(apart) >= abs(np.mean(first) - np.mean(second)) - 1e-9)
    assert permutation_pvalue(tuple(first), tuple(second)) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("m", "right", "before"), [(4, 1, 4), (6, 0, 5), (8, 2, 7), (20, 5, 15)])
def test_permutation_pvalue_of_binary_outcomes_matches_scipy_fisher_exact(m, right, before):
    table = [[right, m - right], [before, m - before]]
    worths = [(1.0,) * one + (-1.0,) * (m - one) for one in (right, before)]
    assert permutation_pvalue(*worths) == pytest.approx(fisher_exact(table).pvalue, rel=1e-9)


def test_undefined_metric_has_no_adjusted_p(base):
    _, wrong = draws_of(0.6, 3)
    table = guard_table(decide(run_of(np.zeros_like(wrong), wrong, "answers"), base, Policy()))
    (row,) = (row for row in table.rows if row[0] == "RI")
    assert dict(zip(table.columns, row, strict=True))["adjusted p"] == "-"
    assert row[-1] == "fail"


def test_gate_document_is_complete_valid_json(base):
    found = decide(run_of(*draws_of(0.5, 2), "candidate"), base, Policy())
    document = json.loads(json.dumps(found.to_document(), allow_nan=False))
    assert document["verdict"] == found.verdict
    assert [one["metric"] for one in document["guards"]] == ["refusal_index", *list(MARGINS)[1:]]
    assert document["conclusion"]["code"] == "gate_undecided"
    assert document["no_changes"] == "single_responses"
    assert [one["may_be_noise"] for one in document["changed"]] == [True] * 10
    assert "sampling noise" not in str(found)
    exact = [replace(run, about={"sent": {"model": {"temperature": 0}}}) for run in (found.candidate, found.baseline)]
    found = decide(*exact, Policy())
    assert [one["may_be_noise"] for one in found.to_document()["changed"]] == [False] * 10
    assert "10 questions changed by more than sampling noise" in str(found)
    assert document["policy"]["margins"] == dict(MARGINS)


def test_policy_file_is_read_and_extended(tmp_path):
    place = tmp_path / "gate.toml"
    place.write_text('alpha = 0.1\nvariant = "high"\n[margins]\ncorrect_rate = 0.02\n[at_most]\nrefusal_rate = 0.6\n')
    policy = read_policy(place).changed(margins={"refusal_index": 0.2}, variant=None)
    assert dict(policy.margins) == {**MARGINS, "correct_rate": 0.02, "refusal_index": 0.2}
    assert (policy.alpha, policy.variant, dict(policy.at_most)) == (0.1, "high", {"refusal_rate": 0.6})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alhpa = 0.1", "gate.toml: .*got 'alhpa'; did you mean 'alpha'"),
        ("[margins]\nrefusal_index = -0.1", "gate.toml, margins, refusal_index: .*leave out the sign: 0.1"),
        ("[margins]\nrefusl_rate = 0.1", "gate.toml, margins: .*did you mean 'refusal_rate'"),
        ("[margins]\ncorrect_rate = 5", "correct_rate: .* from 0 to 1, got 5; is it a percentage"),
        ("[at_least]\nomniscience_index = 500", "omniscience_index: .* from -100 to 100, got 500$"),
        ("[at_least]\ncorrect_rate = true", "at_least, correct_rate: expected a number, got True"),
        ("[at_least]\ncorrect_rate = nan", "expected a number, got nan"),
        ("[at_most]\nrefusal_rate = -0.5", "at_most, refusal_rate: expected .* from 0 to 1, got -0.5"),
        ("[at_least]\nf_score = 0.5\n[at_most]\nf_score = 0.4", "at_least, f_score: .* its at_most, 0.4, got 0.5"),
        ("margins = 3", "margins: expected a table of metrics and numbers"),
        ("alpha = 0.5", "alpha: expected a number above 0 and below 0.5, got 0.5"),
        ("alpha = '5 %'", "alpha: expected a number"),
        ("max_missing = 2", "max_missing: expected a number from 0 and below 1, got 2"),
        ("variant = 3", "variant: expected the name"),
        ("metric = 'rho'", "metric: expected refusal_index or corrected_refusal_index, got 'rho'"),
        ("alpha = ", "not valid TOML"),
    ],
)
def test_invalid_policy_error_names_file_and_key(text, message, tmp_path):
    place = tmp_path / "gate.toml"
    place.write_text(text)
    with pytest.raises(PolicyError, match=message):
        read_policy(place)


def test_missing_policy_file_error_names_the_file(tmp_path):
    with pytest.raises(PolicyError, match=r"gate\.toml cannot be read"):
        read_policy(tmp_path / "gate.toml")


WIDEST = Policy(margins=dict.fromkeys(MARGINS, 1.0))


def test_samples_of_different_seeds_may_contain_different_questions(base):
    parts = [base.with_tables({"normal": base.tables["normal"][rows]}) for rows in (slice(0, 400), slice(200, 600))]
    same = decide(*(recorded(part, 400) for part in parts), WIDEST)
    assert (incomplete(same), same.missing) == (("baseline",), {"candidate": 0.0, "baseline": 0.5})
    other = decide(recorded(parts[0], 400), recorded(parts[1], 400, seed=1), WIDEST)
    assert (other.verdict, other.questions, incomplete(other)) == ("pass", 200, ())


def test_ungraded_baseline_questions_count_among_compared_questions(base):
    gone = pl.int_range(pl.len()) < 10
    rows = base.tables["normal"].with_columns(wrong=pl.when(~gone).then("wrong"), forced_grade=pl.lit("unscored"))
    ungraded = recorded(base.with_tables({"normal": rows}))
    found = decide(recorded(without(base, 450), 150), ungraded, WIDEST)
    assert (found.verdict, found.missing["baseline"]) == ("inconclusive", 10 / 150)
