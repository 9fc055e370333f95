"""One number for all variants of a model: the joint estimate, which knows that they share their questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import polars as pl

from refusal_index.outcomes.counts import VariantGroup
from refusal_index.outcomes.draws import INDEX, SINGLE_DRAW, joint_corrected_index
from refusal_index.outcomes.matching import OutcomeMatrix, outcome_matrix
from refusal_index.outcomes.sampling import COLUMNS
from refusal_index.stats import (
    CopulaTestResult,
    Estimate,
    HomogeneityTest,
    JointRefusalIndexResult,
    copula_tests,
    joint_refusal_index,
)

GAUSSIAN = "gaussian"

LARGE_SPREAD = 0.1
"""Standard deviation of the index between prompts above which one number for all of them hides too much.

Two prompts of such a model are .11 apart on average, as far as models that are told apart often are, and one more
prompt may be .2 away from the joint index. A spread below may be beyond doubt in a large run, and matters less than the
usual interval."""


POOLED = ("question_id", "draw", "refused", "wrong", "forced_grade", "question", *COLUMNS)
"""The columns that the joint estimates are made of."""


@dataclass(frozen=True)
class PooledSummary:
    """The Refusal Index of one model on one dataset, jointly over its variants.

    The interval of `index` is that of the mean over prompts like these: it widens with the spread between them.
    """

    # model, dataset: whose it is; None where the table does not say
    model: str | None
    dataset: str | None
    variants: tuple[str, ...]  # names of the variants
    # refusal_index: the joint index of the probabilities; None where a variant has no repeated draws
    refusal_index: Estimate | None
    # single_draw, standard_error: that of single draws, as in `JointRefusalIndexResult`; the error is
    # that of the choice of questions
    single_draw: Estimate
    standard_error: float | None
    between_prompts: Estimate  # standard deviation of the index between prompts, beyond chance
    new_prompt: Estimate  # the joint estimate as one for another prompt like these, with its prediction interval
    left_out: Mapping[str, str]  # variants that could not enter, each with its reason
    homogeneity: HomogeneityTest  # whether the variants share one index
    # how well each family of copulas describes all variants at once, the best fitting first
    copulas: tuple[CopulaTestResult, ...]

    @property
    def index(self) -> Estimate:
        """The index of the probabilities where there are repeated draws, else that of single ones; its name says so."""
        return self.refusal_index or self.single_draw

    @property
    def gaussian(self) -> CopulaTestResult:
        """The fit of the copula that the index is defined by."""
        return next(fit for fit in self.copulas if fit.family == GAUSSIAN)

    def differ_by_chance(self, level: float) -> bool:
        """Whether chance alone may have made the variants differ as they do, or it cannot be said."""
        pvalue = self.homogeneity.pvalue
        return pvalue is None or pvalue >= 1 - level

    def disagree(self, level: float) -> bool:
        """Whether the variants differ by more than chance, and by so much that one number for all hides it."""
        spread = self.between_prompts.estimate
        return spread is not None and spread > LARGE_SPREAD and not self.differ_by_chance(level)


@dataclass(frozen=True, eq=False)
class JointIndex:
    """The joint estimate of a model's variants: its number, what is known of it, and the outcomes it was made of."""

    index: Estimate
    result: JointRefusalIndexResult
    matrix: OutcomeMatrix


def joint_index(tables: Sequence[pl.DataFrame], confidence_level: float) -> JointIndex | None:
    """Estimate one index from all variants of a model on a dataset; None for fewer than two.

    - `tables`: rows of the outcome table, one table a variant.
    - `confidence_level`: of the interval.
    """
    if len(tables) < 2:
        return None
    matrix = outcome_matrix(tables)
    joint = joint_refusal_index(*matrix.arrays, **matrix.design)
    found = replace(Estimate.of(joint, joint.confidence_interval(confidence_level)), name=SINGLE_DRAW)
    return JointIndex(found, joint, matrix)


def overall_index(own: Sequence[Estimate], joint: Estimate | None) -> Estimate:
    """Return the one number of a model on a dataset: `joint` over its variants, or `own` where there is only one."""
    return own[0] if joint is None else joint


def pool(
    groups: Iterable[VariantGroup], confidence_level: float, *, always_alike: bool = False
) -> Iterator[PooledSummary]:
    """Yield the joint estimate of every model and dataset with at least two variants.

    - `groups`: with the columns `POOLED` at least; those of a model and dataset follow each other.
    - `always_alike`: whether the models always reply the same, so that a single draw shows their probabilities.
    """
    for (model, dataset), members in groupby(groups, key=lambda group: (group.model, group.dataset)):
        found = _joint_indices(members, confidence_level)
        if found is not None:
            names, joint, corrected = found
            if always_alike and corrected is None:
                corrected = replace(joint.index, name=INDEX)
            yield replace(_pooled(names, joint, corrected, confidence_level), model=model, dataset=dataset)


def _joint_indices(
    groups: Iterable[VariantGroup], confidence_level: float
) -> tuple[tuple[str, ...], JointIndex, Estimate | None] | None:
    """Return names of variants, their joint index, and that of the probabilities; None for fewer than two.

    What comes after it needs no table: all of them together are held here and nowhere else.
    """
    variants = tuple(groups)
    tables = [group.outcomes for group in variants]
    joint = joint_index(tables, confidence_level)
    if joint is None:
        return None
    return tuple(str(group.variant) for group in variants), joint, joint_corrected_index(tables, confidence_level)


def _pooled(names: tuple[str, ...], joint: JointIndex, corrected: Estimate | None, level: float) -> PooledSummary:
    result, between = joint.result, joint.result.between_prompts
    new_prompt = None if between.estimate is None else result.estimate
    return PooledSummary(
        model=None,
        dataset=None,
        variants=names,
        refusal_index=corrected,
        single_draw=joint.index,
        standard_error=result.standard_error,
        between_prompts=Estimate.of(between, between.confidence_interval(level)),
        new_prompt=Estimate(
            new_prompt, *result.prediction_interval(level).or_none(), status=between.status, reason=between.reason
        ),
        left_out={names[row]: reason for row, reason in result.left_out.items()},
        homogeneity=result.homogeneity,
        copulas=copula_tests(*joint.matrix.arrays),
    )
