"""What a model's answers are worth at a stated confidence target."""

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves.utility import penalty_from_confidence, utility
from refusal_index.stats.estimate import ConfidenceInterval, Status

# Share of the largest square that is left of a variance by rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class TargetValue:
    """Mean value of a question at a confidence target.

    Attributes
    ----------
    estimate : float or None
        In [-penalty, 1]; 0 for a model that declines everything, and for one that answers at the target exactly.
    standard_error : float or None
        None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: all questions are worth the same.
    reason : str or None
        ``"no_variation"`` at the boundary, ``"no_questions"`` where undefined.
    target : float
        The confidence target t.
    n_right, n_wrong, n_declined : int
    """

    estimate: float | None
    standard_error: float | None
    status: Status
    reason: str | None
    target: float
    n_right: int
    n_wrong: int
    n_declined: int

    @property
    def penalty(self) -> float:
        """Price of a wrong answer, ``t / (1 - t)``."""
        return float(penalty_from_confidence(self.target))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a score interval, as of `refusal_index.stats.utility`; ``(nan, nan)`` where undefined."""
        table = ContingencyTable(0, self.n_declined, self.n_wrong, self.n_right)
        found = utility(table, self.penalty, confidence_level=confidence_level)
        low, high = (math.nan if end is None else end for end in (found.low, found.high))
        return ConfidenceInterval(low, high)


def value_at_target(refused: ArrayLike, wrong: ArrayLike, target: float) -> TargetValue:
    """Mean value of a question where a right answer earns 1, a wrong one costs t / (1 - t), and a declined one nothing.

    At this price an answer is worth giving from a probability of t of being right on.

    Parameters
    ----------
    refused : array_like of bool, shape (n,)
        Whether the question was declined.
    wrong : array_like of bool, shape (n,)
        Whether the answer was wrong; what stands there for a declined question does not matter.
    target : float
        Confidence target t, in [0, 1).

    Returns
    -------
    TargetValue
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If an argument is not truth values, their lengths differ, or the target lies outside its range.

    References
    ----------
    .. [1] Kalai et al. (2025). :arxiv:`2509.04664`

    Examples
    --------
    >>> refused = [True] * 40 + [False] * 60
    >>> wrong = [False] * 40 + [True] * 10 + [False] * 50
    >>> value = value_at_target(refused, wrong, 0.75)
    >>> round(value.estimate, 3), round(value.standard_error, 4)
    (0.2, 0.1166)
    >>> low, high = value.confidence_interval()
    >>> round(low, 3), round(high, 3)
    (-0.074, 0.391)
    """
    table = ContingencyTable.from_arrays(refused, wrong)
    penalty, n = float(penalty_from_confidence(target)), table.n
    counts = table.answered_right, table.answered_wrong, table.n_refused
    mean = utility(table, penalty).estimate
    if mean is None:
        return TargetValue(None, None, "undefined", "no_questions", target, *counts)
    variance = (counts[0] + penalty * penalty * counts[1]) / n - mean * mean
    if variance <= ROUNDING * max(1.0, penalty * penalty):
        return TargetValue(mean, None, "boundary", "no_variation", target, *counts)
    return TargetValue(mean, math.sqrt(variance / n), "ok", None, target, *counts)
