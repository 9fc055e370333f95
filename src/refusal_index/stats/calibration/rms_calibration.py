"""Root-mean-square calibration error, in bins of the score or of a fixed number of questions.

The leaderboard of Humanity's Last Exam prints the second kind: bins of 100 questions in the order of their confidence,
the last with what remains. Its program, widely copied, goes over ``range(len(bins) - 1)`` and so leaves the last bin
out, that of the most confident answers, though it divides by the number of all questions. What it prints is at hand by
its name only.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import whole_number
from refusal_index.stats.calibration.reliability import (
    Binning,
    CalibrationErrorResult,
    checked_probabilities,
    gaps_of,
    reliability_table,
)
from refusal_index.stats.calibration.risk_coverage import expected_counts
from refusal_index.stats.estimate import Status

HleMethod = Literal["all_bins", "as_printed"]


@dataclass(frozen=True, slots=True)
class HleCalibrationError:
    """Root-mean-square calibration error in bins of a fixed number of questions.

    Attributes
    ----------
    estimate : float or None
        In [0, 1]. Sampling makes it positive even where the score is perfectly calibrated.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined ``"no_questions"`` or, as printed, ``"fewer_questions_than_a_bin"``, with which the program
        breaks off, or ``"one_bin"``, the only one being left out.
    n_bins : int
        All bins, whether left out or not.
    n_left_out : int
        Questions in the bin that is left out; 0 unless as printed.
    method : {"all_bins", "as_printed"}
    """

    estimate: float | None
    status: Status
    reason: str | None
    n_bins: int
    n_left_out: int
    method: HleMethod


def rms_calibration_error(
    score: ArrayLike, outcome: ArrayLike, *, n_bins: int = 10, binning: Binning = "equal_width"
) -> CalibrationErrorResult:
    """Root of the squared distance between score and share of true outcomes, averaged over the bins as in the ECE.

    Parameters are those of `reliability_table`.

    Returns
    -------
    CalibrationErrorResult
        At least as large as the expected calibration error in the same bins. Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        As `reliability_table`.

    References
    ----------
    .. [1] Hendrycks, D., Mazeika, M. and Dietterich, T. (2019). Deep anomaly detection with outlier exposure. ICLR.
       RMS calibration error. :arxiv:`1812.04606`

    Examples
    --------
    >>> round(rms_calibration_error([0.1, 0.5, 0.6, 0.9, 1.0], [False, False, True, True, True]).estimate, 4)
    0.2933
    """
    bins = reliability_table(score, outcome, n_bins=n_bins, binning=binning)
    counts, gaps = gaps_of(bins)
    if not counts.size:
        return CalibrationErrorResult(None, "undefined", "no_questions", bins, binning)
    return CalibrationErrorResult(_root_mean_square(counts, gaps), "ok", None, bins, binning)


def hle_calibration_error(
    score: ArrayLike, outcome: ArrayLike, *, bin_size: int = 100, method: HleMethod = "all_bins"
) -> HleCalibrationError:
    """Root-mean-square calibration error of Humanity's Last Exam, in bins of so many questions.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Confidence in [0, 1], not in per cent.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right.
    bin_size : int, default: 100
        Questions to a bin, from the least confident up; the last bin has the remainder too, up to one less than twice
        as many.
    method : {"all_bins", "as_printed"}
        ``"all_bins"``: over all bins. Tied scores that the end of a bin parts count in each with their average outcome.
        ``"as_printed"``: what the leaderboard's program prints, without the most confident bin, and with tied scores in
        the order that `numpy.argsort` leaves them in, so that it can change with the order of the questions.

    Returns
    -------
    HleCalibrationError

    Raises
    ------
    TypeError, ValueError
        If the scores are not numbers in [0, 1], `outcome` not truth values, their lengths differ, `bin_size` is not a
        whole number of at least 1, or the method not one of those named.

    References
    ----------
    .. [1] Phan, L., et al. (2025). Humanity's Last Exam. :arxiv:`2501.14249`
    .. [2] Hendrycks et al. (2019). :arxiv:`1812.04606`

    Examples
    --------
    >>> confidence, right = [0.2, 0.4, 0.7, 0.8, 0.9, 1.0], [False, False, True, False, False, True]
    >>> for method in ("all_bins", "as_printed"):
    ...     print(method, round(hle_calibration_error(confidence, right, bin_size=2, method=method).estimate, 4))
    all_bins 0.344
    as_printed 0.2255
    """
    scores, truths = checked_probabilities(score, outcome)
    size = whole_number("bin_size", bin_size, 1)
    if method not in get_args(HleMethod):
        raise ValueError(f"method must be one of {', '.join(get_args(HleMethod))}, got {method!r}")
    ends = _bin_ends(scores.size, size)
    counts = np.diff(ends).astype(float)
    n_left_out = 0
    reason = None if scores.size else "no_questions"
    if method == "as_printed" and not reason:
        n_left_out = int(counts[-1])
        reason = "fewer_questions_than_a_bin" if scores.size < size else "one_bin" if counts.size == 1 else None
    if reason:
        return HleCalibrationError(None, "undefined", reason, counts.size, n_left_out, method)
    gaps = np.abs(np.diff(_overclaimed(scores, truths, method)[ends])) / counts
    if method == "as_printed":
        gaps[-1] = 0.0
    return HleCalibrationError(_root_mean_square(counts, gaps), "ok", None, counts.size, n_left_out, method)


def _bin_ends(n: int, size: int) -> NDArray[np.intp]:
    """Return where the bins begin, and the end of the last."""
    starts = np.arange(max(n // size, 1)) * size if n else np.empty(0, np.intp)
    return np.append(starts, n).astype(np.intp)


def _overclaimed(scores: FloatArray, truths: NDArray[np.bool_], method: HleMethod) -> FloatArray:
    """Sum of scores less true outcomes over the k questions with the lowest scores, k = 0, ..., n."""
    if method == "as_printed":
        order = np.argsort(scores)
        return np.concatenate([[0.0], np.cumsum(scores[order] - truths[order])])
    return np.concatenate([[0.0], np.cumsum(np.sort(scores)) - expected_counts(-scores, truths)])


def _root_mean_square(counts: FloatArray, gaps: FloatArray) -> float:
    return math.sqrt(np.average(gaps * gaps, weights=counts))
