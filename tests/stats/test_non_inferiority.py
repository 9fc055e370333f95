"""Non-inferiority tests at the end of a run, and at looks before it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.coverage import sequential as simulation
from benchmarks.coverage.corrected_index import Scenario as Drawn
from benchmarks.coverage.corrected_index import both
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import binom, multivariate_normal, norm
from tests.tiers import others_nightly, reduced_examples

from refusal_index.data import run_json
from refusal_index.stats import AtLook, ConfidenceInterval, GroupSequential
from refusal_index.stats import non_inferiority as designs
from refusal_index.stats.non_inferiority import (
    Guard,
    constant_interval,
    crossing_probabilities,
    judge_guards,
    obrien_fleming_constant,
    obrien_fleming_level,
    pvalue_of_none,
    questions_if_equal,
    times_to_decide,
    times_to_settle,
    verdict_of,
)

# --- Pass, fail and inconclusive


def normal_guard(estimate: float, error: float, limit: float = -0.1, higher: bool = True, name: str = "x") -> Guard:
    def interval(level: float) -> ConfidenceInterval:
        reach = float(ndtri((1 + level) / 2)) * error
        return ConfidenceInterval(estimate - reach, estimate + reach)

    return Guard(name, estimate, limit, higher, interval)


@pytest.mark.parametrize(
    ("estimate", "error"), [(-0.02, 0.03), (-0.02, 0.08), (-0.2, 0.05), (-0.35, 0.05), (0.4, 0.02)]
)
def test_limits_and_pvalues_match_one_sided_normal_tests(estimate, error):
    (one,) = judge_guards([normal_guard(estimate, error)])
    assert one.worst == pytest.approx(estimate - 1.6448536 * error, abs=1e-7)
    assert one.best == pytest.approx(estimate + 1.6448536 * error, abs=1e-7)
    beyond = norm.sf((-0.1 - estimate) / error)
    assert one.pvalue_beyond == pytest.approx(beyond, abs=1e-6)
    assert one.pvalue_inside == pytest.approx(1 - beyond, abs=1e-6)


def test_lower_is_better_metric_is_judged_from_the_other_side():
    low, high = judge_guards([normal_guard(0.02, 0.03, 0.1, False), normal_guard(0.3, 0.03, 0.1, False)])
    assert (low.verdict, high.verdict) == ("pass", "fail")
    assert low.worst == pytest.approx(0.02 + 1.6448536 * 0.03, abs=1e-7)


def test_pvalue_of_asymmetric_interval_is_level_where_it_meets_the_limit():
    def interval(level: float) -> ConfidenceInterval:
        z = norm.ppf((1 + level) / 2)
        return ConfidenceInterval(-0.01 - 0.04 * z, -0.01 + 0.1 * z)

    (one,) = judge_guards([Guard("x", -0.01, -0.1, True, interval)])
    assert interval(1 - 2 * one.pvalue_inside).low == pytest.approx(-0.1, abs=1e-6)
    assert one.verdict == "pass"


def test_verdict_changes_where_pvalue_crosses_alpha():
    at = 1.6448536 * 0.05
    verdicts = [judge_guards([normal_guard(-0.1 + shift, 0.05)])[0].verdict for shift in (at + 1e-6, at - 1e-6)]
    assert verdicts == ["pass", "inconclusive"]
    verdicts = [judge_guards([normal_guard(-0.1 - shift, 0.05)])[0].verdict for shift in (at + 1e-4, at - 1e-4)]
    assert verdicts == ["fail", "inconclusive"]


def test_a_failure_among_several_guards_is_adjusted_by_holm():
    doubtful = normal_guard(-0.1 - 2 * 0.05, 0.05)  # p = .023
    clear = normal_guard(-0.1 - 4 * 0.05, 0.05)
    fine = normal_guard(0.3, 0.05)
    assert judge_guards([doubtful])[0].verdict == "fail"
    tests = judge_guards([doubtful, fine, fine, fine])
    assert tests[0].verdict == "inconclusive"
    assert tests[0].pvalue_holm == pytest.approx(4 * norm.sf(2), rel=1e-4)
    # Holm's second step: after the clear failure, fewer tests remain to adjust for
    tests = judge_guards([doubtful, clear])
    assert [test.verdict for test in tests] == ["fail", "fail"]


def test_one_inconclusive_guard_blocks_pass_and_one_failing_guard_fails():
    fine, beyond, doubtful = normal_guard(0.0, 0.02), normal_guard(-0.5, 0.02), normal_guard(-0.08, 0.05)
    assert verdict_of(judge_guards([fine, fine])) == "pass"
    assert verdict_of(judge_guards([fine, doubtful])) == "inconclusive"
    assert verdict_of(judge_guards([fine, doubtful, beyond])) == "fail"


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_false_pass_and_false_fail_rates_are_at_most_5_percent(correlation):
    rng = np.random.default_rng(7)
    replicates, error = 1000, 0.05
    shared, own = rng.standard_normal(replicates), rng.standard_normal((4, replicates))
    noise = error * (math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own)
    counts = {"pass": 0, "fail": 0}
    for one in noise.T:
        on_one = [normal_guard(z + truth, error) for z, truth in zip(one, (-0.1, 0.3, 0.3, 0.3), strict=True)]
        on_all = [normal_guard(z - 0.1, error) for z in one]
        counts["pass"] += verdict_of(judge_guards(on_one)) == "pass"
        counts["fail"] += verdict_of(judge_guards(on_all)) == "fail"
    most = binom.ppf(0.999, replicates, 0.05)
    assert counts["pass"] <= most
    assert counts["fail"] <= most
    assert counts["pass"] >= binom.ppf(0.001, replicates, 0.05)  # on one limit, all of the error is spent


def test_stated_multiple_of_questions_settles_with_80_percent_power():
    for estimate, needed in ((-0.05, norm.ppf(0.95)), (-0.14, norm.ppf(0.95))):
        (one,) = judge_guards([normal_guard(estimate, 0.05)])
        assert one.verdict == "inconclusive"
        error = 0.05 / math.sqrt(one.times)
        assert norm.sf(needed - abs(estimate + 0.1) / error) == pytest.approx(0.8, abs=1e-6)


def test_look_counts_questions_to_settle_over_remaining_looks():
    design = GroupSequential.planned(2000)
    early, last = (AtLook(design, n) for n in (400, 2000))
    (one,) = judge_guards([normal_guard(0.0, 0.05)], look=early)  # two standard errors inside
    critical = [design.critical_value(n) for n in design.sizes]
    beyond = [norm.cdf(2 * math.sqrt(n / 400) - at) for n, at in zip(design.sizes, critical, strict=True)]
    assert one.times == 3
    assert beyond[1] < 0.8 <= beyond[2], "of the looks to come the third is the first that settles it so often"
    (one,) = judge_guards([normal_guard(-0.06, 0.05)], look=early)
    assert one.times == pytest.approx(((critical[-1] + ndtri(0.8)) / 0.8) ** 2)
    assert one.times > 5
    (one,) = judge_guards([normal_guard(-0.05, 0.05)], look=last)
    assert one.times == pytest.approx((critical[-1] + ndtri(0.8)) ** 2)


@pytest.mark.parametrize("estimate", [0.09, 0.05, -0.2, -0.28])
def test_inconclusive_look_always_needs_more_questions(estimate):
    design = GroupSequential.planned(2000)
    for n in (400, 800, 2000):
        tests = judge_guards([normal_guard(estimate, 0.05), *[normal_guard(0.0, 0.1)] * 3], look=AtLook(design, n))
        assert all(test.times > 1 for test in tests if test.verdict == "inconclusive")


def test_recommended_multiple_gives_80_percent_power_to_pass_and_to_fail_by_theory():
    errors = (0.05, 0.08, 0.02)
    tests = judge_guards(
        [normal_guard(estimate, error) for estimate, error in zip((-0.05, 0.0, 0.02), errors, strict=True)]
    )
    to_pass = questions_if_equal([error / 0.1 for error in errors], 0.05)
    missed = [norm.cdf(norm.ppf(0.95) - 0.1 / (error / math.sqrt(to_pass))) for error in errors]
    assert sum(missed) == pytest.approx(0.2, abs=1e-6)
    times = times_to_decide(tests, 0.05, 0.05)
    assert times > to_pass, "with three guards, more are needed to fail one"
    assert norm.cdf(0.1 / (0.08 / math.sqrt(times)) - norm.ppf(1 - 0.05 / 3)) == pytest.approx(0.8)
    (early,) = judge_guards([normal_guard(0.0, 0.05)], look=(look := AtLook(GroupSequential.planned(2000), 400)))
    (alone,) = judge_guards([normal_guard(0.0, 0.05)])
    assert times_to_decide([early], 0.05, look.level) == pytest.approx(times_to_decide([alone], 0.05, 0.05))


def test_guard_passes_only_if_every_imputation_does():
    def interval_from(low: float):
        return lambda level: ConfidenceInterval(low, 0.1)

    for lows, verdict in (((-0.05, -0.09), "pass"), ((-0.05, -0.11), "inconclusive"), ((-0.11, -0.05), "inconclusive")):
        guard = replace(normal_guard(0.0, 0.02), imputed=tuple(map(interval_from, lows)))
        (test,) = judge_guards([guard])
        assert (test.verdict, test.worst_imputed, test.is_within) == (verdict, pytest.approx(min(lows)), True)
    undefined = replace(guard, imputed=(lambda level: ConfidenceInterval(math.nan, math.nan),))
    assert judge_guards([undefined])[0].verdict == "inconclusive"


def test_interval_of_constant_metric_shrinks_with_questions():
    def interval(level: float):
        return constant_interval(0.0, 1.0, 20, level)

    guard = Guard("x", 0.0, -0.1, True, interval, is_constant=True)
    tests = judge_guards([guard])
    assert times_to_decide(tests, 0.05, 0.05) == tests[0].times == pytest.approx((1 - 0.05 ** (1 / 20)) / 0.1)
    both = judge_guards([guard, normal_guard(0.0, 0.2)])
    assert times_to_decide(both, 0.05, 0.05) == times_to_decide(both[1:], 0.05, 0.05) > tests[0].times


def test_times_to_decide_is_none_for_a_candidate_shown_to_be_worse():
    fewer_is_better = Guard("x", 0.16, 0.1, False, lambda level: ConfidenceInterval(0.06, 0.26))
    undecidable = Guard("x", None, -0.1, True), replace(normal_guard(0.0, 0.05), limit=0)
    for guard in (normal_guard(-0.16, 0.05), fewer_is_better, *undecidable):
        assert times_to_decide(judge_guards([guard]), 0.05, 0.05) is None
    better = replace(fewer_is_better, estimate=-0.16, interval=lambda level: ConfidenceInterval(-0.26, -0.06))
    equal = replace(better, estimate=0.0, interval=lambda level: ConfidenceInterval(-0.1, 0.1))
    times = [times_to_decide(judge_guards([one]), 0.05, 0.05) for one in (better, equal)]
    assert times[0] == pytest.approx(times[1]), "the number depends on the interval's width alone"


def test_one_failing_guard_settles_alone_but_passing_needs_all():
    within, further, beyond = normal_guard(-0.06, 0.05), normal_guard(-0.08, 0.05), normal_guard(-0.17, 0.05)
    tests = judge_guards([within, further])
    assert times_to_settle(tests) == max(test.times for test in tests)
    tests = judge_guards([within, further, beyond])
    assert times_to_settle(tests) == tests[2].times < tests[1].times
    assert times_to_settle(judge_guards([normal_guard(0.1, 0.02)])) is None


def test_estimate_on_its_limit_or_undefined_is_never_settled():
    (on_it, near, none) = judge_guards(
        [normal_guard(-0.1, 0.05), normal_guard(-0.099, 0.05), Guard("x", None, 0, True)]
    )
    assert on_it.times is near.times is none.times is None
    assert (on_it.pvalue_beyond, none.pvalue_beyond, none.pvalue_holm) == (0.5, None, 1.0)
    assert times_to_settle([on_it, none]) is None


def test_constant_metric_has_binomial_interval():
    low, high = constant_interval(0.02, 1.0, 150, 0.9)
    assert (low + high) / 2 == pytest.approx(0.02)
    assert binom.pmf(0, 150, high - 0.02) == pytest.approx(0.05)
    assert constant_interval(0.0, 3.0, 150, 0.9).high == pytest.approx(3 * (high - 0.02))


def test_never_refusing_fails_once_5_percent_refusals_would_be_seen():
    assert pvalue_of_none(58) > 0.05 > pvalue_of_none(59)
    assert pvalue_of_none(40) == pytest.approx(binom.pmf(0, 40, 0.05))
    few, many = (judge_guards([Guard("x", None, -0.1, True, pvalue_beyond=pvalue_of_none(n))])[0] for n in (58, 59))
    assert (few.verdict, many.verdict) == ("inconclusive", "fail")
    assert many.worst is many.best is many.pvalue_inside is None


@pytest.mark.parametrize("alpha", [0, 0.5, -0.1])
def test_invalid_alpha_and_empty_guards_are_rejected(alpha):
    with pytest.raises(ValueError, match="alpha"):
        judge_guards([normal_guard(0, 0.1)], alpha)
    with pytest.raises(ValueError, match="one guard or more"):
        judge_guards([])


# --- Interim looks

FIVE = (0.2, 0.4, 0.6, 0.8, 1.0)


def equal(looks: int) -> tuple[float, ...]:
    return tuple((look + 1) / looks for look in range(looks))


# Jennison and Turnbull (2000), table 2.3: two-sided tests, whose constants are those of one side at half the level.
@pytest.mark.parametrize(
    ("looks", "alpha", "constant"),
    [
        (2, 0.10, 1.678),
        (5, 0.10, 1.751),
        (10, 0.10, 1.801),
        (2, 0.05, 1.977),
        (5, 0.05, 2.040),
        (10, 0.05, 2.087),
        (20, 0.05, 2.126),
        (5, 0.01, 2.621),
        (20, 0.01, 2.695),
    ],
)
def test_constants_against_jennison_turnbull_table(looks: int, alpha: float, constant: float) -> None:
    assert obrien_fleming_constant(equal(looks), alpha / 2) == pytest.approx(constant, abs=6e-4)


def test_crossing_probabilities_against_the_multivariate_normal() -> None:
    boundary, fractions = [2.5, 2.0, 1.7], np.array([0.3, 0.5, 1.0])
    covariance = np.sqrt(np.minimum.outer(fractions, fractions) / np.maximum.outer(fractions, fractions))
    found = crossing_probabilities(boundary, fractions)
    assert found[0] == pytest.approx(norm.sf(2.5), rel=1e-12)
    for looks in (2, 3):
        stays = multivariate_normal(np.zeros(looks), covariance[:looks, :looks]).cdf(boundary[:looks])
        assert found[:looks].sum() == pytest.approx(1 - stays, abs=1e-5)


def test_one_look_is_an_ordinary_test() -> None:
    design = GroupSequential((700,), 0.025)
    assert design.critical_value(700) == pytest.approx(norm.ppf(0.975), abs=1e-9)
    assert design.pvalue(700, 2.3) == pytest.approx(norm.sf(2.3), rel=1e-9)


@reduced_examples(0.2)
@given(st.integers(1, 12), st.floats(0.001, 0.2))
def test_boundary_crossing_probability_equals_alpha(looks: int, alpha: float) -> None:
    design = GroupSequential.planned(1200, looks, alpha)
    boundary = [design.critical_value(size) for size in design.sizes]
    assert crossing_probabilities(boundary, design.fractions).sum() == pytest.approx(alpha, rel=1e-6)
    assert design.sizes[-1] == 1200


@pytest.mark.parametrize("n", [400, 1200, 2000])
def test_a_pvalue_is_below_alpha_exactly_beyond_the_critical_value(n: int) -> None:
    design = GroupSequential.planned(2000)
    critical = design.critical_value(n)
    assert design.pvalue(n, critical) == pytest.approx(0.05, rel=1e-6)
    assert design.pvalue(n, critical + 0.01) < 0.05 < design.pvalue(n, critical - 0.01)
    assert design.pvalue(n, -3.0) > 0.5
    assert math.isnan(design.pvalue(n, math.nan))
    assert (design.pvalue(n, math.inf), design.pvalue(n, -math.inf)) == (0.0, 1.0)


def test_look_level_and_sequential_pvalue_agree() -> None:
    design = GroupSequential.planned(2000)
    look = AtLook(design, 1200)
    assert look.level == pytest.approx(norm.sf(design.critical_value(1200)))
    assert look.pvalue(look.level) == pytest.approx(0.05, rel=1e-6)
    assert look.pvalue(0.9 * look.level) < 0.05 < look.pvalue(1.1 * look.level)
    assert (look.pvalue(0.0), look.pvalue(1.0)) == (0.0, 1.0)


def test_run_json_look_constants_match_sequential_designs() -> None:
    assert (run_json.DEFAULT_LOOKS, run_json.MAX_LOOKS) == (designs.DEFAULT_LOOKS, designs.MAX_LOOKS)


def test_few_questions_have_fewer_looks() -> None:
    assert GroupSequential.planned(3).sizes == (1, 2, 3)
    assert GroupSequential.planned(7, looks=2).sizes == (4, 7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GroupSequential(()), "1 to 100 looks, got 0"),
        (lambda: GroupSequential((1, 1)), "must rise"),
        (lambda: GroupSequential((10,), 0.95), "below 0.5, got 0.95"),
        (lambda: GroupSequential.planned(0), "n_questions must be at least 1"),
        (lambda: GroupSequential.planned(2000).critical_value(500), "one of 400, 800, 1200, 1600, 2000, got 500"),
    ],
)
def test_bad_input_is_named(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_holm_over_sequential_pvalues_keeps_level_unlike_nominal_levels() -> None:
    # Four times the chance that one of four crosses at a quarter of the nominal level exceeds alpha.
    constant = obrien_fleming_constant(FIVE, 0.05)
    nominal = norm.sf(constant / np.sqrt(FIVE))
    assert 4 * crossing_probabilities(norm.isf(nominal / 4), FIVE).sum() == pytest.approx(0.0538, abs=1e-4)
    exact = obrien_fleming_constant(FIVE, 0.05 / 4)
    assert 4 * obrien_fleming_level(exact, FIVE) == pytest.approx(0.05, rel=1e-9)


def test_simulated_size_power_and_questions_against_facts() -> None:
    rows = list(simulation.one_run_rows(2000, np.random.default_rng(1)))
    assert len(rows) == 8
    assert [row for row in rows if not row.holds] == []


@others_nightly("replicates", [20, 400])
def test_looks_at_repeated_draws_keep_coverage_and_size(replicates: int) -> None:
    margins = both(2, 0.4, 0.55)
    found = list(
        simulation.two_draws(Drawn("b = 2", 2000, *margins, n_repeated=200), 0.15, replicates, np.random.default_rng(4))
    )
    assert [row for row in found if not row.holds] == []
