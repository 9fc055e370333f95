"""Results of repeated samples: the corrected Refusal Index, and one joint estimate over all variants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index import stats
from refusal_index.data import rates
from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome_table import SAMPLING_COLUMNS
from refusal_index.findings.metrics import CORRECTED, INDEX

NO_REPEATED_QUESTIONS = "no_repeated_questions"

SEED = 0
"""Seed of the resamples behind the intervals: the same outcomes give the same summary."""


@dataclass(frozen=True)
class DrawsSummary:
    """Results of the repeated draws of one variant.

    From RI, `forced_for_all` and `uncorrected` lead to the corrected index, one change at a time. All are weighted to
    stand for all questions.
    """

    questions: int  # questions with at least two draws in which both passes have a grade
    draws: int  # the most draws of any of them
    # forced_for_all: of a single draw, the answer to every question being a forced one
    forced_for_all: float | None
    # uncorrected: the same, with the refusal of one draw and the answer of another, which share no chance
    uncorrected: float | None
    # corrected_refusal_index: sampling noise removed as well; the first draws of all questions enter
    corrected_refusal_index: stats.Estimate
    # refusal_reliability, error_reliability: tetrachoric correlation of two draws of the refusal, and of the error
    refusal_reliability: float | None
    error_reliability: float | None
    # rank correlation of the observed frequencies: noise and ties included, so another number than the index
    mid_rank_spearman: stats.Estimate
    # how well the share of the further draws that answered, P(Answering), tells whether the first draw's answer was
    # right
    p_answering_auroc: stats.Estimate


def draws_summary(outcomes: pl.DataFrame, analysis: Analysis, *, is_deterministic: bool = False) -> DrawsSummary | None:
    """Summarise the repeated draws of one variant; None if no question was drawn twice.

    - `is_deterministic`: as for `corrected_indices`.
    """
    matrix = rates.draw_matrix(outcomes)
    if len(matrix.refused) < 2:
        return None
    (drawn_outcomes,) = rates.drawn_outcomes([outcomes])
    corrected = _corrected(drawn_outcomes, is_deterministic)
    spearman = stats.mid_rank_spearman(*matrix.arrays)
    area = stats.auroc(*p_answering(matrix))
    return DrawsSummary(
        questions=int(np.count_nonzero(matrix.scored.sum(axis=0) > 1)),
        draws=int(matrix.scored.sum(axis=0).max()),
        forced_for_all=corrected.forced_for_all,
        uncorrected=corrected.uncorrected,
        corrected_refusal_index=_named(corrected, analysis),
        refusal_reliability=corrected.refusal_reliability,
        error_reliability=corrected.error_reliability,
        mid_rank_spearman=stats.Estimate.of(
            spearman, spearman.confidence_interval(analysis.confidence_level, rng=SEED)
        ),
        p_answering_auroc=stats.Estimate.of(area, area.confidence_interval(analysis.confidence_level)),
    )


def corrected_indices(
    tables: Sequence[pl.DataFrame], is_deterministic: Sequence[bool] | None = None
) -> tuple[stats.CorrectedRefusalIndexResult, ...]:
    """Estimate the corrected index of several variants, over the questions they share.

    It is undefined as ``"no_repeated_questions"`` where no question was drawn twice, except where `is_deterministic`.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    - `is_deterministic`: which models were asked at temperature 0. Their corrected index repeats RI, unless repeated
      draws of a question differ: hosted models are not exactly deterministic.
    """
    at_zero = is_deterministic or [False] * len(tables)
    return tuple(
        _corrected(drawn_outcomes, same)
        for drawn_outcomes, same in zip(rates.drawn_outcomes(tables), at_zero, strict=True)
    )


def is_defined(result: stats.CorrectedRefusalIndexResult) -> bool:
    """Whether the corrected index can be estimated."""
    return result.reason != NO_REPEATED_QUESTIONS


def _corrected(drawn_outcomes: rates.DrawnOutcomes, is_deterministic: bool) -> stats.CorrectedRefusalIndexResult:
    single = drawn_outcomes.single
    repeated = drawn_outcomes.repeated.arrays
    if is_deterministic and not _differ([drawn_outcomes.repeated]):
        return stats.deterministic_refusal_index(*(row[0] for row in single.arrays), **single.design)
    if len(repeated[0]) < 2:
        empty = np.zeros((2, len(single.question_ids)), bool)
        repeated = empty, empty, empty  # no question was drawn twice
    return stats.corrected_refusal_index(*repeated, single=[row[0] for row in single.arrays], **single.design)


def repeats_ri(tables: Sequence[pl.DataFrame], *, is_deterministic: bool) -> bool:
    """Whether the corrected index is RI: of models at temperature 0 of which no two draws of a question differ.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    """
    return is_deterministic and not _differ(rates.draw_matrices(tables))


def _differ(repeated: Sequence[rates.OutcomeMatrix]) -> bool:
    return any(
        bool(((part & matrix.scored).any(axis=0) & (~part & matrix.scored).any(axis=0)).any())
        for matrix in repeated
        for part in (matrix.refused, matrix.wrong)
    )


def _named(result: stats.CorrectedRefusalIndexResult, analysis: Analysis) -> stats.Estimate:
    return replace(stats.Estimate.of(result, result.confidence_interval(analysis.confidence_level)), name=CORRECTED)


def usable_questions(matrix: rates.OutcomeMatrix) -> NDArray[np.bool_]:
    """Return which questions have a first and a further draw, shape (n,)."""
    return np.asarray(matrix.scored[0] & matrix.scored[1:].any(axis=0))


def p_answering(matrix: rates.OutcomeMatrix) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """P(Answering) of every question with a first and a further draw, and whether its first forced answer was right.

    The first draw is left out of the share, so that a question's chance does not enter on both sides.
    """
    usable = usable_questions(matrix)
    scored = matrix.scored[1:, usable]
    refused = matrix.refused[1:, usable]
    share = (scored & ~refused).sum(axis=0) / scored.sum(axis=0)
    return share, ~matrix.wrong[0, usable]


def joined_p_answering(drawn: pl.DataFrame, graded: pl.DataFrame) -> pl.DataFrame:
    """P(Answering) from a first pass alone, with the right and wrong answers of another run.

    The first draw is left out of the share: with the same seed it may be the reply that the other run graded. Raises
    OutcomeTableError if two different questions share an id.

    - `drawn`: rows of one model, dataset and variant, with several draws of the first pass.
    - `graded`: rows of the same model, dataset and variant, with both passes; its first draws count.
    - returned: columns ``question_id``, ``share`` and ``right``, for the questions that both runs have.

    >>> named = [pl.lit("a").alias(name) for name in ("model", "dataset", "variant", "question_id", "question")]
    >>> drawn = pl.DataFrame({"draw": [0, 1, 2], "refused": [True, True, False]}).with_columns(named)
    >>> graded = pl.DataFrame({"draw": [0], "refused": [True], "wrong": [False]}).with_columns(named)
    >>> joined_p_answering(drawn, graded).rows()
    [('a', 0.5, True)]
    """
    rates.check_texts([drawn, graded])
    further = rates.further_draws(drawn).drop_nulls("refused")
    shares = further.group_by("question_id", maintain_order=True).agg(share=1 - pl.col("refused").mean())
    answers = rates.first_draws(graded).drop_nulls(["refused", "wrong"]).select("question_id", right=~pl.col("wrong"))
    return shares.join(answers, on="question_id", how="inner", maintain_order="left")


TWO_PROMPTS = 2

LARGE_SPREAD = 0.1
"""Standard deviation of the index between prompts above which one number for all of them hides too much.

