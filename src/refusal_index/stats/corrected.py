"""The corrected Refusal Index, from repeated draws: RI of the probabilities of refusing and of being wrong.

The paper defines RI for the probabilities of each question, and reports the estimate from one draw per question. If the
probabilities are ``r_i = Phi(a + b_r X)`` and ``w_i = Phi(a' + b_w Y)`` with ``corr(X, Y) = rho_L``, and the noise of
refusal and answer is independent, one draw per question has the tetrachoric correlation ``rho_L lambda_r lambda_w``
with ``lambda^2 = b^2 / (1 + b^2)``. Noise shared by both adds to it, and can move RI further from 0 than corrected RI.
``lambda_r^2`` is the tetrachoric correlation of two draws of the refusal, so it can be estimated from a second draw and
divided out, which is Spearman's correction for attenuation:

    rho_L = tet(R^a, W^b) / sqrt(tet(R, R') tet(W, W')),    a != b.

Refusal and error are always taken from different draws, so shared noise has no effect. The single draws of all other
questions are used too; see `refusal_index.stats.draws`.

Comparison of two models:

Sampling noise changes RI the more, the more random a model is. So two models can differ in RI although their corrected
RIs are equal. The comparison is paired by question, which removes the variation in difficulty that both models have in
common.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_matrices
from refusal_index.stats.comparison import Influence
from refusal_index.stats.contingency import (
    ONE_CLUSTER,
    Cells,
    SamplingDesign,
    cell_codes,
    cell_names,
    designed,
    empty_margin,
    tables_of_rows,
)
from refusal_index.stats.draws import (
    NEARLY_1,
    NO_LEVEL,
    TABLES,
    DrawPatterns,
    Quotient,
    TwoPhaseSample,
    checked_draws,
    precision_weights,
    question_counts,
    quotient,
)
from refusal_index.stats.estimate import (
    NO_INTERVAL,
    ConfidenceInterval,
    Estimate,
    Result,
    Status,
    reasons_of,
    square_and_add,
    student_quantile,
    two_sided_pvalue,
)
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.intervals import (
    RefusalIndexResult,
    Seed,
    normal_quantile,
    refusal_index,
    spearman,
    spearman_slope,
)
from refusal_index.stats.joint import Spread, spread_of
from refusal_index.stats.ranking import (
    RESAMPLES,
    Adjustment,
    RankedRun,
    Ranking,
    boundary_pairs,
    pairs_at_boundary,
    rank_estimates,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedRefusalIndexResult(Result):
    """RI of the probabilities of refusing and of being wrong, estimated from repeated draws with forced answers.

    Attributes
    ----------
    estimate : float or None
        The corrected Refusal Index, in [-1, 1]; None if undefined.
    rho : float or None
        The copula correlation, with the same conventions.
    forced_for_all : float or None
        RI of the refusal and the forced answer in the same draw, for every question: RI with first-pass answers
        replaced by forced ones.
    uncorrected : float or None
        RI of the refusal in one draw and the forced answer in another, which share no noise.
    refusal_reliability, error_reliability : float or None
        Tetrachoric correlation between two draws of the refusal, and of the error, of the same question: 1 for a
        deterministic model, 0 if questions do not differ. Independent noise multiplies rho by their geometric mean.
    status : {"ok", "boundary", "not_identified", "undefined"}
        ``"boundary"``: the corrected correlation reaches or exceeds 1, a cell is empty in all pairs of draws, or there
        is one cluster. ``"not_identified"``: the 95% interval is [-1, 1].
    reason : str or None
        At the boundary: ``"corrected_rho_reaches_one"``; ``"estimated_from_single_responses:"`` with the cells that are
        empty in all pairs of draws, or ``"zero_cell:"`` if a cell is empty in the single draws too; or
        ``"one_cluster"``, with which there is no interval. If not identified: one of these, or
        ``"no_value_ruled_out"``. If undefined: the first that applies of ``"no_repeated_questions"``,
        ``"nobody_refused"``, ``"everybody_refused"``, ``"all_wrong"``, ``"all_right"``,
        ``"refusal_reliability_not_positive"``, ``"error_reliability_not_positive"``.
    n_repeated, n : int
        Number of questions with at least two draws, and with at least one.
    """

    rho: float | None = None
    forced_for_all: float | None = None
    uncorrected: float | None = None
    refusal_reliability: float | None = None
    error_reliability: float | None = None
    n_repeated: int
    n: int
    _quotient: Quotient | None = field(default=None, compare=False, repr=False)
    _index: RefusalIndexResult | None = field(default=None, compare=False, repr=False)
    _spread: Spread | None = field(default=None, compare=False, repr=False)

    @property
    def reliability(self) -> float | None:
        """Geometric mean of both reliabilities; None if one is not positive."""
        refusals = self.refusal_reliability or 0.0
        errors = self.error_reliability or 0.0
        return math.sqrt(refusals * errors) if min(refusals, errors) > 0 else None

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return Fieller's interval of the quotient, on Fisher's scale.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            In [-1, 1]; all of it if a reliability may be 0. If a cell of refusal and error is empty in all pairs of
            draws, one end is 1 or -1; the other is the limit at which the cell is empty with probability
            ``1 - confidence_level``, divided by a limit of the reliability. If two draws always agree, half a question
            is added to each cell of their table. ``(nan, nan)`` if undefined, and for a single cluster.
        """
        normal_quantile(confidence_level)
        if self._index is not None:
            return self._index.confidence_interval(confidence_level)
        if self._quotient is None:
            return NO_INTERVAL
        quantile = student_quantile(confidence_level, self._quotient.degrees_of_freedom)
        variance = 0.0 if self._spread is None else self._spread.variance()
        if self._spread is None or variance == 0 or self.rho is None or abs(self.rho) >= 1:
            return self.interval_at(quantile)
        quantile = max(quantile, self._spread.error_and_quantile(confidence_level)[1])
        # The variation between prompts widens the interval on Fisher's scale.
        more = quantile * math.sqrt(variance * self._spread.squared_weights)
        z = math.atanh(self.rho)
        low, high = (2 * math.sin(end * math.asin(0.5)) for end in self.interval_at(quantile))
        if low > -1:
            low = math.tanh(z - math.hypot(z - math.atanh(low), more))
        if high < 1:
            high = math.tanh(z + math.hypot(math.atanh(high) - z, more))
        return ConfidenceInterval(spearman(low), spearman(high))

    def interval_at(self, quantile: float) -> ConfidenceInterval:
        """Return the interval with a given quantile."""
        part = self._quotient
        if part is None or self.rho is None or not np.isfinite(part.influence).all():
            return NO_INTERVAL
        if self._index is not None:
            level = min(1 - part.error(quantile), NEARLY_1)
            point = ConfidenceInterval(spearman(self.rho), spearman(self.rho))
            return self._index.confidence_interval(level) if level > NO_LEVEL else point
        low, high = part.interval(quantile)
        # If a table has an empty cell, interval and estimate are computed from different tables.
        return ConfidenceInterval(spearman(min(low, self.rho)), spearman(max(high, self.rho)))


