"""Influence functions and the standard errors they give."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from refusal_index import ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import influence_function, tetrachoric
from refusal_index.stats.intervals import cell_influence, spearman_slope, standard_error

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
TABLES = [(710, 30, 210, 50), (219, 41, 2595, 1471), (100, 900, 900, 100), (30, 1, 2, 7)]


def outcomes(counts) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["table"]))
def test_standard_error_of_rho_against_reference(case) -> None:
    error = standard_error(ContingencyTable(*case["table"]), float(case["rho"]))
    assert abs(error - float(case["se_rho"])) < 1e-9


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        # R: polycor::polychor(matrix(counts, 2, byrow=TRUE), ML=TRUE, std.err=TRUE), sqrt(var[1, 1]); its rho is good
        # to about 1e-5 only, and its error as good as that; r/tetrachoric.R
        ((710, 30, 210, 50), 0.06042800),
        ((219, 41, 2595, 1471), 0.03955629),
        ((100, 900, 900, 100), 0.00650902),
        ((4, 36, 127, 4159), 0.10770831),
        ((40, 10, 20, 30), 0.11522568),
    ],
)
def test_standard_error_of_rho_against_r_polycor(counts, error: float) -> None:
    table = ContingencyTable(*counts)
    assert standard_error(table, refusal_index(table).rho) == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize(("refused", "wrong", "n"), [(0.3, 0.6, 1000), (0.5, 0.5, 4), (0.9, 0.8, 500)])
def test_standard_error_against_theory_at_independence(refused: float, wrong: float, n: int) -> None:
    # Pearson (1913): at rho = 0 the error is sqrt(r (1-r) mu (1-mu) / n) over the product of the two densities.
    cells = np.outer([refused, 1 - refused], [wrong, 1 - wrong]).ravel() * n
    table = ContingencyTable(*np.round(cells).astype(int))
    spread = math.sqrt(refused * (1 - refused) * wrong * (1 - wrong) / n)
    expected = spread / (norm.pdf(norm.ppf(refused)) * norm.pdf(norm.ppf(wrong)))
    assert standard_error(table, 0.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("counts", TABLES)
def test_cell_influence_is_the_derivative_towards_one_more_question(counts) -> None:
    proportions, step = np.array(counts) / sum(counts), 1e-6
    influence = cell_influence(ContingencyTable(*counts), float(tetrachoric(*counts)))
    for cell in range(4):
        towards = np.eye(4)[cell] - proportions
        slope = (tetrachoric(*(proportions + step * towards)) - tetrachoric(*(proportions - step * towards))) / (
            2 * step
        )
        assert influence[cell] == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize("rho", [-0.99, -0.4, 0.0, 0.7, 1.0])
def test_slope_of_the_index_is_its_derivative(rho: float) -> None:
    index = [6 / math.pi * math.asin((rho + step) / 2) for step in (1e-6, -1e-6)]
    assert spearman_slope(rho) == pytest.approx((index[0] - index[1]) / 2e-6, rel=1e-8)


@pytest.mark.parametrize("counts", TABLES)
def test_influence_of_questions_has_mean_zero_and_the_variance_of_the_estimate(counts) -> None:
    influence = influence_function(*outcomes(counts))
    result = refusal_index(ContingencyTable(*counts))
    assert abs(influence.mean()) < 1e-9
    assert influence.std() / math.sqrt(sum(counts)) == pytest.approx(result.standard_error, rel=1e-9)


def test_influence_follows_the_order_of_the_questions() -> None:
    refused, wrong = outcomes((4, 3, 2, 5))
    order = np.random.default_rng(5).permutation(14)
    np.testing.assert_array_equal(
        influence_function(refused[order], wrong[order]), influence_function(refused, wrong)[order]
    )


def test_standard_error_against_resampling() -> None:
    counts = np.array([710, 30, 210, 50])
    resamples = np.random.default_rng(3).multinomial(1000, counts / 1000, size=20_000)
    # The sampling error of a standard deviation from 20,000 draws is half a per cent.
    spread = refusal_index_many(*resamples.T).std()
    assert refusal_index(ContingencyTable(*counts)).standard_error == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("counts", [(3, 0, 4, 5), (0, 0, 4, 5), (0, 0, 0, 0)])
def test_influence_is_nan_where_the_estimate_has_no_derivative(counts) -> None:
    influence = influence_function(*outcomes(counts))
    assert influence.shape == (sum(counts),)
    assert np.isnan(influence).all()
