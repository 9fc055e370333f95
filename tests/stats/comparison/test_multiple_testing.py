"""Adjusted p-values."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.stats.ranking import holm, step_down_max_t

PVALUES = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.02, 1.0]), min_size=1, max_size=6)


def closed_test(m: int, pvalue_of_set) -> list[float]:
    """Adjust by the closure principle: the largest p-value of any intersection that a hypothesis is part of."""
    sets = [list(chosen) for size in range(1, m + 1) for chosen in combinations(range(m), size)]
    values = [pvalue_of_set(chosen) for chosen in sets]
    return [max(value for chosen, value in zip(sets, values, strict=True) if i in chosen) for i in range(m)]


def test_holm_against_r() -> None:
    # r/multiple_testing.R: p.adjust(p, method = "holm")
    pvalues = np.array([0.011, 0.02, 0.04, 0.0004, 0.5, 0.02, 0.9])
    np.testing.assert_allclose(holm(pvalues), [0.0660, 0.1000, 0.1200, 0.0028, 1, 0.1000, 1], rtol=1e-12)


@given(PVALUES)
def test_holm_against_the_closed_bonferroni_test(values) -> None:
    pvalues = np.array(values)
    expected = closed_test(len(values), lambda chosen: min(1.0, len(chosen) * pvalues[chosen].min()))
    np.testing.assert_allclose(holm(pvalues), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_max_t_against_the_closed_test_of_the_largest_statistic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n_draws = 5, 500
    draws = np.abs(rng.standard_normal((n_draws, m)) @ rng.standard_normal((m, m)))
    statistics = np.abs(rng.standard_normal(m)) * 4

    def pvalue_of_set(chosen) -> float:
        return (1 + (draws[:, chosen].max(axis=1) >= statistics[chosen].max()).sum()) / (n_draws + 1)

    # With p-values of 1 Holm's bound is 1.
    adjusted, largest = step_down_max_t(statistics, np.ones(m), [draws[:200], draws[200:]])
    np.testing.assert_allclose(adjusted, closed_test(m, pvalue_of_set), rtol=1e-12)
    np.testing.assert_array_equal(largest, draws.max(axis=1))


def test_max_t_is_bounded_by_holm_where_the_simulation_is_coarse() -> None:
    pvalues = np.array([1e-12, 0.04, 0.3])
    adjusted, _ = step_down_max_t(np.array([7.1, 2.05, 1.04]), pvalues, [np.zeros((9, 3))])
    np.testing.assert_allclose(adjusted, [3e-12, 0.08, 0.1], rtol=1e-12)


def test_no_hypotheses_need_no_adjustment() -> None:
    assert holm(np.array([])).shape == (0,)
