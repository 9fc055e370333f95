"""Spearman's correlation under other copulas than the Gaussian, and its difference between two models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.coverage import other_copulas as simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from refusal_index.stats import OTHER_COPULAS, compare_joint, compare_metrics, compare_under_copula
from refusal_index.stats.copula_comparison import copula_spearman
from refusal_index.stats.copulas import copula_family, copula_upper_orthant

FAMILIES = ("gaussian", *OTHER_COPULAS)


def models(*tables: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outcomes of models over different questions, from their counts, shape (2, 1, n)."""
    n = sum(map(sum, tables))
    codes, start = np.full((len(tables), 1, n), 4), 0
    for row, counts in enumerate(tables):
        codes[row, 0, start : start + sum(counts)] = np.repeat(np.arange(4), counts)
        start += sum(counts)
    return codes < 2, codes % 2 == 0, codes < 4


CAUTIOUS, BOLD = (415, 185, 185, 215), (130, 20, 470, 380)


@pytest.mark.parametrize("strength", [0.05, 0.6, 1.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_spearman_against_the_integral_of_the_copula(family, strength: float) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(60)
    rates = (nodes + 1) / 2
    cells = copula_family(family).cell(rates[:, np.newaxis], rates, np.array(strength))
    expected = 12 * (weights @ cells @ weights) / 4 - 3
    assert copula_spearman(strength, family) == pytest.approx(expected, abs=1e-5)


def test_spearman_at_its_ends_against_theory() -> None:
    for family in FAMILIES:
        assert copula_spearman(0.0, family) == 0
        assert copula_spearman(18.0, family) == pytest.approx(1, abs=1e-7)
        assert copula_spearman(-0.7, family) == -copula_spearman(0.7, family)
    # of a weak Clayton copula it is 3/4 of the parameter (Nelsen, 2006)
    assert copula_spearman(1e-6, "clayton") == pytest.approx(0.75e-6, rel=1e-5)


@given(st.integers(0, 1000))
@settings(deadline=None)
def test_the_gaussian_copula_gives_the_difference_of_ri_property(seed: int) -> None:
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(400)
    scores = 0.5 * common + rng.standard_normal((2, 400))
    refused, wrong = scores > np.array([[0.3], [0.8]]), common + rng.standard_normal((2, 400)) > 0
    scored, weight = rng.random((2, 400)) < 0.9, rng.random(400) + 0.1
    for design in ({}, {"weight": weight}, {"cluster": np.arange(400) // 5}):
        expected = compare_metrics(refused, wrong, scored, **design)["refusal_index"]
        arrays = (array[:, np.newaxis] for array in (refused, wrong, scored))
        found = compare_under_copula(*arrays, family="gaussian", **design)
        for name in ("first", "second", "estimate", "standard_error", "pvalue"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-6, abs=1e-9)
        np.testing.assert_allclose(found.confidence_interval(0.9), expected.confidence_interval(0.9), atol=1e-7)


def test_the_gaussian_copula_gives_the_difference_of_joint_ri_property() -> None:
    rng = np.random.default_rng(3)
    error, *noise = rng.standard_normal((3, 800))
    refusal = np.array([[0.7 * error + 0.7 * noise[0]], [0.2 * error + 0.98 * noise[1]]])
    refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    wrong = np.broadcast_to(error > 0, refused.shape)
    expected, found = compare_joint(refused, wrong), compare_under_copula(refused, wrong, family="gaussian")
    for name in ("estimate", "standard_error"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-6)
    assert (found.first, found.second) == pytest.approx((expected.first.estimate, expected.second.estimate))


@pytest.mark.parametrize("family", OTHER_COPULAS)
def test_two_cuts_of_one_copula_have_the_same_correlation(family) -> None:
    tables = []
    for rate in (0.6, 0.15):
        p11 = float(copula_upper_orthant(rate, 0.7, float(copula_family(family).parameter(np.array(0.6))), family))
        cells = np.array([p11, rate - p11, 0.7 - p11, 0.3 - rate + p11])
        tables.append(tuple(np.round(100_000 * cells).astype(int).tolist()))
    found = compare_under_copula(*models(*tables), family=family)
    assert found.first == pytest.approx(copula_spearman(0.6, family), abs=1e-4)
    assert found.estimate == pytest.approx(0, abs=2e-4)
    assert abs(compare_under_copula(*models(*tables), family="gaussian").estimate) > 0.05


@pytest.mark.parametrize("family", OTHER_COPULAS)
def test_the_standard_error_against_simulation(family) -> None:
    rng = np.random.default_rng(8)
    cells = np.array([CAUTIOUS, BOLD]) / 1000
    found = [compare_under_copula(*simulation.outcomes(1000, cells, rng), family=family) for _ in range(150)]
    deviation = np.std([difference.estimate for difference in found])
    assert np.mean([difference.standard_error for difference in found]) == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize("family", OTHER_COPULAS)
def test_a_negative_table_is_that_of_exchanged_answers(family) -> None:
    # wrong and right exchanged: the correlations change their sign
    turned = tuple((x, w, z, y) for w, x, y, z in (CAUTIOUS, BOLD))
    found, expected = (compare_under_copula(*models(*tables), family=family) for tables in (turned, (CAUTIOUS, BOLD)))
    if family == "t":
        assert found.estimate == pytest.approx(-expected.estimate)
    else:
        assert (found.first, found.second) == pytest.approx((-expected.first, -expected.second))
    assert found.pvalue == pytest.approx(expected.pvalue)


def test_an_empty_cell_leaves_no_difference_but_a_reason() -> None:
    found = compare_under_copula(*models((400, 0, 200, 400), BOLD), family="t")
    assert (found.first, found.estimate, found.pvalue) == (None, None, None)
    assert (found.status, found.reason) == ("undefined", "first:no_standard_error")
    assert np.isnan(found.confidence_interval()).all()
    assert found.second is not None


def test_models_that_do_not_differ_have_no_interval_of_width_zero() -> None:
    codes = np.repeat(np.arange(4), CAUTIOUS)
    refused, wrong = np.tile(codes < 2, (2, 1, 1)), np.tile(codes % 2 == 0, (2, 1, 1))
    found = compare_under_copula(refused, wrong, family="t")
    assert (found.estimate, found.pvalue, found.standard_error) == (0, 1, None)
    assert (found.status, found.reason) == ("boundary", "constant_difference")
    assert np.isnan(found.confidence_interval()).all()


def test_invalid_arguments_are_an_error() -> None:
    with pytest.raises(ValueError, match="family must be one of gaussian, t, clayton, survival_clayton, got 'frank'"):
        compare_under_copula(*models(CAUTIOUS, BOLD), family="frank")
    with pytest.raises(ValueError, match="exactly two models to compare, got 3"):
        compare_under_copula(*models(CAUTIOUS, BOLD, BOLD), family="t")


@pytest.mark.nightly
def test_false_differences_and_their_caveats_against_facts() -> None:
    rng = np.random.default_rng(5)
    for scenario in simulation.EQUAL:
        significant, with_caveat = simulation.simulate(scenario, 300, rng)
        known = simulation.FALSE_DIFFERENCES[scenario.truth]
        assert significant / 300 == pytest.approx(known, abs=0.03 + 2 * math.sqrt(known * (1 - known) / 300))
        assert with_caveat >= 0.85 * significant
