"""How many labels a half-width takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import others_nightly

from refusal_index.stats import ContingencyTable, labels_for_half_width, prediction_powered
from refusal_index.stats.misgrading import equal_numbers

TABLE = ContingencyTable(900, 100, 700, 300)


@others_nightly("half_width", [0.12, 0.09])
def test_a_plan_comes_true_on_average(half_width: float) -> None:
    rng = np.random.default_rng(5)
    f_c, f_w = 0.1, 0.01
    plan = labels_for_half_width(TABLE, half_width, graded_wrong_if_right=f_c, graded_right_if_wrong=f_w)
    codes = np.repeat(np.arange(4), TABLE.counts)
    refused, graded = codes < 2, codes % 2 == 0
    drawn = equal_numbers(np.array(TABLE.counts), plan.n)
    widths = []
    for _ in range(150):
        # Truth given the grade: of those graded wrong so many are right, and the other way round.
        wrong_share = [(np.mean(graded[group]) - f_c) / (1 - f_c - f_w) for group in (refused, ~refused)]
        wrong = np.where(refused, *wrong_share)
        odds = np.where(graded, (1 - wrong) * f_c / (wrong * (1 - f_w)), wrong * f_w / ((1 - wrong) * (1 - f_c)))
        truth = graded ^ (rng.random(codes.size) < odds / (1 + odds))
        labelled = np.zeros(codes.size, bool)
        for cell, count in enumerate(drawn):
            labelled[rng.permutation(np.flatnonzero(codes == cell))[:count]] = True
        found = prediction_powered([refused], [graded], labelled=[labelled], truly_wrong=[truth])[-1]
        if found.standard_error is not None:
            widths.append(1.96 * found.standard_error)
    assert np.mean(widths) == pytest.approx(half_width, rel=0.1)
    assert plan.half_width <= half_width
    fewer = labels_for_half_width(TABLE, half_width * 1.1, graded_wrong_if_right=f_c, graded_right_if_wrong=f_w)
    assert fewer.n < plan.n


def test_what_no_number_of_labels_reaches_and_what_has_no_index() -> None:
    plan = labels_for_half_width(TABLE, 0.01)
    assert (plan.n, plan.status, plan.reason) == (None, "ok", "too_few_questions")
    assert 0.03 < plan.half_width < 0.1
    undefined = labels_for_half_width(ContingencyTable(0, 0, 5, 5), 0.1)
    assert (undefined.n, undefined.half_width, undefined.reason) == (None, None, "nobody_refused")
    with pytest.raises(ValueError, match="half_width must be a positive number"):
        labels_for_half_width(TABLE, 0)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.integers(0, 250))
def test_labels_are_dealt_to_the_last_one_and_as_evenly_as_can_be(available, n: int) -> None:
    sizes = np.array(available)
    drawn = equal_numbers(sizes, n)
    assert drawn.sum() == min(n, sizes.sum())
    assert (drawn <= sizes).all()
    short = drawn[drawn < sizes]
    assert short.size == 0 or drawn.max() <= short.min() + 1
