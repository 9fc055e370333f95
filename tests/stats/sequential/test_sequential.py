"""Looks at a run that is not over: boundaries against published ones and simulation, and what is made of them."""

import math

import numpy as np
import pytest
from benchmarks.coverage import sequential as simulation
from benchmarks.coverage.corrected_index import Scenario as Drawn
from benchmarks.coverage.corrected_index import both
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm
from tests.tiers import dear_examples, others_nightly

from refusal_index.data import run_json
from refusal_index.stats import AtLook, GroupSequential
from refusal_index.stats import non_inferiority as designs
from refusal_index.stats.non_inferiority import (
    crossing_probabilities,
    obrien_fleming_constant,
    obrien_fleming_level,
)

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
def test_constants_against_published_ones(looks: int, alpha: float, constant: float) -> None:
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


@dear_examples(0.2)
@given(st.integers(1, 12), st.floats(0.001, 0.2))
def test_a_boundary_is_crossed_as_often_as_stated(looks: int, alpha: float) -> None:
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


def test_an_ordinary_test_at_the_level_of_a_look_rejects_where_its_pvalue_does() -> None:
    design = GroupSequential.planned(2000)
    look = AtLook(design, 1200)
    assert look.level == pytest.approx(norm.sf(design.critical_value(1200)))
    assert look.pvalue(look.level) == pytest.approx(0.05, rel=1e-6)
    assert look.pvalue(0.9 * look.level) < 0.05 < look.pvalue(1.1 * look.level)
    assert (look.pvalue(0.0), look.pvalue(1.0)) == (0.0, 1.0)


def test_settings_that_cannot_load_statistics_have_the_same_numbers_of_looks() -> None:
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


def test_holm_over_pvalues_of_a_look_keeps_its_level_where_nominal_levels_would_not() -> None:
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
        simulation.drawn_twice(
            Drawn("b = 2", 2000, *margins, n_repeated=200), 0.15, replicates, np.random.default_rng(4)
        )
    )
    assert [row for row in found if not row.holds] == []
