r"""The Refusal Index of the probabilities behind repeated draws, free of the noise of single ones.

The index is defined on each question's probabilities of refusing and of being wrong, but a run observes one draw of
each. Where the two are ``r_i = Phi(a + b_r X)`` and ``w_i = Phi(a' + b_w Y)`` with ``corr(X, Y) = rho_L``, one draw of
each has the tetrachoric correlation ``rho_L lambda_r lambda_w`` with ``lambda^2 = b^2 / (1 + b^2)``, which is nearer
to 0 the more random the model is. ``lambda_r^2`` is the tetrachoric correlation of two draws of the refusal, and so
can be estimated from a second draw and divided out, as Spearman did for correlations of scores:

    rho_L = tet(R^a, W^b) / sqrt(tet(R, R') tet(W, W')),    a != b.

The two draws of a pair are always different ones: within one draw, refusal and answer may share chance as well.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import CELL_NAMES, empty_margin
from refusal_index.stats.draws.patterns import (
    N_RESAMPLES,
    DrawPatterns,
    check_resampling,
    count_draws,
    pair_cells,
    percentiles,
    resample,
)
from refusal_index.stats.estimate import ConfidenceInterval, Status
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.influence import spearman
from refusal_index.stats.intervals import Seed
from refusal_index.stats.matrices import BoolArray, checked_matrices


@dataclass(frozen=True, slots=True)
class NoiseCorrectedResult:
    """The Refusal Index corrected for the noise of single draws.

    Attributes
    ----------
    estimate : float or None
        Refusal Index of the probabilities, in [-1, 1]. Exactly -1 or +1 at the boundary, None where undefined.
    rho : float or None
        The copula correlation behind it, with the same conventions.
    uncorrected : float or None
        Refusal Index of the refusal of one draw and the answer of another: what single draws show.
    refusal_reliability, error_reliability : float or None
        Tetrachoric correlation of two draws of the refusal, and of the error, of the same question: 1 where the
        model always does the same, 0 where questions do not differ. Their geometric mean is the factor by which
        single draws pull rho towards 0.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the correction reaches or exceeds a correlation of 1, or a cell is empty.
    reason : str or None
        At the boundary ``"corrected_rho_reaches_one"``, or ``"zero_cell:"`` with the cells that no pair of draws
        fills. Where undefined the first that applies of ``"no_repeated_questions"``, ``"nobody_refused"``,
        ``"everybody_refused"``, ``"all_wrong"``, ``"all_right"``, ``"refusal_reliability_not_positive"``,
        ``"error_reliability_not_positive"``.
    patterns : DrawPatterns
        The questions it came from; ``patterns.n_questions`` is their number.
    """

    estimate: float | None
    rho: float | None
    uncorrected: float | None
    refusal_reliability: float | None
    error_reliability: float | None
    status: Status
    reason: str | None
    patterns: DrawPatterns = field(compare=False, repr=False)

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = N_RESAMPLES, rng: Seed = None
    ) -> ConfidenceInterval:
        """Percentile interval over resampled questions.

        A resample without an estimate rules nothing out: it counts as -1 for the lower end and as 1 for the upper.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 2000
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            ``(nan, nan)`` where undefined, and where a cell is empty, since it is so in every resample.
        """
        check_resampling(confidence_level, n_resamples)
        resampled = np.array([])
        if has_interval(self):
            cells = pair_cells(self.patterns)
            resampled = resample([self.patterns.questions], lambda w: corrected_rho(w @ cells)[0], n_resamples, rng)
        low, high = percentiles(resampled, confidence_level)
        return ConfidenceInterval(spearman(low), spearman(high))


def noise_corrected_refusal_index(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> NoiseCorrectedResult:
    """Estimate the Refusal Index of the probabilities from two or more draws of every question.

    Parameters
    ----------
    refused : array_like of bool, shape (n_draws, n_questions)
        Whether each draw of the first pass refused.
    wrong : array_like of bool, shape (n_draws, n_questions)
        Whether the forced answer of each draw was wrong: for *every* question, answered or refused.
    scored : array_like of bool, shape (n_draws, n_questions), optional
        False where a draw has no grade; all True if not given. Questions with fewer than two draws are left out.

    Returns
    -------
    NoiseCorrectedResult
        All pairs of different draws take part, weighted so that every question counts once.

    Raises
    ------
    TypeError
        If the arguments do not hold truth values.
    ValueError
        If they are not matrices of one shape, or have fewer than two rows: a single draw says nothing about noise.

    Notes
    -----
    With 2,000 questions of two draws the estimate is within .01 of the truth on average where an error of the draws
    is about as large as the differences between questions (b = 1) or smaller, also if the probabilities have Beta
    distributions or pile up at 0 and 1, and if one draw's refusal and answer share chance. With 800 questions its
    standard deviation is .04 to .11. At b = 1/2 reliabilities are 0.2, and the interval is nearly as wide as the range.

    References
    ----------
    .. [1] Spearman, C. (1904). The proof and measurement of association between two things. American Journal of
       Psychology, 15, 72-101. :doi:`10.2307/1412159`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> refused, wrong = (latent + rng.standard_normal((2, 4000)) > 0 for latent in (x, y))
    >>> result = noise_corrected_refusal_index(refused, wrong)
    >>> round(result.uncorrected, 2), round(result.estimate, 2)  # 6/pi asin(0.6 / 2) is 0.58
    (0.28, 0.58)
    """
    return estimate_from_patterns(count_draws(*checked_draws(refused, wrong, scored)))


def checked_draws(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Check the matrices of draws, of which there must be two at least."""
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) < 2:
        raise ValueError(
            "refused and wrong must have two or more rows, one a draw and one column a question, "
            f"got shape {matrices[0].shape}; is there a single draw, or are they transposed?"
        )
    return matrices


