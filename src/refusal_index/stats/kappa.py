"""How far two graders agree on the same answers, beyond what chance would bring: Cohen's kappa.

References
----------
.. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement, 20,
   37-46. :doi:`10.1177/001316446002000104`
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.arguments import unmasked
from refusal_index.stats.estimate import Status


@dataclass(frozen=True, slots=True)
class CohenKappaResult:
    """Agreement of two graders."""

    # kappa: 1 where they always agree, 0 where they agree as often as chance would have it; None where undefined
    estimate: float | None
    agreement: float | None  # share of the answers on which they agree; None without answers
    n: int  # number of answers
    # status, reason: ``"ok"``, or ``"undefined"`` with the reason
    status: Status
    reason: str | None = None


def cohen_kappa(counts: ArrayLike) -> CohenKappaResult:
    """Return the agreement of two graders from the table of their grades.

    Raises ValueError if the table is not square or holds something other than counts.

    - `counts`: square table of counts, shape (k, k): one row a grade of the first grader, one column a grade of the
      second, in the same order.

    >>> cohen_kappa([[20, 5], [10, 15]])
    CohenKappaResult(estimate=0.4, agreement=0.7, n=50, status='ok', reason=None)
    >>> cohen_kappa([[9, 0], [0, 0]]).reason
    'both graders gave every answer the same one grade'
    """
    table = unmasked("counts", counts).astype(float)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"counts: expected a square table, got one of shape {table.shape}")
    if not np.all((table >= 0) & (table == np.floor(table)) & np.isfinite(table)):
        raise ValueError("counts: expected whole numbers from 0, got others; give counts, not shares")
    n = int(table.sum())
    if n == 0:
        return CohenKappaResult(None, None, 0, "undefined", "there is no answer that both graded")
    agreeing, by_chance = np.trace(table), table.sum(axis=0) @ table.sum(axis=1) / n
    share = float(agreeing / n)
    if by_chance == n:
        return CohenKappaResult(None, share, n, "undefined", "both graders gave every answer the same one grade")
    return CohenKappaResult(float((agreeing - by_chance) / (n - by_chance)), share, n, "ok")
