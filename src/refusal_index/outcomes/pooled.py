"""One number for all variants of a model: the joint estimate, which knows that they share their questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import polars as pl

from refusal_index.outcomes.counts import VariantGroup
from refusal_index.outcomes.draws import CORRECTED, INDEX, joint_corrected_index, repeats_ri
from refusal_index.outcomes.matching import OutcomeMatrix, outcome_matrix
from refusal_index.outcomes.sampling import COLUMNS
from refusal_index.stats import (
    Estimate,
    HomogeneityTest,
    JointRefusalIndexResult,
    joint_refusal_index,
)

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

    The intervals are those of the mean over prompts like these: they widen with the spread between them.
    """

    # model, dataset: whose it is; None where the table does not say
    model: str | None
    dataset: str | None
    variants: tuple[str, ...]  # names of the variants
    # refusal_index, standard_error: the joint RI, as in `JointRefusalIndexResult`; the error is that of the choice of
    # questions
    refusal_index: Estimate
    standard_error: float | None
    corrected_refusal_index: Estimate | None  # the joint corrected index; None where a variant has no repeated draws
    between_prompts: Estimate  # standard deviation of the index between prompts, beyond chance
    new_prompt: Estimate  # the joint estimate as one for another prompt like these, with its prediction interval
    left_out: Mapping[str, str]  # variants that could not enter, each with its reason
    homogeneity: HomogeneityTest  # whether the variants share one index

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
    found = replace(Estimate.of(joint, joint.confidence_interval(confidence_level)), name=INDEX)
    return JointIndex(found, joint, matrix)


def pool(
    groups: Iterable[VariantGroup], confidence_level: float, *, is_deterministic: bool = False
) -> Iterator[PooledSummary]:
    """Yield the joint estimate of every model and dataset with at least two variants.

    - `groups`: with the columns `POOLED` at least; those of a model and dataset follow each other.
    - `is_deterministic`: whether the models were asked at temperature 0, where the corrected index repeats RI.
    """
    for (model, dataset), members in groupby(groups, key=lambda group: (group.model, group.dataset)):
        found = _joint_indices(members, confidence_level, is_deterministic)
        if found is not None:
            names, joint, corrected = found
            yield replace(_pooled(names, joint, corrected, confidence_level), model=model, dataset=dataset)


def _joint_indices(
    groups: Iterable[VariantGroup], confidence_level: float, is_deterministic: bool
) -> tuple[tuple[str, ...], JointIndex, Estimate | None] | None:
    """Return names of variants, their joint index, and the corrected one; None for fewer than two.

    What comes after it needs no table: all of them together are held here and nowhere else.
    """
    variants = tuple(groups)
    tables = [group.outcomes for group in variants]
    joint = joint_index(tables, confidence_level)
    if joint is None:
        return None
    if repeats_ri(tables, is_deterministic=is_deterministic):
        corrected: Estimate | None = replace(joint.index, name=CORRECTED)
    else:
        corrected = joint_corrected_index(tables, confidence_level, is_deterministic=is_deterministic)
    return tuple(str(group.variant) for group in variants), joint, corrected


def _pooled(names: tuple[str, ...], joint: JointIndex, corrected: Estimate | None, level: float) -> PooledSummary:
    result, between = joint.result, joint.result.between_prompts
    new_prompt = None if between.estimate is None else result.estimate
    return PooledSummary(
        model=None,
        dataset=None,
        variants=names,
        refusal_index=joint.index,
        standard_error=result.standard_error,
        corrected_refusal_index=corrected,
        between_prompts=Estimate.of(between, between.confidence_interval(level)),
        new_prompt=Estimate(
            new_prompt, *result.prediction_interval(level).or_none(), status=between.status, reason=between.reason
        ),
        left_out={names[row]: reason for row, reason in result.left_out.items()},
        homogeneity=result.homogeneity,
    )
