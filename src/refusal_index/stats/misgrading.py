"""Correction for grading errors: of RI by known error rates, and of every metric by labelled answers.

With ``f_c = P(graded wrong | right)`` and ``f_w = P(graded right | wrong)``, a group of n questions of which m are
wrong has an expected number of ``(1 - f_w) m + f_c (n - m)`` graded wrong. Solving for m, separately among refused and
answered questions, gives the four cells that a perfect grader would have counted; if both groups have the same rates,
``p11 = (p11* - f_c r) / (1 - f_c - f_w)`` and ``mu = (mu* - f_c) / (1 - f_c - f_w)``.

A negative cell means that the grades are impossible with these rates. It is reported, never clipped to 0.

A labelled sample that is stratified by the grader's grade shows how often a person agrees with each *grade*, not how
often the grader errs on right and on wrong answers. So the former is estimated from the sample, which is valid for any
sampling by grade; f_c and f_w follow by Bayes' rule from the shares of the two grades in the whole run.

`prediction_powered` corrects metrics and their differences with a small number of answers labelled by a person. The
grade of an answer is a prediction of a person's label. The estimate from the grades is corrected by their errors in the
labelled sample. The influence of a question is

    m(cell) + labelled / pi * (influence of the true cell - m(cell)),

where pi is the probability that the question was sampled for labelling, and m the mean influence of the true cell given
the graded cell, estimated from the labels. This is prediction-powered inference [1]_ with the best prediction from
grades; it is self-tuning [2]_, because m does not depend on grades that are uninformative. Sums of squares over
questions give variances, and sums of products between two runs give covariances, whichever questions are shared and
labelled.

References
----------
.. [1] Angelopoulos, A. N., Bates, S., Fannjiang, C., Jordan, M. I. and Zrnic, T. (2023). Prediction-powered inference.
   Science, 382, 669-674. :doi:`10.1126/science.adi6000`
.. [2] Angelopoulos, A. N., Duchi, J. C. and Zrnic, T. (2023). PPI++: efficient prediction-powered inference.
   https://arxiv.org/abs/2311.01453
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_count, checked_matrices, unmasked, whole_number
from refusal_index.stats.baseline import METRIC_NAMES, TRUTHFULNESS_WEIGHTS, Weights, checked_payoffs
from refusal_index.stats.comparison import PointEstimate, point_estimate
from refusal_index.stats.contingency import Cells, ContingencyTable, cell_codes, cell_names, empty_margin
from refusal_index.stats.estimate import (
    NO_INTERVAL,
    Bounds,
    ConfidenceInterval,
    Result,
    ResultWithInterval,
    SizePlan,
    Status,
    reasons_of,
)
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.intervals import (
    Seed,
    central_quantiles,
    checked_resamples,
    normal_quantile,
    refusal_index,
    spearman,
)
from refusal_index.stats.planning import checked_positive


@dataclass(frozen=True, slots=True)
class GraderLabels:
    """Counts of graded answers that a person labelled; the person is taken to be right.

    Parameters
    ----------
    graded_wrong_is_wrong, graded_wrong_is_right, graded_right_is_wrong, graded_right_is_right : int
        Number of answers by the grader's grade and the person's label.

    Raises
    ------
    TypeError, ValueError
        If one of them is not a count.
    """

    graded_wrong_is_wrong: int
    graded_wrong_is_right: int
    graded_right_is_wrong: int
    graded_right_is_right: int

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, checked_count(entry.name, getattr(self, entry.name)))

    @property
    def errors(self) -> NDArray[np.int64]:
        """Mistaken and correct grades among answers graded wrong, then among those graded right; shape (2, 2)."""
        sound_wrong, mistaken_wrong, mistaken_right, sound_right = astuple(self)
        return np.array([[mistaken_wrong, sound_wrong], [mistaken_right, sound_right]])


def labelled_cells(cells: FloatArray, errors: FloatArray) -> FloatArray:
    """Return cells by true grade, given cells by the grader's grade and error rates by grade, all (..., 2, 2).

    A share of each cell is moved, so an empty cell has no effect whatever its rate.
    """
    mistaken = cells * errors
    sound = cells * (1 - errors)
    return np.asarray(sound + mistaken[..., ::-1])


def grader_rates(cells: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return f_c and f_w, each of shape (..., 2), from error rates by grade, by Bayes' rule.

    `errors` has shape (..., 1 or 2, 2): one sample for both groups or one for each, by grade. A rate is 0 if there are
    no such answers.
    """
    graded = cells.sum(axis=-2, keepdims=True) if errors.shape[-2] == 1 else cells
    mistaken = graded * errors
    sound = graded * (1 - errors)
    right = mistaken[..., 0] + sound[..., 1]
    wrong = sound[..., 0] + mistaken[..., 1]
    f_c = np.divide(mistaken[..., 0], right, out=np.zeros_like(right), where=right > 0)
    f_w = np.divide(mistaken[..., 1], wrong, out=np.zeros_like(wrong), where=wrong > 0)
    shape = (*cells.shape[:-2], 2)
    return np.broadcast_to(f_c, shape), np.broadcast_to(f_w, shape)


