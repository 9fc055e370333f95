"""Root-mean-square calibration error, in bins of the score."""

import math

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.calibration.reliability import (
    Binning,
    CalibrationErrorResult,
    gaps_of,
    reliability_table,
)


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
    return CalibrationErrorResult(math.sqrt(np.average(gaps * gaps, weights=counts)), "ok", None, bins, binning)