Two prompts of such a model are .11 apart on average, as far as models that are told apart often are, and one more
prompt may be .2 away from the joint index. A spread below may be beyond doubt in a large run, and matters less than the
usual interval."""


POOLED = ("question_id", "draw", "refused", "wrong", "forced_grade", "question", *SAMPLING_COLUMNS)
"""Columns needed for joint estimates."""


@dataclass(frozen=True)
class PooledSummary:
    """The Refusal Index of one model on one dataset, jointly over its variants.

    The intervals are those of the mean over prompts like these: they widen with the spread between them.
    """

    # model, dataset: whose it is; None where the table does not say
    model: str | None
    dataset: str | None
    variants: tuple[str, ...]  # names of the variants
    # refusal_index, standard_error: the joint RI, as in `JointRefusalIndexResult`; the error is that of the choice of
    # questions
    refusal_index: stats.Estimate
    standard_error: float | None
    # corrected_refusal_index: the joint corrected index; None where a variant has no repeated draws
    corrected_refusal_index: stats.Estimate | None
    between_prompts: stats.Estimate  # standard deviation of the index between prompts, beyond chance
    new_prompt: stats.Estimate  # the joint estimate as one for another prompt like these, with its prediction interval
    these_prompts: stats.Estimate  # the joint estimate as one for these prompts only, with its interval
    two_prompts: bool  # whether the interval of RI includes variation between prompts that is estimated from two
    left_out: Mapping[str, str]  # variants that could not enter, each with its reason
    homogeneity: stats.HomogeneityTest  # whether the variants share one index

    def differ_by_chance(self, analysis: Analysis) -> bool:
        """Whether the variants differ within sampling error, or the test is undefined."""
        pvalue = self.homogeneity.pvalue
        return pvalue is None or pvalue >= 1 - analysis.confidence_level

    def disagree(self, analysis: Analysis) -> bool:
        """Whether the variants differ significantly, and too much to be summarised by one number."""
        spread = self.between_prompts.estimate
        return spread is not None and spread > LARGE_SPREAD and not self.differ_by_chance(analysis)


def has_two_prompts(result: stats.JointRefusalIndexResult) -> bool:
    """Whether the interval of RI includes variation between prompts that is estimated from two of them."""
    n_prompts = len(result.variants) - len(result.left_out)
    return n_prompts == TWO_PROMPTS and bool(result.between_prompts.estimate)


def joint_index(
    tables: Sequence[pl.DataFrame], analysis: Analysis
) -> tuple[stats.Estimate, stats.JointRefusalIndexResult] | None:
    """Estimate one index from all variants of a model on a dataset; None for fewer than two.

    - `tables`: rows of the outcome table, one table a variant.
    """
    if len(tables) < 2:
        return None
    matrix = rates.outcome_matrix(tables)
    joint = stats.joint_refusal_index(*matrix.arrays, **matrix.design)
    return replace(stats.Estimate.of(joint, joint.confidence_interval(analysis.confidence_level)), name=INDEX), joint


def pool(
    groups: Iterable[rates.VariantGroup], analysis: Analysis, *, is_deterministic: bool = False
) -> Iterator[PooledSummary]:
    """Yield the joint estimate of every model and dataset with at least two variants.

    - `groups`: with the columns `POOLED` at least; those of a model and dataset follow each other.
    - `is_deterministic`: whether the models were asked at temperature 0, where the corrected index repeats RI.
    """
    for _, members in groupby(groups, key=lambda group: (group.model, group.dataset)):
        pooled = _pooled(list(members), analysis, is_deterministic)
        if pooled is not None:
            yield pooled


def _pooled(groups: list[rates.VariantGroup], analysis: Analysis, is_deterministic: bool) -> PooledSummary | None:
    """Return the joint estimate of several variants; None for fewer than two."""
    tables = [group.outcomes for group in groups]
    joint = joint_index(tables, analysis)
    if joint is None:
        return None
    index, result = joint
    corrected: stats.Estimate | None = None
    if repeats_ri(tables, is_deterministic=is_deterministic):
        corrected = replace(index, name=CORRECTED)
    elif is_deterministic or not any(map(rates.has_single_draw, tables)):
        indices = corrected_indices(tables, [is_deterministic] * len(tables))
        if all(map(is_defined, indices)):
            corrected = _named(stats.joint_corrected_refusal_index(indices), analysis)
    between = result.between_prompts
    new = (
        None if between.estimate is None else result.estimate,
        *result.prediction_interval(analysis.confidence_level).or_none(),
    )
    names = tuple(str(group.variant) for group in groups)
    return PooledSummary(
        groups[0].model,
        groups[0].dataset,
        variants=names,
        refusal_index=index,
        standard_error=result.standard_error,
        corrected_refusal_index=corrected,
        between_prompts=stats.Estimate.of(between, between.confidence_interval(analysis.confidence_level)),
        new_prompt=stats.Estimate(*new, status=between.status, reason=between.reason),
        these_prompts=stats.Estimate.of(result, result.confidence_interval(analysis.confidence_level, prompts="fixed")),
        two_prompts=has_two_prompts(result),
        left_out={names[row]: reason for row, reason in result.left_out.items()},
        homogeneity=result.homogeneity,
    )
