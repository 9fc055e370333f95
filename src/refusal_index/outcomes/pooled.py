"""One number for all variants of a model: the joint estimate, which knows that they share their questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from refusal_index.outcomes.counts import VariantGroup
from refusal_index.outcomes.matching import OutcomeMatrix, outcome_matrix
from refusal_index.stats import (
    CopulaTestResult,
    Estimate,
    HomogeneityTest,
    JointRefusalIndexResult,
    copula_tests,
    joint_refusal_index,
)

GAUSSIAN = "gaussian"


@dataclass(frozen=True)
class PooledSummary:
    """The Refusal Index of one model on one dataset, jointly over its variants."""

    # model, dataset: whose it is; None where the table does not say
    model: str | None
    dataset: str | None
    variants: tuple[str, ...]  # names of the variants
    # index, standard_error: the joint estimate, as in `refusal_index.stats.JointRefusalIndexResult`
    index: Estimate
    standard_error: float | None
    left_out: Mapping[str, str]  # variants that could not enter, each with its reason
    homogeneity: HomogeneityTest  # whether the variants share one index
    # how well each family of copulas describes all variants at once, the best fitting first
    copulas: tuple[CopulaTestResult, ...]

    @property
    def gaussian(self) -> CopulaTestResult:
        """The fit of the copula that the index is defined by."""
        return next(fit for fit in self.copulas if fit.family == GAUSSIAN)


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
    return JointIndex(Estimate.of(joint, joint.confidence_interval(confidence_level)), joint, matrix)


def overall_index(own: Sequence[Estimate], joint: Estimate | None) -> Estimate:
    """Return the one number of a model on a dataset: `joint` over its variants, or `own` where there is only one."""
    return own[0] if joint is None else joint


def pool(groups: Sequence[VariantGroup], confidence_level: float) -> Iterator[PooledSummary]:
    """Yield the joint estimate of every model and dataset with at least two variants."""
    for (model, dataset), members in groupby(groups, key=lambda group: (group.model, group.dataset)):
        variants = tuple(members)
        joint = joint_index([group.outcomes for group in variants], confidence_level)
        if joint is not None:
            yield _pooled(model, dataset, tuple(str(group.variant) for group in variants), joint)


def _pooled(model: str | None, dataset: str | None, names: tuple[str, ...], joint: JointIndex) -> PooledSummary:
    result = joint.result
    return PooledSummary(
        model=model,
        dataset=dataset,
        variants=names,
        index=joint.index,
        standard_error=result.standard_error,
        left_out={names[row]: reason for row, reason in result.left_out.items()},
        homogeneity=result.homogeneity,
        copulas=copula_tests(*joint.matrix.arrays),
    )