Rate = float | tuple[float, float]

POSTERIOR_DRAWS = 10_000
# A cell below this share of all questions is a rounding error.
ROUNDING = 1e-12
# If 1 - f_c - f_w is below this, quotients by it are rounding errors.
LEAST_INFORMED = 1e-9


class GraderRates(NamedTuple):
    """Error rates of a grader, among refused and among answered questions."""

    graded_wrong_if_right: tuple[float, float]
    graded_right_if_wrong: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisgradingResult(Result):
    """The Refusal Index corrected for grading errors.

    Attributes
    ----------
    estimate, rho : float or None
        RI and tetrachoric correlation of the corrected cells; exactly -1 or +1 at the boundary, None if undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        At the boundary: ``"zero_cell:"`` with the corrected cells that are empty. If undefined: the first that applies
        of ``"no_labels:"`` with the kinds of graded answers without labels, ``"uninformative_grader"`` (the estimated
        ``f_c + f_w`` is 1 or more), ``"negative_cell:"`` with the cells, and the reasons of `RefusalIndexResult`.
    cells : tuple of float or None
        Corrected cells in the order of `CELL_NAMES`, with the same total as the table. They may be fractional, or
        negative (see `reason`); None if they cannot be computed.
    rates : GraderRates or None
        The error rates, assumed or estimated.
    table : ContingencyTable
        The counts by the grader's grades.
    labels : tuple of GraderLabels
        Empty if the rates were assumed; otherwise one sample for all questions, or one for refused and one for answered
        questions.
    """

    rho: float | None = None
    cells: tuple[float, float, float, float] | None = None
    rates: GraderRates | None = None
    table: ContingencyTable
    labels: tuple[GraderLabels, ...]

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = POSTERIOR_DRAWS, rng: Seed = None
    ) -> ConfidenceInterval:
        """Return posterior quantiles, under Jeffreys' priors for the cells and for estimated error rates.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10000
            Number of posterior draws; draws with a negative cell are impossible and left out.
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            Extended to the estimate if the quantiles exclude it, as at the boundary; ``(nan, nan)`` if undefined.
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.rho is None or self.rates is None:
            return NO_INTERVAL
        generator = np.random.default_rng(rng)
        # Normalised gamma variables have a Dirichlet distribution, and rho does not depend on their sum.
        cells = generator.standard_gamma(by_group(self.table) + 0.5, size=(n_resamples, 2, 2))
        f_c = np.array(self.rates.graded_wrong_if_right)
        f_w = np.array(self.rates.graded_right_if_wrong)
        if self.labels:
            counts = np.stack([piece.errors for piece in self.labels]) + 0.5
            errors = generator.beta(counts[..., 0], counts[..., 1], size=(n_resamples, len(self.labels), 2))
            f_c, f_w = grader_rates(cells, errors)
        corrected = labelled_cells(cells, errors) if len(self.labels) == 2 else _true_cells(cells, f_c, f_w)
        with np.errstate(invalid="ignore"):
            possible = (corrected > 0).all(axis=(-2, -1))
        draws = tetrachoric(*corrected[possible].reshape(-1, 4).T)
        low, high = central_quantiles(draws, confidence_level)
        return ConfidenceInterval(spearman(min(low, self.rho)), spearman(max(high, self.rho)))


def correct_misgrading(
    table: ContingencyTable, graded_wrong_if_right: Rate, graded_right_if_wrong: Rate
) -> MisgradingResult:
    """Correct the Refusal Index for known or assumed error rates of the grader.

    Parameters
    ----------
    table : ContingencyTable
        Counts by the grader's grades.
    graded_wrong_if_right, graded_right_if_wrong : float or tuple of two floats
        f_c and f_w, in [0, 1) and with a sum below 1: one number for all questions, or one for refused and one for
        answered questions.

    Returns
    -------
    MisgradingResult
        Exact if the observed shares graded wrong equal their expectation. Undefined if the rates are impossible for
        this table.

    Raises
    ------
    TypeError
        If `table` is not a ContingencyTable, or a rate is not a number.
    ValueError
        If a rate is out of range, or f_c and f_w of a group sum to 1 or more, so that grades are uninformative.

    Notes
    -----
    Guessing is a special case: of unknown answers guessed among K choices, 1 in K is graded right. See
    `correct_guessing`.

    References
    ----------
    .. [1] Rogan, W. J. and Gladen, B. (1978). Estimating prevalence from the results of a screening test. American
       Journal of Epidemiology, 107, 71-76. :doi:`10.1093/oxfordjournals.aje.a112510`

    Examples
    --------
    >>> result = correct_misgrading(ContingencyTable(706, 34, 207, 53), 0.01, 0.01)
    >>> round(result.estimate, 3), [round(cell, 1) for cell in result.cells]
    (0.514, [712.9, 27.1, 208.6, 51.4])
    """
    rates = checked_rates(graded_wrong_if_right, graded_right_if_wrong)
    cells = _true_cells(by_group(table), np.array(rates.graded_wrong_if_right), np.array(rates.graded_right_if_wrong))
    return estimate_from_cells(cells, table, rates, ())


def correct_guessing(table: ContingencyTable, n_choices: int) -> MisgradingResult:
    """Correct the Refusal Index for guessing in multiple-choice questions.

    A question is answered right with probability ``1 / n_choices`` if its answer is not known, and always if it is.
    This is misgrading with ``f_c = 0`` and ``f_w = 1 / n_choices``, where "wrong" means "not known".

    Parameters
    ----------
    table : ContingencyTable
    n_choices : int
        At least 2.

    Returns
    -------
    MisgradingResult
        As for `correct_misgrading`.

    Raises
    ------
    TypeError
        If `table` is not a ContingencyTable, or `n_choices` is not a number.
    ValueError
        If `n_choices` is not a whole number of at least 2.

    Examples
    --------
    >>> correct_guessing(ContingencyTable(300, 150, 150, 400), n_choices=4).cells
    (400.0, 50.0, 200.0, 350.0)
    """
    return correct_misgrading(table, 0.0, 1 / whole_number("n_choices", n_choices, 2, "; is it a probability?"))


def checked_rates(graded_wrong_if_right: Rate, graded_right_if_wrong: Rate) -> GraderRates:
    """Check both rates, and that grades with these rates are informative."""
    rates = GraderRates(
        checked_rate("graded_wrong_if_right", graded_wrong_if_right),
        checked_rate("graded_right_if_wrong", graded_right_if_wrong),
    )
    if any(1 - f_c - f_w <= LEAST_INFORMED for f_c, f_w in zip(*rates, strict=True)):
        raise ValueError(
            "graded_wrong_if_right and graded_right_if_wrong must sum to less than 1, "
            f"got {graded_wrong_if_right!r} and {graded_right_if_wrong!r}; is one a share of correct grades?"
        )
    return rates


def checked_rate(name: str, rate: Rate) -> tuple[float, float]:
    """Check one or two rates, and return two."""
    values = unmasked(name, rate)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be one or two numbers in [0, 1), got {rate!r}; is it text, or missing?")
    if values.shape not in ((), (2,)) or not np.all((values >= 0) & (values < 1)):
        raise ValueError(f"{name} must be one or two numbers in [0, 1), got {rate!r}; is it a percentage?")
    first, second = np.broadcast_to(values.astype(float), 2).tolist()
    return first, second


def by_group(table: ContingencyTable) -> FloatArray:
    """Return counts graded wrong and right among refused, then among answered questions; shape (2, 2).

    Raises TypeError if `table` is not a ContingencyTable.
    """
    if not isinstance(table, ContingencyTable):
        raise TypeError(f"table must be a ContingencyTable, got {type(table).__name__}")
    return np.array(table.counts, float).reshape(2, 2)


def estimate_from_cells(
    cells: FloatArray, table: ContingencyTable, rates: GraderRates, labels: tuple[GraderLabels, ...]
) -> MisgradingResult:
    """Return the result for corrected cells, shape (2, 2); the other arguments are stored in it."""
    corrected = np.where(np.abs(cells) < ROUNDING * table.n, 0.0, cells).ravel()
    rho = float(tetrachoric(*np.where(corrected < 0, np.nan, corrected)))
    n11, n10, n01, n00 = corrected.tolist()
    defined_cells = None if math.isnan(n11 + n10 + n01 + n00) else (n11, n10, n01, n00)
    reason = _why_not_ok(table, corrected)
    result = MisgradingResult(None, "undefined", reason, cells=defined_cells, rates=rates, table=table, labels=labels)
    if reason is None or reason.startswith("zero_cell"):
        return replace(result, estimate=spearman(rho), rho=rho, status="boundary" if reason else "ok")
    return result


def _why_not_ok(table: ContingencyTable, cells: FloatArray) -> str | None:
    if table.n == 0 or 0 in (table.n_refused, table.n_answered):
        return refusal_index(table).reason
    if np.isnan(cells).any():
        return "uninformative_grader"
    if (cells < 0).any():
        return f"negative_cell:{cell_names(cells < 0)}"
    empty = empty_margin(*Cells(*cells.tolist()).margins)
    return empty or (f"zero_cell:{cell_names(cells == 0)}" if 0 in cells else None)


def _true_cells(cells: FloatArray, f_c: FloatArray, f_w: FloatArray) -> FloatArray:
    """Correct cells of shape (..., 2, 2), group by grade, with rates of shape (..., 2); NaN if f_c + f_w >= 1."""
    total = cells.sum(axis=-1)
    informed = 1 - f_c - f_w
    informed = np.where(informed > LEAST_INFORMED, informed, np.nan)
    wrong = (cells[..., 0] - f_c * total) / informed
    right = (cells[..., 1] - f_w * total) / informed
    return np.stack([wrong, right], axis=-1)


GROUPS = ("refused", "answered")
GRADES = ("graded_wrong", "graded_right")


def misgrading_from_labels(
    table: ContingencyTable,
    labels: GraderLabels | None = None,
    *,
    refused: GraderLabels | None = None,
    answered: GraderLabels | None = None,
) -> MisgradingResult:
    """Correct the Refusal Index for grading errors, with a sample of answers that a person labelled.

    Parameters
    ----------
    table : ContingencyTable
        Counts of the whole run by the grader's grades.
    labels : GraderLabels
        One sample for refused and answered questions, whose error rates are assumed to be equal: a random sample of all
        answers, or of the answers of each grade, of any sizes. Give this or the next two.
    refused, answered : GraderLabels
        A sample for each, drawn in the same way; error rates may differ.

    Returns
    -------
    MisgradingResult
        Undefined if the run has graded answers of a kind without labels: ``"no_labels:graded_right"`` with one sample,
        ``"no_labels:refused_graded_right"`` with two; several are joined by ``+``. Kinds of answers that the run does
        not have need no labels.

    Raises
    ------
    TypeError
        If neither or both forms are given, or an argument has the wrong type.

    Notes
    -----
    A sample that is stratified by the grader's grade shows how often a person agrees with each *grade*, not how often
    the grader errs on right and on wrong answers. So the former is estimated from the sample, which is valid for any
    sampling by grade, and f_c and f_w follow by Bayes' rule from the shares of the grades in the whole table. If
    refused questions are over-represented in the sample, use the second form. With a sample for each group, the share
    of mistaken grades in each cell is moved to the other grade; this is defined even if the implied f_c and f_w sum to
    1.

    The interval is computed by drawing the cells and the error rates by grade from their posterior distributions.

    References
    ----------
    .. [1] Rogan and Gladen (1978). :doi:`10.1093/oxfordjournals.aje.a112510`

    Examples
    --------
    >>> labels = GraderLabels(
    ...     graded_wrong_is_wrong=395, graded_wrong_is_right=5, graded_right_is_wrong=10, graded_right_is_right=90
    ... )
    >>> result = misgrading_from_labels(ContingencyTable(220, 60, 180, 540), labels)
    >>> [round(rates[0], 4) for rates in result.rates], round(result.estimate, 3)
    ([0.0092, 0.1319], 0.816)
    """
    parts = (refused, answered)
    if (labels is None) == (parts == (None, None)) or (labels is None and None in parts):
        raise TypeError("misgrading_from_labels needs one slice of labels, or both refused= and answered=")
    slices = tuple(piece for piece in (labels, *parts) if piece is not None)
    for piece in slices:
        if not isinstance(piece, GraderLabels):
            raise TypeError(f"labels must be GraderLabels, got {type(piece).__name__}")
    cells = by_group(table)
    errors = np.stack([piece.errors for piece in slices])
    graded = cells.sum(axis=0, keepdims=True) if len(slices) == 1 else cells
    labelled = errors.sum(axis=-1)
    names = GRADES if len(slices) == 1 else [f"{group}_{grade}" for group in GROUPS for grade in GRADES]
    unlabelled = ((graded > 0) & (labelled == 0)).ravel()
    if missing := "+".join(name for name, lacks in zip(names, unlabelled, strict=True) if lacks):
        return MisgradingResult(None, "undefined", f"no_labels:{missing}", table=table, labels=slices)
    shares = np.divide(errors[..., 0], labelled, out=np.zeros(labelled.shape), where=labelled > 0)
    f_c, f_w = grader_rates(cells, shares)
    rates = GraderRates((float(f_c[0]), float(f_c[1])), (float(f_w[0]), float(f_w[1])))
    corrected = _true_cells(cells, f_c, f_w) if len(slices) == 1 else labelled_cells(cells, shares)
    return estimate_from_cells(corrected, table, rates, slices)


@dataclass(frozen=True, slots=True)
class MisgradingRange(Bounds):
    """The smallest and largest corrected Refusal Index over a range of error rates of the grader.

    Attributes
    ----------
    low, high : float or None
        None if undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `MisgradingResult`, of the first of `ends` that has one; undefined ones take precedence.
    ends : tuple of two MisgradingResult
        If rates may differ: the corrections with the lowest and the highest RI. If rates are equal: those at the
        smallest and the largest rates.
    """

    ends: tuple[MisgradingResult, MisgradingResult]


def misgrading_range(
    table: ContingencyTable,
    graded_wrong_if_right: tuple[float, float],
    graded_right_if_wrong: tuple[float, float],
    *,
    same_rates: bool = False,
) -> MisgradingRange:
    """Return the range of the corrected Refusal Index over ranges of both error rates of the grader.

    Parameters
    ----------
    table : ContingencyTable
        Counts by the grader's grades.
    graded_wrong_if_right, graded_right_if_wrong : tuple of two floats
        Smallest and largest f_c, and smallest and largest f_w.
    same_rates : bool, default: False
        Whether the rates are equal for refused and answered questions. Forced guesses and free replies are different
        kinds of answers, so this is not generally the case.

    Returns
    -------
    MisgradingRange
        If rates may differ: the sharp range over all possible rates, which ends at -1 or 1 if a cell can be corrected
        to 0. If rates are equal: undefined if the smallest or the largest rates are impossible.

    Raises
    ------
    TypeError
        If `table` is not a ContingencyTable, or a rate is not a number.
    ValueError
        If a rate is out of range, the ends of a range are in the wrong order, or the largest rates sum to 1 or more.

    Notes
    -----
    RI increases with the share of wrong answers among refused questions, and decreases with that among answered ones. A
    corrected share increases with f_w and decreases with f_c. So if rates may differ, RI is highest at the largest f_w
    and the smallest f_c for refused questions and the reverse for answered ones, and lowest at the opposite corner.
    Equal rates do not change the sign of rho, and its absolute value increases with both: the derivative of rho in f_w
    is proportional to ``p11 - beta mu``, with ``beta = P(refused | at the threshold of being wrong)``; this has the
    sign of rho, since for a positive rho refusals are more frequent beyond that threshold than at it. The same holds
    for f_c.

    References
    ----------
    .. [1] Rogan and Gladen (1978). :doi:`10.1093/oxfordjournals.aje.a112510`

    Examples
    --------
    >>> table = ContingencyTable(710, 30, 210, 50)
    >>> for same in (False, True):
    ...     bounds = misgrading_range(table, (0.0, 0.03), (0.0, 0.03), same_rates=same)
    ...     print(round(bounds.low, 3), round(bounds.high, 3))
    0.428 0.714
    0.482 0.677
    """
    names = ("graded_wrong_if_right", "graded_right_if_wrong")
    for name, ends in zip(names, (graded_wrong_if_right, graded_right_if_wrong), strict=True):
        low, high = checked_rate(name, ends)
        if np.ndim(ends) == 0 or low > high:
            raise ValueError(f"{name} must be the smallest rate and the largest, got {ends!r}; are they swapped?")
    checked_rates(graded_wrong_if_right[1], graded_right_if_wrong[1])
    f_c = graded_wrong_if_right
    f_w = graded_right_if_wrong
    if same_rates:
        return _range_between(*(correct_misgrading(table, f_c[end], f_w[end]) for end in (0, 1)))
    lowest = correct_misgrading(table, (f_c[1], f_c[0]), (f_w[0], f_w[1]))
    highest = correct_misgrading(table, (f_c[0], f_c[1]), (f_w[1], f_w[0]))
    fewest = np.array(lowest.cells).reshape(2, 2)
    highest_cells = np.array(highest.cells).reshape(2, 2)
    # Some rates give no negative cell. At the lowest RI, the fewest refused and the most answered questions are wrong.
    if min(highest_cells[0, 0], fewest[0, 1], fewest[1, 0], highest_cells[1, 1]) >= 0:
        lowest = _as_far_as_possible(lowest)
        highest = _as_far_as_possible(highest)
    return _range_between(lowest, highest)


def _range_between(first: MisgradingResult, second: MisgradingResult) -> MisgradingRange:
    ends = first, second
    deciding = [end for end in ends if end.status == "undefined"] or ends
    reason = next((end.reason for end in deciding if end.reason), None)
    if first.estimate is None or second.estimate is None:
        return MisgradingRange(None, None, "undefined", reason, ends)
    low, high = sorted((first.estimate, second.estimate))
    return MisgradingRange(low, high, "boundary" if reason else "ok", reason, ends)


def _as_far_as_possible(corrected: MisgradingResult) -> MisgradingResult:
    """Limit a correction to an empty cell, since rates beyond that are impossible."""
    cells = np.array(corrected.cells).reshape(2, 2)
    if corrected.rates is None or cells.min() >= 0:
        return corrected
    clipped = np.clip(cells, 0.0, cells.sum(axis=1, keepdims=True))
    return estimate_from_cells(clipped, corrected.table, corrected.rates, ())


# Shares of cells are represented as counts of this many questions, which is practically exact.
SHARES_OF = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPowered(ResultWithInterval):
    """A metric of a run, or its difference between two runs, corrected to a person's labels.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    estimate : float or None
        None if undefined.
    standard_error : float or None
        Includes the sampling of questions and of labels. None unless the status is ``"ok"``.
    graded : float or None
        The uncorrected value, from grades alone.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `MetricDifference`, or ``"no_labels:"`` with the graded cells without labelled answers; for a difference,
        after ``"first:"`` or ``"second:"``.
    """

    name: str
    graded: float | None


def prediction_powered(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    labelled: ArrayLike,
    truly_wrong: ArrayLike,
    inclusion: ArrayLike | None = None,
    weighted_score_p: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
) -> tuple[PredictionPowered, ...]:
    """Estimate every metric of a run, or its difference between two runs, from grades and a labelled sample.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (1, n) or (2, n)
        By the grader's grades, as for `checked_matrices`: one run, or two for the difference first minus second.
    labelled, truly_wrong : array_like of bool, of the same shape
        Whether a person labelled the answer, and whether it is wrong according to the label; ignored if not labelled.
    inclusion : array_like of float, of the same shape, optional
        Probability with which each answer was sampled for labelling, in (0, 1]. Only those of labelled answers are
        used, relative to others in the same graded cell. By default equal within each cell, as for a stratified random
        sample.
    weighted_score_p : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
        As for `metrics`.

    Returns
    -------
    tuple of PredictionPowered
        In the order of `METRIC_NAMES`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, shape or range.

    Notes
    -----
    The estimate of RI is that of `misgrading_from_labels` with a sample for each group. In the variance, half a label
    is added to each verdict in every cell, so that it is not 0 if no mistaken grade was found. Simulated coverage of 95
    % intervals, for 2,000 questions with 75 labels per cell and a grader whose error rates differ between refused and
    answered questions, is .96 to .97 for RI, .95 to .96 for other metrics, and .95 to .97 for differences between two
    runs (`benchmarks/coverage/misgrading.py`).

    References
    ----------
    .. [1] Angelopoulos et al. (2023). :doi:`10.1126/science.adi6000`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> truly_wrong = rng.random((1, 2000)) < 0.4
    >>> refused = rng.random((1, 2000)) < np.where(truly_wrong, 0.6, 0.2)
    >>> wrong = truly_wrong ^ (rng.random((1, 2000)) < 0.1)
    >>> labelled = rng.random((1, 2000)) < 0.2
    >>> found = prediction_powered(refused, wrong, labelled=labelled, truly_wrong=truly_wrong)[-1]
    >>> round(found.graded, 2), round(found.estimate, 2), round(found.standard_error, 2)
    (0.42, 0.57, 0.04)
    """
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) not in (1, 2):
        raise ValueError(f"refused must have one or two rows, one per run, got {len(matrices[0])}")
    is_labelled, truth, _ = checked_matrices(labelled, truly_wrong)
    chances = np.ones(is_labelled.shape) if inclusion is None else np.asarray(inclusion, float)
    if chances.shape != is_labelled.shape:
        raise ValueError(f"inclusion must have the shape of labelled, {is_labelled.shape}, got {chances.shape}")
    if not np.all((chances[is_labelled] > 0) & (chances[is_labelled] <= 1)):
        raise ValueError("inclusion must lie in (0, 1] wherever an answer is labelled; is one missing, or in per cent?")
    if is_labelled.shape != matrices[0].shape:
        raise ValueError(f"labelled must have the shape of refused, {matrices[0].shape}, got {is_labelled.shape}")
    codes = cell_codes(*matrices)
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    runs = [_LabelledRun.of(*row) for row in zip(codes, is_labelled, truth, chances, strict=True)]
    results = []
    for name in METRIC_NAMES:
        plain = [point_estimate(name, ContingencyTable(*run.graded.tolist()), payoffs) for run in runs]
        points = [
            PointEstimate(None, "undefined", run.missing_labels)
            if run.missing_labels
            else point_estimate(name, run.true_table(), payoffs)
            for run in runs
        ]
        graded = _value_or_difference([point.estimate for point in plain])
        estimate = _value_or_difference([point.estimate for point in points])
        reason = points[0].reason if len(points) == 1 else reasons_of(*points)
        if estimate is None or reason:
            status: Status = "undefined" if estimate is None else "boundary"
            results.append(PredictionPowered(estimate, status, reason, name=name, graded=graded))
            continue
        pairs = zip(runs, points, strict=True)
        influences, variances = zip(*(run.influence(point) for run, point in pairs), strict=True)
        variance = sum(variances) - (2 * float(influences[0] @ influences[1]) if len(runs) == 2 else 0.0)
        error = math.sqrt(max(variance, 0.0))
        results.append(PredictionPowered(estimate, standard_error=error, name=name, graded=graded))
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _LabelledRun:
    """A run: graded cell of each question, labels, and their summary by graded cell."""

    codes: NDArray[np.intp]  # graded cell of each question, 4 if not scored
    labelled: BoolArray
    true_codes: NDArray[np.intp]  # true cell of each labelled question
    # weight of each question: 0 unless labelled; sums to the number of questions of the graded cell
    weights: FloatArray
    mistaken: FloatArray  # share of mistaken grades in each graded cell, NaN without labels
    labels: NDArray[np.int64]  # number of labels in each graded cell

    @classmethod
    def of(cls, codes: NDArray[np.intp], labelled: BoolArray, wrong: BoolArray, chances: FloatArray) -> "_LabelledRun":
        is_labelled = labelled & (codes < 4)
        true_codes = np.where(codes < 4, 2 * (codes // 2) + ~wrong, 4)
        raw = np.where(is_labelled, 1 / np.where(is_labelled, chances, 1.0), 0.0)
        totals = np.bincount(codes, raw, minlength=5)
        sizes = np.bincount(codes, minlength=5)
        scale = np.divide(sizes, totals, out=np.zeros(5), where=totals > 0)
        hits = np.bincount(codes, raw * (true_codes != codes), minlength=5)
        mistaken = np.divide(hits, totals, out=np.full(5, np.nan), where=totals > 0)
        labels = np.bincount(codes[is_labelled], minlength=5)
        return cls(codes, is_labelled, true_codes, raw * scale[codes], mistaken[:4], labels[:4])

    @property
    def graded(self) -> FloatArray:
        """Number of questions in each graded cell."""
        return np.bincount(self.codes, minlength=5)[:4].astype(float)

    @property
    def missing_labels(self) -> str | None:
        """Reason if an estimate is impossible: graded cells without labels."""
        cells = (self.graded > 0) & (self.labels == 0)
        return f"no_labels:{cell_names(cells)}" if cells.any() else None

    def true_table(self) -> ContingencyTable:
        """Return the estimated shares of the true cells, as counts."""
        mistaken = self.graded * np.nan_to_num(self.mistaken)
        cells = self.graded - mistaken + mistaken[[1, 0, 3, 2]]
        # Rounding errors of an empty cell are set to 0.
        shares = np.where(cells < 1e-9, 0.0, cells) / max(self.graded.sum(), 1.0)
        return ContingencyTable(*(round(share * SHARES_OF) for share in shares.tolist()))

    def influence(self, point: PointEstimate) -> tuple[FloatArray, float]:
        """Return the influence of each question, divided by their number, and the squared standard error."""
        by_cell = np.array(point.by_cell)
        n = self.graded.sum()
        jump = by_cell[[1, 0, 3, 2]] - by_cell
        mean = np.append(by_cell + np.nan_to_num(self.mistaken) * jump, 0.0)
        residual = np.append(by_cell, 0.0)[self.true_codes] - mean[self.codes]
        # Half a label is added to each verdict, since errors are possible even if none was found.
        shares = (np.nan_to_num(self.mistaken) * self.labels + 0.5) / (self.labels + 1)
        weights = self.weights * self.labelled
        squares = np.bincount(self.codes, weights**2, minlength=5)[:4]
        variance = float(self.graded @ mean[:4] ** 2 + squares @ (jump**2 * shares * (1 - shares)))
        return (mean[self.codes] + weights * residual) / n, variance / n**2


def _value_or_difference(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        return None
    return defined[0] if len(defined) == 1 else defined[0] - defined[1]


@dataclass(frozen=True, slots=True)
class LabelPlan(SizePlan):
    """A number of labels, distributed equally over graded cells if possible, with the expected half-width.

    Attributes
    ----------
    n : int or None
        Number of labels; None if no number is enough, or undefined.
    half_width : float or None
        Expected half-width of the prediction-powered interval; if no number of labels is enough, with all answers
        labelled.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        ``"too_few_questions"`` if no number is enough, with the status ``"ok"``; otherwise as for `correct_misgrading`.
    """


def labels_for_half_width(
    table: ContingencyTable,
    half_width: float,
    *,
    graded_wrong_if_right: float = 0.03,
    graded_right_if_wrong: float = 0.03,
    confidence_level: float = 0.95,
) -> LabelPlan:
    """Return the smallest number of labels for a wanted half-width of the prediction-powered interval of RI.

    Parameters
    ----------
    table : ContingencyTable
        Counts of the run by the grader's grades.
    half_width : float
        Wanted half-width, positive.
    graded_wrong_if_right, graded_right_if_wrong : float
        Expected error rates of the grader, as for `correct_misgrading`.
    confidence_level : float, default: 0.95

    Returns
    -------
    LabelPlan

    Raises
    ------
    TypeError, ValueError
        As for `correct_misgrading`, or if the half-width is not positive.

    References
    ----------
    .. [1] Angelopoulos et al. (2023). :doi:`10.1126/science.adi6000`

    Examples
    --------
    >>> [labels_for_half_width(ContingencyTable(600, 200, 400, 800), width).n for width in (0.12, 0.1, 0.08)]
    [86, 117, 181]
    """
    target = checked_positive("half_width", half_width)
    quantile = normal_quantile(confidence_level)
    corrected = correct_misgrading(table, graded_wrong_if_right, graded_right_if_wrong)
    if corrected.status != "ok" or corrected.cells is None:
        return LabelPlan(None, None, corrected.status, corrected.reason)
    graded = np.array(table.counts)
    true = np.array(corrected.cells)
    n_questions = table.n
    shares = ContingencyTable(*(round(x / n_questions * SHARES_OF) for x in true.tolist()))
    by_cell = np.array(point_estimate("refusal_index", shares).by_cell)
    jump = by_cell[[1, 0, 3, 2]] - by_cell
    # Answers graded wrong are mistaken if they are right, and vice versa.
    f_c = graded_wrong_if_right
    f_w = graded_right_if_wrong
    mistaken = np.divide(true[[1, 0, 3, 2]] * [f_c, f_w, f_c, f_w], graded, out=np.zeros(4), where=graded > 0)
    # Variance of RI from questions, and squared effect of the mistakes in each graded cell.
    questions = float(graded @ (by_cell + mistaken * jump) ** 2) / n_questions**2
    jumps = (graded * jump / n_questions) ** 2

    def width(n: int) -> float:
        n_labels = equal_numbers(graded, n)
        # As in `prediction_powered`: few labels cannot show that mistakes are rare.
        shares = (n_labels * mistaken + 0.5) / (n_labels + 1)
        by_labels = jumps * shares * (1 - shares) / np.maximum(n_labels, 1)
        return quantile * math.sqrt(questions + float(np.sum(by_labels)))

    lowest = int(np.count_nonzero(graded))
    highest = int(graded.sum())
    if width(highest) > target:
        return LabelPlan(None, width(highest), "ok", "too_few_questions")
    n = lowest + bisect_left(range(lowest, highest), True, key=lambda n: width(n) <= target)
    return LabelPlan(n, width(n), "ok", None)


def equal_numbers(available: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Distribute n labels to cells in turn, limited by the available answers."""
    n_labels = np.zeros_like(available)
    while (left := n - int(n_labels.sum())) > 0 and (open_cells := np.flatnonzero(n_labels < available)).size:
        share = max(left // open_cells.size, 1)
        chosen = open_cells[:left]
        n_labels[chosen] = np.minimum(n_labels[chosen] + share, available[chosen])
    return n_labels