def has_interval(result: NoiseCorrectedResult) -> bool:
    """Whether resampled questions say something: not where undefined, nor with a cell that is empty in all of them."""
    return result.rho is not None and not (result.reason or "").startswith("zero_cell")


def attenuated_refusal_index(refusal_index: ArrayLike, refusal_slope: ArrayLike, error_slope: ArrayLike) -> FloatArray:
    """Refusal Index that single draws show, given the one of the probabilities.

    Parameters
    ----------
    refusal_index : array_like of float
        Of the probabilities, in [-1, 1].
    refusal_slope, error_slope : array_like of float
        ``b_r`` and ``b_w``: standard deviation of the probit of the probability over the questions. Not negative;
        infinite for a model that always does the same.

    Returns
    -------
    ndarray
        ``6/pi asin(rho lambda_r lambda_w / 2)`` with ``lambda = b / sqrt(1 + b^2)``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> attenuated_refusal_index(0.582, [0.5, 1, 3], [0.5, 1, 3]).round(3)
    array([0.115, 0.288, 0.522])
    """
    index, b_r, b_w = (np.asarray(values, float) for values in (refusal_index, refusal_slope, error_slope))
    if not np.all(np.abs(index) <= 1):
        raise ValueError(f"refusal_index must lie in [-1, 1], got {refusal_index!r}; is it in per cent?")
    for name, slope in (("refusal_slope", b_r), ("error_slope", b_w)):
        if not np.all(slope >= 0):
            raise ValueError(f"{name} must not be negative, got {slope.tolist()!r}; its sign belongs to the index")
    attenuation = np.sin(np.arctan(b_r)) * np.sin(np.arctan(b_w))
    return np.asarray(np.arcsin(np.sin(index * math.asin(0.5)) * attenuation) / math.asin(0.5))[()]


def corrected_rho(cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Corrected rho, NaN where undefined, and the three correlations it is made of: cross, refusals, errors."""
    c = np.moveaxis(cells, -1, 0)
    parts = np.stack([tetrachoric(*c[:4]), tetrachoric(c[4], c[5], c[5], c[6]), tetrachoric(c[7], c[8], c[8], c[9])])
    usable = (parts[1] > 0) & (parts[2] > 0)
    reliability = np.where(usable, parts[1] * parts[2], np.nan)
    return parts[0] / np.sqrt(reliability), parts


def estimate_from_patterns(patterns: DrawPatterns) -> NoiseCorrectedResult:
    """Estimate as `noise_corrected_refusal_index`, from questions already counted."""
    cells = patterns.questions @ pair_cells(patterns)
    corrected, parts = (x.tolist() for x in corrected_rho(cells))
    uncorrected, refusals, errors = (None if math.isnan(x) else x for x in parts)
    rho: float | None = None
    reason = _why_undefined(patterns, cells, refusals, errors)
    status: Status = "undefined" if reason else "ok"
    if reason is None:
        rho, empty = corrected, [name for name, cell in zip(CELL_NAMES, cells[:4], strict=True) if cell == 0]
        if empty or abs(corrected) >= 1:
            rho, status = math.copysign(1.0, corrected), "boundary"
            reason = "zero_cell:" + "+".join(empty) if empty else "corrected_rho_reaches_one"
    return NoiseCorrectedResult(
        estimate=None if rho is None else spearman(rho),
        rho=rho,
        uncorrected=None if uncorrected is None else spearman(uncorrected),
        refusal_reliability=refusals,
        error_reliability=errors,
        status=status,
        reason=reason,
        patterns=patterns,
    )


def _why_undefined(
    patterns: DrawPatterns, cells: FloatArray, refusals: float | None, errors: float | None
) -> str | None:
    if patterns.n_questions == 0:
        return "no_repeated_questions"
    both, only_r, only_w, neither = cells[:4]
    reason = empty_margin(both + only_r, only_w + neither, only_r + neither, both + only_w)
    if reason:
        return reason
    # With margins that vary both correlations exist.
    if refusals is None or refusals <= 0:
        return "refusal_reliability_not_positive"
    return "error_reliability_not_positive" if errors is None or errors <= 0 else None
