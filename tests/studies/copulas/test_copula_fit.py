"""Copulas fitted to one table: saturation, families that cannot be negative, win rates."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.copulas import (
    COPULA_NAMES,
    copula_upper_orthant,
    copula_win_rates,
    fit_copula,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "stats/golden.json").read_text())
POSITIVE, NEGATIVE = ContingencyTable(710, 30, 210, 50), ContingencyTable(400, 50, 500, 50)
ONE_SIDED = ("clayton", "gumbel", "survival_clayton", "survival_gumbel")


def saturated(table: ContingencyTable) -> float:
    return sum(count * math.log(count / table.n) for count in table.counts if count)


@given(st.tuples(*[st.integers(1, 1500)] * 4))
def test_all_families_that_cover_reach_one_likelihood_against_facts(counts) -> None:
    table = ContingencyTable(*counts)
    for family in COPULA_NAMES:
        fit = fit_copula(table, family)
        if fit.status == "ok":
            assert fit.log_likelihood == pytest.approx(saturated(table), rel=5e-13)
        else:
            assert fit.reason == "negative_dependence"
            assert fit.log_likelihood <= saturated(table)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["table"]))
def test_the_gaussian_fit_is_the_refusal_index(case) -> None:
    fit = fit_copula(ContingencyTable(*case["table"]))
    assert fit.parameter == pytest.approx(float(case["rho"]), abs=1e-9)


@pytest.mark.parametrize("family", COPULA_NAMES)
def test_a_fit_against_brute_force_maximisation(family: str) -> None:
    r, mu = POSITIVE.refusal_rate, POSITIVE.error_rate
    fit = fit_copula(POSITIVE, family)

    def deviance(parameter: float) -> float:
        p11 = float(copula_upper_orthant(r, mu, parameter, family))
        cells = p11, r - p11, mu - p11, 1 - r - mu + p11
        return -sum(count * math.log(cell) for count, cell in zip(POSITIVE.counts, cells, strict=True))

    bounds = (-0.99, 0.99) if family in {"gaussian", "t"} else (1.001, 9.0)
    found = minimize_scalar(deviance, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    if fit.parameter > bounds[0]:
        assert fit.parameter == pytest.approx(found.x, rel=1e-5)
    assert fit.log_likelihood >= -found.fun - 1e-9


@pytest.mark.parametrize("family", ONE_SIDED)
def test_a_family_that_cannot_be_negative_sits_at_independence(family: str) -> None:
    fit = fit_copula(NEGATIVE, family)
    assert (fit.status, fit.reason) == ("boundary", "negative_dependence")
    assert fit.parameter == (1 if "gumbel" in family else 0)
    # The likelihood ratio of independence against the saturated table, which the others reach.
    expected = np.outer([0.45, 0.55], [0.9, 0.1]).ravel()
    independence = float(np.sum(np.array(NEGATIVE.counts) * np.log(expected)))
    assert fit.log_likelihood == pytest.approx(independence, rel=1e-13)
    assert fit.log_likelihood < fit_copula(NEGATIVE).log_likelihood


@pytest.mark.parametrize(
    ("counts", "family", "end"),
    [
        ((40, 0, 30, 30), "gaussian", 1),
        ((40, 0, 30, 30), "clayton", math.inf),
        ((0, 40, 30, 30), "frank", -math.inf),
        ((0, 40, 30, 30), "t", -1),
    ],
)
def test_a_zero_cell_is_perfect_dependence(counts, family: str, end: float) -> None:
    table = ContingencyTable(*counts)
    fit = fit_copula(table, family)
    assert (fit.status, fit.parameter) == ("boundary", end)
    assert fit.reason.startswith("zero_cell:")
    assert fit.log_likelihood == pytest.approx(saturated(table), rel=1e-12)


def test_a_degenerate_margin_is_undefined() -> None:
    fit = fit_copula(ContingencyTable(0, 0, 4, 5), "gumbel")
    assert (fit.status, fit.reason) == ("undefined", "nobody_refused")
    assert fit.parameter is fit.log_likelihood is None


def test_criteria_against_the_paper_table() -> None:
    # Its rows satisfy AIC = 2 k - 2 log-likelihood and BIC - AIC = k (log 2000 - 2), with two parameters for t.
    rows = {row["family"]: row for row in copula_win_rates([ContingencyTable(1380, 60, 460, 100)])}
    for family, k in (("gaussian", 1), ("t", 2), ("gumbel", 1)):
        row = rows[family]
        assert row["aic"] == pytest.approx(2 * k - 2 * row["log_likelihood"], abs=1e-9)
        assert row["bic"] - row["aic"] == pytest.approx(k * 5.6009, abs=1e-4)


def test_win_rates_share_ties_and_count_negative_tables() -> None:
    undefined = ContingencyTable(0, 0, 4, 5)
    rows = copula_win_rates([POSITIVE, POSITIVE, POSITIVE, NEGATIVE, undefined])
    assert [row["family"] for row in rows] == list(COPULA_NAMES)
    for row in rows:
        wins, ties = (0.625, 0.75) if row["family"] in ONE_SIDED else (0.5, 1.0)
        assert (row["gaussian_wins_log_likelihood"], row["ties"]) == (wins, ties)
        if row["family"] != "t":
            assert row["gaussian_wins_aic"] == row["gaussian_wins_bic"] == wins
    expected = np.mean([saturated(table) for table in (POSITIVE, POSITIVE, POSITIVE, NEGATIVE)])
    frank = next(row for row in rows if row["family"] == "frank")
    assert frank["log_likelihood"] == pytest.approx(expected, rel=1e-12)


def test_counting_the_degrees_of_freedom_is_all_that_makes_t_lose_against_the_paper() -> None:
    row = copula_win_rates([POSITIVE, NEGATIVE])[1]
    wins = [row[f"gaussian_wins_{name}"] for name in ("log_likelihood", "aic", "bic")]
    assert (row["family"], wins) == ("t", [0.5, 1.0, 1.0])


def test_no_tables_give_no_rates() -> None:
    assert copula_win_rates([]) == []


def test_four_counts_are_not_a_table() -> None:
    with pytest.raises(TypeError, match="must be a ContingencyTable, got tuple"):
        fit_copula((1, 1, 1, 1))
