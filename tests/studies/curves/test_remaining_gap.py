"""The gap left where the refusal rate equals the error rate: against theory, against Cohen's kappa, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from refusal_index import ContingencyTable, refusal_index
from refusal_index.plugins.studies.curves import gap_left, remaining_gap


def test_at_one_half_it_is_the_arccosine():
    rho = np.array([-0.9, -0.3, 0.0, 0.4, 0.8, 1.0])
    assert gap_left(rho, 0.5) == pytest.approx(np.arccos(rho) * 2 / math.pi)


@pytest.mark.parametrize(("rho", "mu"), [(0.5, 0.92), (0.3, 0.65), (-0.2, 0.4)])
def test_it_is_one_less_kappa_of_a_bivariate_normal(rho, mu):
    k = norm.ppf(mu)
    both = multivariate_normal.cdf([k, k], [0, 0], [[1, rho], [rho, 1]])
    agree = both + (1 - 2 * mu + both)
    kappa = (agree - (mu**2 + (1 - mu) ** 2)) / (2 * mu * (1 - mu))
    assert gap_left(rho, mu) == pytest.approx(1 - kappa, abs=1e-7)


def test_of_a_table_it_is_that_of_its_rho_whatever_it_refuses():
    table = ContingencyTable(710, 30, 210, 50)
    found = remaining_gap(table)
    assert found.estimate == pytest.approx(float(gap_left(refusal_index(table).rho, 0.92)))
    # A table that refuses as often as it errs shows it as it is.
    even = ContingencyTable(400, 100, 100, 400)
    assert remaining_gap(even).estimate == pytest.approx(0.4)


def test_undefined_is_a_reason_and_the_ends_are_exact():
    undefined = remaining_gap(ContingencyTable(0, 0, 60, 40))
    assert (undefined.estimate, undefined.reason) == (None, "nobody_refused")
    assert math.isnan(undefined.confidence_interval(rng=0).low)
    perfect = remaining_gap(ContingencyTable(50, 0, 10, 40))
    assert (perfect.estimate, perfect.status) == (pytest.approx(0, abs=1e-12), "boundary")
    assert math.isnan(gap_left(0.5, 0.0))
    with pytest.raises(ValueError, match="error_rate"):
        gap_left(0.5, 1.5)


def test_coverage_of_the_interval():
    """Nominal .95; .954, .939 and .947 over 1,000 replicates here, at r .74 and mu .92, and at r .2 and mu .9."""
    rng, covered, replicates = np.random.default_rng(1), 0, 200
    rho, r, mu = 0.5, 0.4, 0.7
    h, k = -norm.ppf(r), -norm.ppf(mu)
    both = multivariate_normal.cdf([-h, -k], [0, 0], [[1, rho], [rho, 1]])
    truth = float(gap_left(rho, mu))
    for counts in rng.multinomial(800, [both, r - both, mu - both, 1 - r - mu + both], size=replicates).tolist():
        low, high = remaining_gap(ContingencyTable(*counts)).confidence_interval(n_resamples=1_000, rng=rng)
        covered += low <= truth <= high
    assert 0.91 <= covered / replicates <= 0.98
