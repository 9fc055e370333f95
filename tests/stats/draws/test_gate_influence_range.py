"""How far one question can move the corrected index: against moving it, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from refusal_index.stats import corrected_refusal_index
from refusal_index.stats.corrected import influence_range

N = 800


def made() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    hard, other = rng.standard_normal((2, N))
    noise = 0.7 * rng.standard_normal((2, 2, N))
    return 0.7 * hard + 0.7 * other + noise[0] > 0.3, hard + noise[1] > 0


@pytest.mark.parametrize("repeated", [N, N // 2])
def test_a_share_of_the_questions_that_changes_moves_the_index_by_no_more_than_that_share_of_the_range(repeated):
    refused, wrong = made()
    scored = np.broadcast_to(np.arange(N) < repeated, refused.shape)

    def estimate(r: np.ndarray, w: np.ndarray):
        return corrected_refusal_index(r, w, scored, single=[r[0], w[0]])

    found = estimate(refused, wrong)

    def furthest(low: int, high: int) -> float:
        moved = [0.0]
        for to, by in np.random.default_rng(4).integers(low, max(high, low + 1), (120 * (high > low), 2)):
            r, w = refused.copy(), wrong.copy()
            r[:, to], w[:, to] = refused[:, by], wrong[:, by]
            moved.append(abs(estimate(r, w).estimate - found.estimate))
        return max(moved)

    seen = repeated * furthest(0, repeated) + (N - repeated) * furthest(repeated, N)
    assert 0.5 * influence_range(found) <= seen <= 1.25 * influence_range(found)
