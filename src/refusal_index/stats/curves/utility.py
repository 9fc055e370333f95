"""What an operating point is worth where a wrong answer has a stated price.

A right answer earns 1, a refusal 0, and a wrong answer costs a penalty L, so that a table is worth ``c - L i`` a
question, with c and i the shares answered right and answered wrong. The penalty says from which confidence on an
answer pays: t = L / (1 + L), or ``L = t / (1 - t)``; the usual 1, 3 and 9 stand for a half, three quarters and nine
tenths.

The same scale under other names: the weighted score of `refusal_index.stats.weighted_score` with penalty p is
``(1 - p)`` times the utility at ``L = p / (1 - p)``, and the Omniscience Index is 100 times the utility at L = 1.
"""

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import Payoffs, checked_penalty, rate_or_score
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.score_interval import ratio


def penalty_from_confidence(confidence: ArrayLike) -> FloatArray:
    """Penalty at which an answer is worth giving from this probability of being right on, ``t / (1 - t)``.

    Parameters
    ----------
    confidence : array_like of float
        Confidence target t, in [0, 1).

    Returns
    -------
    ndarray
        Not negative.

    Raises
    ------
    ValueError
        If it lies outside its range.

    References
    ----------
    .. [1] Kalai, A. T., Nachum, O., Vempala, S. S. and Zhang, E. (2025). Why Language Models Hallucinate. Explicit
       confidence targets t with a penalty of t / (1 - t). :arxiv:`2509.04664`

    Examples
    --------
    >>> penalty_from_confidence([0.0, 0.5, 0.75, 0.9]).round(12).tolist()
    [0.0, 1.0, 3.0, 9.0]
    """
    t = np.asarray(confidence, float)
    bad = ~((t >= 0) & (t < 1))
    if bad.any():
        raise ValueError(f"confidence must lie in [0, 1), got {float(t[bad].flat[0])!r}; is it in per cent?")
    return np.asarray(t / (1 - t))[()]


def utility(table: ContingencyTable, penalty: float, *, confidence_level: float = 0.95) -> Estimate:
    """Mean utility of a question, ``c - penalty * i``: right answers less a price for wrong ones.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float
        Price of a wrong answer, L, in right answers; not negative. It has no default, since it is what has to be said.
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    Estimate
        In [-penalty, 1], with a score interval; undefined for a table without questions.

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Kalai et al. (2025). :arxiv:`2509.04664`

    Examples
    --------
    >>> for penalty in (1, 3, 9):
    ...     value = utility(ContingencyTable(710, 30, 210, 50), penalty)
    ...     print(f"{penalty} {value.estimate:.2f} [{value.low:.3f}, {value.high:.3f}]")
    1 -0.16 [-0.190, -0.130]
    3 -0.58 [-0.662, -0.505]
    9 -1.84 [-2.079, -1.621]
    """
    counts, weights = (
        (table.answered_right, table.answered_wrong, table.n_refused),
        (1.0, -checked_penalty(penalty), 0.0),
    )
    undefined = None if table.n else "no_questions"
    return ratio("utility", counts, (weights, (1.0, 1.0, 1.0)), normal_quantile(confidence_level), undefined)


def omniscience_index(table: ContingencyTable, *, confidence_level: float = 0.95) -> Estimate:
    """Omniscience Index: 100 times the share answered right less the share answered wrong.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    Estimate
        In [-100, 100]; 0 for a model that is right as often as wrong, or refuses everything. Undefined for a table
        without questions.

    Raises
    ------
    ValueError
        If `confidence_level` does not lie strictly between 0 and 1.

    References
    ----------
    .. [1] Jackson, D., Keating, W., Cameron, G. and Hill-Smith, M. (2025). AA-Omniscience: Evaluating Cross-Domain
       Knowledge Reliability in Large Language Models. The Omniscience Index, which knows partly correct answers too;
       they earn nothing there. :arxiv:`2511.13029`

    Examples
    --------
    >>> round(omniscience_index(ContingencyTable(710, 30, 210, 50)).estimate, 6)
    -16.0
    """
    return rate_or_score("omniscience_index", table, Payoffs(), confidence_level)