def corrected_refusal_index(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    single: Sequence[ArrayLike] | None = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> CorrectedRefusalIndexResult:
    """Estimate the corrected Refusal Index from repeated draws of some or all questions.

    Parameters
    ----------
    refused : array_like of bool, shape (n_draws, n_questions)
        Whether the model refused in the first pass, in each draw.
    wrong : array_like of bool, shape (n_draws, n_questions)
        Whether the forced answer was wrong, in each draw: for *every* question, whether refused or not.
    scored : array_like of bool, shape (n_draws, n_questions), optional
        False where a draw has no grade. By default all True. Questions with fewer than two draws are not used here.
    single : (refused, wrong) or (refused, wrong, scored), array_like of bool, shape (n_questions,), optional
        A single draw of every question, with the first-pass answer if there was one, as for RI. The repeated questions
        should be a random sample of these questions.
    cluster, weight : array_like, shape (n_questions,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`.

    Returns
    -------
    CorrectedRefusalIndexResult
        All pairs of different draws are used. Every repeated question has the same weight, or with `single` the number
        of questions that it represents.

    Raises
    ------
    TypeError
        If the arguments do not hold truth values.
    ValueError
        If they are not matrices of the same shape, or have fewer than two rows (draws).

    Notes
    -----
    Simulated coverage of the 95% interval is .939 to .954, for a corrected RI of .582, probit slopes of 1, 2, 3 and 6,
    refusal and error rates of .4 and .55 or .74 and .9, and two draws of all of 1,000 questions, of 200 of them or of
    400 of 4,326. If hardly any pair of draws is refused and right (rates of .15 and .90, .16 and .95, .06 and .65, .01
    and .50), it is .976 to .995, and the interval always contains the estimate. `single` reduces the variance by a
    factor of 1.0 to 1.1 at slope 1, 1.2 to 1.4 at 2, 1.4 to 1.9 at 3 and 2.2 to 3.1 at 6.

    If a cell of refusal and error is empty in all pairs of draws, the estimate is the correlation of `single` divided
    by the reliability. It assumes that the noise of refusal and answer is independent, and that first-pass answers are
    like forced ones. The interval does not: its limit is that of the empty cell.

    A bivariate probit model with question effects, fitted to all draws by maximum likelihood, is as precise on the
    repeated draws alone, and two to five times as precise with the single ones. But it treats first-pass answers as
    forced ones, and noise shared by refusal and answer as dependence of the probabilities: if the noise of both has a
    correlation of .6, it finds .75 for a rho of .60 at slope 1, where this estimate finds .60. With all of 2,000
    questions drawn twice, the bias of the estimate is below .02 also if the probabilities have Beta distributions, or
    are often exactly 0 or 1 (`benchmarks/coverage/corrected_index.py`).

    References
    ----------
    .. [1] Spearman, C. (1904). The proof and measurement of association between two things. American Journal of
       Psychology, 15, 72-101. :doi:`10.2307/1412159`
    .. [2] Fieller, E. C. (1954). Some problems in interval estimation. Journal of the Royal Statistical Society B, 16,
       175-185. :doi:`10.1111/j.2517-6161.1954.tb00159.x`
    .. [3] Neyman, J. (1938). Contribution to the theory of sampling human populations. Journal of the American
       Statistical Association, 33, 101-116. :doi:`10.1080/01621459.1938.10503378`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> refused, wrong = (latent + rng.standard_normal((2, 4000)) > 0 for latent in (x, y))
    >>> result = corrected_refusal_index(refused, wrong)
    >>> round(result.uncorrected, 2), round(result.estimate, 2)  # 6/pi asin(0.6 / 2) is 0.58
    (0.28, 0.58)

    With repeated draws of the first 400 questions only:

    >>> scored = np.array([[True], [True]]) & (np.arange(4000) < 400)
    >>> result = corrected_refusal_index(refused, wrong, scored, single=(refused[0], wrong[0]))
    >>> [round(end, 2) for end in (result.estimate, *result.confidence_interval())]
    [0.47, 0.26, 0.7]
    """
    matrices = checked_draws(refused, wrong, scored)
    matrices, design = designed(matrices, cluster, weight)
    counts = question_counts(*matrices)
    repeated = counts[:, 0] >= 2
    sample = TwoPhaseSample.of(repeated, _single_cells(single, repeated, design), design)
    patterns = DrawPatterns.of(counts[repeated], np.ones(np.count_nonzero(repeated), int))
    cells = patterns.pair_cells()
    same_draw = patterns.same_draw_cells()
    means, same_draw_cells = (
        (sample.weights() @ rows if len(rows) else np.zeros(rows.shape[1])) for rows in (cells, same_draw)
    )
    forced_for_all = float(tetrachoric(*same_draw_cells))
    uncorrected, refusals, errors = (float(tetrachoric(*means[columns])) for columns in TABLES)
    reason = empty_margin(*Cells(*means[:4].tolist()).margins) if len(cells) else "no_repeated_questions"
    # With non-empty margins both reliabilities are defined.
    if reason is None and min(refusals, errors) <= 0:
        reason = f"{'refusal' if refusals <= 0 else 'error'}_reliability_not_positive"
    part = None if reason else quotient(cells, sample)
    rho = math.nan
    status: Status = "undefined"
    if part is not None:
        empty = cell_names(means[:4] == 0)
        if empty and not sample.fills_every_cell:
            rho = uncorrected
            status = "boundary"
            reason = f"zero_cell:{empty}"
        else:
            cross = part.cross if empty else uncorrected
            rho, status, reason = _bounded(cross / math.sqrt(refusals * errors))
            if empty:
                status = "boundary"
                reason = f"estimated_from_single_responses:{empty}"
    return _identified(
        CorrectedRefusalIndexResult(
            _defined(spearman(rho)),
            status,
            reason,
            rho=_defined(rho),
            forced_for_all=_defined(spearman(forced_for_all)),
            uncorrected=_defined(spearman(uncorrected)),
            refusal_reliability=_defined(refusals),
            error_reliability=_defined(errors),
            n_repeated=len(cells),
            n=sample.n,
            _quotient=part,
        )
    )


def deterministic_refusal_index(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> CorrectedRefusalIndexResult:
    """Return the corrected RI of a deterministic model, as at temperature 0, which equals RI.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (n_questions,)
        A single draw of every question; `scored` is False where it has no grade.
    cluster, weight : array_like, shape (n_questions,), optional
        As for `corrected_refusal_index`.

    Returns
    -------
    CorrectedRefusalIndexResult
        With the estimate, interval and status of `refusal_index`, and reliabilities of 1.

    Raises
    ------
    TypeError, ValueError
        As for `corrected_refusal_index`.

    References
    ----------
    .. [1] Pan et al. Definition, section "Refusal Index".

    Examples
    --------
    >>> refused = np.repeat([True, True, False, False], [710, 30, 210, 50])
    >>> wrong = np.repeat([True, False, True, False], [710, 30, 210, 50])
    >>> result = deterministic_refusal_index(refused, wrong)
    >>> [round(number, 4) for number in (result.estimate, *result.confidence_interval())]
    [0.4822, 0.3596, 0.5922]
    """
    scored = np.ones_like(refused, bool) if scored is None else scored
    matrices = checked_matrices(*(np.asarray(matrix)[np.newaxis] for matrix in (refused, wrong, scored)))
    matrices, design = designed(matrices, cluster, weight)
    index = refusal_index(tables_of_rows(matrices, design)[0])
    n = int(np.count_nonzero(matrices[2]))
    if index.estimate is None:
        return CorrectedRefusalIndexResult(None, index.status, index.reason, n_repeated=n, n=n)
    sample = TwoPhaseSample.of(matrices[2][0], cell_codes(*matrices)[0], design)
    result = CorrectedRefusalIndexResult(
        index.estimate,
        index.status,
        index.reason,
        rho=index.rho,
        uncorrected=index.estimate,
        refusal_reliability=1.0,
        error_reliability=1.0,
        n_repeated=n,
        n=n,
        _quotient=Quotient.without_noise(sample),
        _index=index,
    )
    return _identified(result)


def joint_corrected_refusal_index(results: Sequence[CorrectedRefusalIndexResult]) -> CorrectedRefusalIndexResult:
    """Estimate a joint corrected Refusal Index from several prompts of a model.

    Parameters
    ----------
    results : sequence of CorrectedRefusalIndexResult
        One result per prompt, from matrices with the same questions as columns.

    Returns
    -------
    CorrectedRefusalIndexResult
        The ratio of weighted means of numerators and denominators, over the prompts with a defined result. The interval
        is for a population of similar prompts: it accounts for variation between prompts beyond chance, and for the
        uncertainty of its estimate from few prompts. Differences between models over the same prompts treat prompts as
        fixed. `forced_for_all` and the reliabilities are unweighted means. The numbers of questions are those of the
        prompt with the most.

    Raises
    ------
    ValueError
        If there are no results, or their numbers of columns differ.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> wrong = y + rng.standard_normal((2, 4000)) > 0
    >>> prompts = [x + rng.standard_normal((2, 4000)) > threshold for threshold in (-1, 0, 1)]
    >>> each = [corrected_refusal_index(refused, wrong) for refused in prompts]
    >>> [round(one.estimate, 2) for one in each], round(joint_corrected_refusal_index(each).estimate, 2)
    ([0.63, 0.63, 0.58], 0.62)
    """
    if not results:
        raise ValueError("results must hold the result of one prompt or more, got none")
    defined = [(result, result._quotient) for result in results if result._quotient is not None]
    if len({part.influence.shape for _, part in defined}) > 1:
        raise ValueError("results must be from matrices with the same questions as columns, got different numbers")
    largest = max(results, key=lambda result: result.n_repeated)
    if len(defined) <= 1:
        return defined[0][0] if defined else largest
    parts = [part for _, part in defined]
    weights = precision_weights(parts)
    part = Quotient.mean(parts, weights)
    rho, status, reason = _bounded(part.cross / part.scale)

    def mean(name: str) -> float | None:
        values = [getattr(result, name) for result, _ in defined]
        return None if None in values else math.fsum(values) / len(values)

    return _identified(
        CorrectedRefusalIndexResult(
            spearman(rho),
            status,
            reason,
            rho=rho,
            forced_for_all=mean("forced_for_all"),
            uncorrected=spearman(part.cross),
            refusal_reliability=mean("refusal_reliability"),
            error_reliability=mean("error_reliability"),
            n_repeated=largest.n_repeated,
            n=largest.n,
            _quotient=part,
            _spread=_between_prompts(parts, weights),
        )
    )


def _between_prompts(parts: Sequence[Quotient], weights: FloatArray) -> Spread | None:
    """Return the variation between prompts in atanh(rho); None if one is at the boundary or has no interval."""
    rhos = np.array([part.cross / part.scale for part in parts])
    if np.abs(rhos).max() >= 1 or not all(np.isfinite(part.influence).all() for part in parts):
        return None
    shares = weights * [part.scale for part in parts]
    shares = shares / shares.sum()
    slopes = [1 / (part.scale * (1 - rho) * (1 + rho)) for part, rho in zip(parts, rhos, strict=True)]
    influence = np.stack([slope * part.linear(rho) for slope, part, rho in zip(slopes, parts, rhos, strict=True)])
    return spread_of(np.arctanh(rhos), shares, influence)


def _single_cells(single: Sequence[ArrayLike] | None, repeated: BoolArray, design: SamplingDesign | None) -> np.ndarray:
    """Return the cell of each question's single draw; if `single` is None, no question has one."""
    if single is None:
        return cell_codes(repeated, repeated, repeated)
    if len(single) not in (2, 3):
        raise ValueError(f"single must be (refused, wrong) or (refused, wrong, scored), got {len(single)} items")
    try:
        matrices = checked_matrices(*(np.asarray(part)[np.newaxis] for part in single))
    except (TypeError, ValueError) as error:
        raise type(error)(f"single: {error}") from error
    if matrices[0].shape[1] != len(repeated):
        raise ValueError(
            f"single must have one value for each of the {len(repeated)} questions, got {matrices[0].shape[1]}; "
            "pass the columns of all questions to both, and mark in scored which draws there are"
        )
    return np.asarray(cell_codes(*(matrices if design is None else design.taking_part(matrices)))[0])


def _identified(result: CorrectedRefusalIndexResult) -> CorrectedRefusalIndexResult:
    """Set the status if a single cluster leaves no interval, or the 95% interval is [-1, 1]."""
    part = result._quotient
    if part is None:
        return result
    if not np.isfinite(part.influence).all():
        return replace(result, status="boundary", reason=ONE_CLUSTER)
    if result.confidence_interval() == (-1, 1):
        return replace(result, status="not_identified", reason=result.reason or "no_value_ruled_out")
    return result


def _bounded(rho: float) -> tuple[float, Status, str | None]:
    """Return rho with its status: limited to [-1, 1], and then at the boundary."""
    if abs(rho) >= 1:
        return math.copysign(1.0, rho), "boundary", "corrected_rho_reaches_one"
    return rho, "ok", None


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def attenuated_refusal_index(refusal_index: ArrayLike, refusal_slope: ArrayLike, error_slope: ArrayLike) -> FloatArray:
    """Return the RI of a model with independent noise, given its corrected RI.

    Parameters
    ----------
    refusal_index : array_like of float
        Corrected RI, in [-1, 1].
    refusal_slope, error_slope : array_like of float
        ``b_r`` and ``b_w``: standard deviation over the questions of the probit of the probability. Non-negative;
        infinite for a deterministic model.

    Returns
    -------
    ndarray
        ``6/pi asin(rho lambda_r lambda_w / 2)`` with ``lambda = b / sqrt(1 + b^2)``.

    Raises
    ------
    ValueError
        If an argument is out of range.

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
        raise ValueError(f"refusal_index must lie in [-1, 1], got {refusal_index!r}; is it a percentage?")
    for name, slope in (("refusal_slope", b_r), ("error_slope", b_w)):
        if not np.all(slope >= 0):
            raise ValueError(f"{name} must not be negative, got {slope.tolist()!r}; its sign belongs to the index")
    attenuation = np.sin(np.arctan(b_r)) * np.sin(np.arctan(b_w))
    return np.asarray(np.arcsin(np.sin(index * math.asin(0.5)) * attenuation) / math.asin(0.5))[()]


# The p-value at this quantile is 1e-15.
MAX_QUANTILE = 8.0
STEPS = 32
HALVINGS = 40
NO_DIFFERENCE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedDifference(Result):
    """The difference of corrected RI between two models, first minus second.

    Attributes
    ----------
    first, second : CorrectedRefusalIndexResult
        Results of both models.
    estimate : float or None
        ``first - second``, in [-2, 2]; None if either is undefined.
    pvalue : float or None
        Two-sided p-value of the hypothesis of no difference: the level at which the interval just reaches 0. None if
        either is undefined or has no interval, as for a single cluster.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the status of an estimate is not ``"ok"``, or the models do not differ on any question.
    reason : str or None
        Why the status is not ``"ok"``: ``"first:"`` or ``"second:"`` followed by that model's reason, or both, joined
        by ``";"``; or ``"constant_difference"``, for example if both models have the same draws.
    n_shared : int
        Number of questions with at least two draws for both models.
    """

    first: CorrectedRefusalIndexResult
    second: CorrectedRefusalIndexResult
    pvalue: float | None = None
    n_shared: int = 0
    _correlation: float = field(default=0.0, repr=False, compare=False)

    @property
    def reliability_pvalue(self) -> float | None:
        """P-value of the hypothesis that both models are equally random, so that their `reliability` is equal.

        Two-sided, from the normal distribution, or Student's t with clusters or weights. None if either is undefined,
        or both are identical, as for two deterministic models.
        """
        parts = self.first._quotient, self.second._quotient
        if (
            self.first.reliability == self.second.reliability
            or parts[0] is None
            or parts[1] is None
            or parts[0].influence.shape != parts[1].influence.shape
        ):
            return None
        error = float(np.linalg.norm(parts[0].influence[1] - parts[1].influence[1]))
        if not 0 < error < math.inf:
            return None
        quantile = (parts[0].scale - parts[1].scale) / error
        return two_sided_pvalue(quantile, _degrees_of_freedom(self.first, self.second))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the square-and-add (MOVER) interval from both models' intervals and the correlation of the estimates.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            In [-2, 2]. Both ends are NaN if there is no p-value, or if the difference is constant, where an interval
            would have width zero.
        """
        normal_quantile(confidence_level)
        if self.pvalue is None or self.reason == "constant_difference":
            return NO_INTERVAL
        quantile = student_quantile(confidence_level, _degrees_of_freedom(self.first, self.second))
        return self.interval_at(quantile)

    def interval_at(self, quantile: float) -> ConfidenceInterval:
        """Return the interval with a given quantile."""
        first, other = (Estimate.of(result, result.interval_at(quantile)) for result in (self.first, self.second))
        low, high = square_and_add(first, other, self._correlation)
        return ConfidenceInterval(max(-2.0, low), min(2.0, high))


def compare_corrected(first: CorrectedRefusalIndexResult, second: CorrectedRefusalIndexResult) -> CorrectedDifference:
    """Compare two models by corrected RI.

    Parameters
    ----------
    first, second : CorrectedRefusalIndexResult
        Results of both models, from matrices with the same questions as columns. For models over different questions,
        pass the columns of both to each, scored where the model was asked; they are then independent.

    Returns
    -------
    CorrectedDifference

    Raises
    ------
    ValueError
        If the numbers of columns differ.

    Notes
    -----
    With two draws of 800 questions, of 200 of 1,000 or of 400 of 4,326, corrected RIs of .582, refusal and error rates
    of .5 and .5, .4 and .55 or .74 and .9, and slopes of 3 and 1 or 6 and 2, the coverage of the interval is .94 to
    .965, paired or not, whereas the test of RI rejects equality in .71 to 1 of the samples
    (`benchmarks/coverage/corrected_difference.py`).

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`
    .. [2] Zou and Donner (2008). :doi:`10.1002/sim.3095`

    Examples
    --------
    >>> from refusal_index.stats import corrected_refusal_index
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> steady, random = ([b * z + rng.standard_normal((2, 4000)) > 0 for z in (x, y)] for b in (3, 1))
    >>> results = [corrected_refusal_index(*draws) for draws in (steady, random)]
    >>> difference = compare_corrected(*results)
    >>> round(results[0].uncorrected - results[1].uncorrected, 2), round(difference.estimate, 2)
    (0.24, -0.01)
    >>> difference.pvalue > 0.5
    True
    """
    parts = first._quotient, second._quotient
    if parts[0] is None or parts[1] is None or first.estimate is None or second.estimate is None:
        return CorrectedDifference(None, "undefined", reasons_of(first, second), first=first, second=second)
    if parts[0].influence.shape != parts[1].influence.shape:
        n_first, other = (part.influence.shape[1] for part in (parts[0], parts[1]))
        raise ValueError(
            f"first and second must be from matrices with the same questions as columns, got {n_first} and {other}; "
            "pass the columns of both, and mark in scored which questions each model was asked"
        )
    estimate = first.estimate - second.estimate
    influence = np.stack([_on_index(result) for result in (first, second)])
    covariance = influence @ influence.T
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    shared = int(np.count_nonzero(parts[0].repeated & parts[1].repeated))
    reason = reasons_of(first, second)
    status: Status = "boundary" if reason else "ok"
    difference = CorrectedDifference(estimate, status, reason, first=first, second=second, n_shared=shared)
    if estimate == 0 and variance <= 1e-14 * covariance.trace():
        return replace(difference, status="boundary", reason="constant_difference", pvalue=1.0, _correlation=1.0)
    if not np.isfinite(covariance).all():
        return replace(difference, status="boundary")
    scale = math.sqrt(covariance[0, 0] * covariance[1, 1])
    difference = replace(difference, _correlation=float(covariance[0, 1] / scale) if scale > 0 else 0.0)

    def holds(quantile: float) -> bool:
        ends = difference.interval_at(quantile)
        return ends.low <= 0 <= ends.high

    # The level at which the interval just reaches 0, found by bisection. Intervals that end at 1 or -1 need not grow
    # with the quantile: the first one that contains 0 is used.
    steps = np.linspace(0, MAX_QUANTILE, STEPS + 1)[1:].tolist()
    high = next((step for step in steps if holds(step)), MAX_QUANTILE)
    low = max(high - MAX_QUANTILE / STEPS, 0.0) if abs(estimate) > NO_DIFFERENCE else 0.0
    for _ in range(HALVINGS if abs(estimate) > NO_DIFFERENCE else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return replace(difference, pvalue=two_sided_pvalue(low, _degrees_of_freedom(first, second)))


def rank_corrected(
    results: Sequence[CorrectedRefusalIndexResult],
    *,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "max-t",
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
) -> Ranking:
    """Rank models by corrected RI, as `rank_runs` does by RI.

    Parameters
    ----------
    results : sequence of CorrectedRefusalIndexResult
        Results of two or more models, from matrices with the same questions as columns.
    confidence_level, adjustment, n_resamples, rng
        As for `rank_runs`.

    Returns
    -------
    Ranking

    Raises
    ------
    ValueError
        If there are fewer than two models, their numbers of columns differ, or another argument is invalid.

    Notes
    -----
    Among eight models with equal corrected RI and slopes from 1 to 8, and 200 of 1,000 questions drawn twice, a false
    difference is found in .06 of the samples by max-t, and in .02 to .04 by Holm.

    References
    ----------
    .. [1] Hothorn et al. (2008). :doi:`10.1002/bimj.200810425`
    .. [2] Holm (1979). https://www.jstor.org/stable/4615733

    Examples
    --------
    >>> from refusal_index.stats import corrected_refusal_index
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.standard_normal((2, 2000))
    >>> wrong = x + rng.standard_normal((2, 2000)) > 0
    >>> scores = [0.7 * x + 0.7 * y, 0.2 * x + 0.98 * y]
    >>> results = [corrected_refusal_index(z + rng.standard_normal((2, 2000)) > 0, wrong) for z in scores]
    >>> [(run.row, run.letters) for run in rank_corrected(results, rng=1).runs]
    [(0, 'a'), (1, 'b')]
    """
    if len(results) < 2:
        raise ValueError(f"results must hold two models or more to rank, got {len(results)}")
    parts = [result._quotient for result in results if result._quotient is not None]
    if len({(part.repeated.size, part.influence.shape) for part in parts}) > 1:
        raise ValueError("results must be from matrices with the same questions as columns, got different numbers")
    n, units = (parts[0].repeated.size, parts[0].influence.shape[1]) if parts else (0, 0)
    undefined = np.full(units, math.nan)
    never = np.zeros(n, bool)
    rows = [undefined if result._quotient is None else _on_index(result) for result in results]
    repeated = [never if result._quotient is None else result._quotient.repeated for result in results]
    freedom = _degrees_of_freedom(*(result for result in results if result.status == "ok"))
    influence = Influence(np.array(rows), np.array(repeated), _degrees_of_freedom=freedom)
    described = [
        RankedRun.of(row, result, result.confidence_interval(confidence_level)) for row, result in enumerate(results)
    ]
    name = "corrected_refusal_index"
    ranking = rank_estimates(name, described, influence, confidence_level, adjustment, n_resamples, rng)
    pairs = pairs_at_boundary(described)
    tested = [(pair, compare_corrected(results[pair[0]], results[pair[1]]).pvalue) for pair in pairs]
    defined = {pair: pvalue for pair, pvalue in tested if pvalue is not None}
    return replace(ranking, boundary_pairs=boundary_pairs(list(defined), list(defined.values())))


def influence_range(result: CorrectedRefusalIndexResult) -> float:
    """Return the range of the influence of questions on corrected RI; NaN if it has none.

    Repeated questions represent several questions each, so their range is added to that of the others.
    """
    if result._quotient is None or result.estimate is None:
        return math.nan
    influence = _on_index(result)
    repeated = result._quotient.repeated
    by_cluster = influence.size != repeated.size  # clusters, not questions
    parts = [influence] if by_cluster else [influence[repeated], influence[~repeated]]
    return float(sum(part.size * np.ptp(part) for part in parts if part.size))


def _on_index(result: CorrectedRefusalIndexResult) -> FloatArray:
    """Return the influence of every question on corrected RI, divided by their number."""
    part = result._quotient
    rho = result.rho
    if part is None or rho is None:
        raise ValueError("an index that is undefined has no influence")
    return part.linear(rho) / part.scale * spearman_slope(rho)


def _degrees_of_freedom(*results: CorrectedRefusalIndexResult) -> float | None:
    parts = [result._quotient.degrees_of_freedom for result in results if result._quotient is not None]
    return min((part for part in parts if part is not None), default=None)
