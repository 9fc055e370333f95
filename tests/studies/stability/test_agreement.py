"""Kendall's W, winner entropy and their values for random rankings."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from refusal_index.plugins.studies.stability import (
    expected_winner_entropy,
    kendall_w,
    winner_entropy,
)

# The paper's table "Refusal Index results on hallucination benchmarks": one row a benchmark, one column a model.
HALLUCINATION = [
    [0.36, 0.48, 0.54, 0.52, 0.50],
    [0.56, 0.60, 0.56, 0.70, 0.38],
    [0.22, 0.27, 0.22, 0.17, 0.34],
    [0.12, 0.24, 0.40, 0.31, 0.52],
]
TIED = [[1, 1, 2, 3, 3, 3], [2, 1, 2, 4, 4, 5], [0, 0, 0, 0, 0, 1], [1, 2, 3, 4, 5, 6], [6, 2, 3, 4, 5, 6]]
MATRICES = st.tuples(st.integers(2, 6), st.integers(2, 6)).flatmap(
    lambda shape: arrays(float, shape, elements=st.integers(-3, 3).map(float))
)


def test_agreement_against_the_papers_hallucination_table() -> None:
    assert np.mean(HALLUCINATION, axis=1) == pytest.approx([0.480, 0.560, 0.244, 0.318], abs=1e-12)
    assert kendall_w(HALLUCINATION).estimate == pytest.approx(0.2125, abs=1e-12)
    assert kendall_w(HALLUCINATION, correct_ties=True).estimate == pytest.approx(0.2179, abs=5e-5)
    assert winner_entropy(HALLUCINATION).estimate == pytest.approx(0.6460, abs=5e-5)


@pytest.mark.parametrize(
    ("scores", "plain", "corrected"),
    [
        # tests/stats/r/agreement.R: base R, and vegan::kendall.global(t(scores), nperm=0)
        (HALLUCINATION, 0.2125, 0.217948717949),
        (TIED, 0.580571428571, 0.691156462585),
    ],
)
def test_kendall_w_against_r(scores, plain: float, corrected: float) -> None:
    assert kendall_w(scores).estimate == pytest.approx(plain, abs=1e-11)
    assert kendall_w(scores, correct_ties=True).estimate == pytest.approx(corrected, abs=1e-11)


@pytest.mark.parametrize(("m", "n"), [(2, 3), (3, 8), (7, 5)])
def test_kendall_w_against_theory_is_the_mean_spearman_correlation(m: int, n: int) -> None:
    # Without ties W = (1 + (m - 1) mean pairwise Spearman) / m.
    scores = np.random.default_rng(m).standard_normal((m, n))
    pairs = [spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    for correct_ties in (False, True):
        w = kendall_w(scores, correct_ties=correct_ties).estimate
        assert w == pytest.approx((1 + (m - 1) * np.mean(pairs)) / m, abs=1e-12)


@given(MATRICES)
def test_ties_lower_w_unless_corrected(scores: np.ndarray) -> None:
    plain, corrected = kendall_w(scores), kendall_w(scores, correct_ties=True)
    if plain.status == "ok":
        assert plain.estimate <= corrected.estimate + 1e-12
        tied = any(len(set(row)) < len(row) for row in scores.tolist())
        assert (plain.estimate < corrected.estimate - 1e-12) == (tied and corrected.estimate > 1e-12)


@given(MATRICES, st.randoms(use_true_random=False))
def test_agreement_does_not_depend_on_order_or_scale(scores: np.ndarray, random) -> None:
    m, n = scores.shape
    shuffled = scores[random.sample(range(m), m)][:, random.sample(range(n), n)]
    rescaled = np.exp(shuffled * np.arange(1, m + 1)[:, np.newaxis])
    for function in (kendall_w, winner_entropy):
        ours, theirs = function(scores), function(rescaled)
        assert ours.reason == theirs.reason
        if ours.status == "ok":
            assert ours.estimate == pytest.approx(theirs.estimate, abs=1e-12)
            assert 0 <= ours.estimate <= 1 + 1e-12


def test_full_agreement_is_one_and_its_winner_has_no_entropy() -> None:
    scores = np.array([[1, 2, 3, 4], [0.1, 0.5, 0.6, 0.9], [5, 6, 7, 8]])
    assert kendall_w(scores).estimate == 1
    assert winner_entropy(scores).estimate == 0
    assert kendall_w([[1, 1, 2], [3, 3, 5]], correct_ties=True).estimate == 1
    assert kendall_w([[1, 1, 2], [3, 3, 5]]).estimate == 0.75
    assert winner_entropy(np.eye(4)).estimate == pytest.approx(1)


@pytest.mark.parametrize(
    ("scores", "reason"),
    [([[1, 2, 3]], "one_setting"), ([[1], [2]], "one_model"), ([[2, 2, 2], [0, 0, 0]], "all_tied")],
)
def test_without_rankings_agreement_is_undefined(scores, reason: str) -> None:
    w, winners = kendall_w(scores), winner_entropy(scores)
    for found in (w, winners):
        assert (found.estimate, found.status, found.reason) == (None, "undefined", reason)


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        ([["a", "b"]], TypeError, "scores must hold numbers, got an array of <U1"),
        ([[0.1, None]], TypeError, "names or None in it"),
        ([0.1, 0.2], ValueError, r"one row a setting and one column a model, got shape \(2,\)"),
        ([[0.1, math.nan], [1, 2]], ValueError, "scores must be finite, got nan; leave out models"),
    ],
)
def test_invalid_scores_are_errors(scores, error, message: str) -> None:
    for function in (kendall_w, winner_entropy):
        with pytest.raises(error, match=message):
            function(scores)


@pytest.mark.parametrize(("m", "n"), [(2, 3), (3, 2), (4, 3), (3, 4)])
def test_expected_winner_entropy_against_brute_force(m: int, n: int) -> None:
    # Every sequence of winners is equally likely.
    entropies = [winner_entropy(np.eye(n)[list(winners)]).estimate for winners in itertools.product(range(n), repeat=m)]
    assert expected_winner_entropy(m, n) == pytest.approx(np.mean(entropies), rel=1e-12)
