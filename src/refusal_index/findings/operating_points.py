"""Ways to refuse side by side: how much each answers, how much of that is wrong, and its utility.

A score's cut, the model's own refusals and answering all are held against each other over the same questions and the
same answers, so that nothing but the choice of what to answer differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.sampling import first_draws, matched_design
from refusal_index.stats import Estimate, SampledTable, compare_metrics, metrics, selective_report

Kind = Literal["score", "refusals", "answer_all"]

AS_METRICS = ("refusal_rate", "correct_given_attempted", "weighted_score")
"""The metrics behind coverage, error rate and utility, in this order."""


@dataclass(frozen=True)
class Worth:
    """What a way to refuse gives, or by how much one exceeds another."""

    coverage: Estimate  # share of the questions answered
    error_rate: Estimate  # share of errors among the answered
    utility: Estimate  # of a question: a right answer is worth 1, a wrong one minus the penalty, a refusal 0


@dataclass(frozen=True)
class OperatingPoint:
    """One way to refuse over the questions that it can be seen on.

    Attributes
    ----------
    kind, variant
        The score's cut, the model's refusals under a variant, or answering all.
    questions
        How many there are.
    worth
        What it gives.
    difference
        What the score's cut gives less this, over the same questions, paired; None of the cut itself, without one, and
        where both answer the same questions.
    same_as_cut
        Whether both answer the same questions.
    """

    kind: Kind
    variant: str | None
    questions: int
    worth: Worth
    difference: Worth | None = None
    same_as_cut: bool = False


def operating_points(
    answers: pl.DataFrame,
    cut: float | None,
    outcomes: Mapping[str | None, pl.DataFrame],
    penalty: float,
    confidence_level: float,
) -> Iterator[OperatingPoint]:
    """Yield the score's cut, where there is one, the refusals of each variant, and answering all.

    - `answers`: columns `question_id`, `confidence` and `wrong`, none null, none of which the cut was chosen on.
    - `cut`: refuses what scores below.
    - `outcomes`: first passes by variant. A question without a grade of its first pass is left out there.
    - `penalty`: price of a wrong answer.
    - `confidence_level`: of every interval.
    """
    refused = pl.lit(None, pl.Boolean) if cut is None else pl.col("confidence") < cut
    rows = answers.select("question_id", "wrong", by_score=refused)
    firsts = {variant: first_draws(table) for variant, table in outcomes.items()}
    sampled = _Sampled(list(firsts.values()), penalty, confidence_level)
    if cut is not None:
        yield OperatingPoint("score", None, rows.height, sampled.worth(rows, "by_score"))
    for variant, first in firsts.items():
        known = first.drop_nulls("refused").select("question_id", "refused")
        yield sampled.point("refusals", variant, rows.join(known, on="question_id", maintain_order="left"))
    if cut != -math.inf:
        yield sampled.point("answer_all", None, rows.with_columns(refused=pl.lit(value=False)))


@dataclass(frozen=True, eq=False)
class _Sampled:
    """How numbers are made: of which tables clusters and weights come, at which penalty and level."""

    tables: Sequence[pl.DataFrame]
    penalty: float
    level: float

    def point(self, kind: Kind, variant: str | None, rows: pl.DataFrame) -> OperatingPoint:
        has_cut = rows["by_score"].null_count() == 0 and not rows.is_empty()
        same = has_cut and bool((rows["by_score"] == rows["refused"]).all())
        difference = self._difference(rows) if has_cut and not same else None
        return OperatingPoint(kind, variant, rows.height, self.worth(rows, "refused"), difference, same)

    def worth(self, rows: pl.DataFrame, name: str) -> Worth:
        """Give what refusing by a column is worth; with clusters or weights the intervals allow for them."""
        refused, wrong, design = rows[name].to_numpy(), rows["wrong"].to_numpy(), self._design(rows)
        if not design:
            found = selective_report(
                (~refused).astype(float), ~wrong, 0.5, penalty=self.penalty, confidence_level=self.level
            )
            return Worth(found.coverage, found.error_rate, found.utility)
        table = SampledTable.from_arrays(refused, wrong, **design)
        every = metrics(table, penalty=_as_weighted(self.penalty), confidence_level=self.level)
        by_name = {one.name: one for one in every}
        rate, right, score = (by_name[one] for one in AS_METRICS)
        return Worth(_times(rate, -1, 1), _times(right, -1, 1), _times(score, 1 + self.penalty))

    def _difference(self, rows: pl.DataFrame) -> Worth:
        wrong = rows["wrong"].to_numpy()
        refused = np.stack([rows["by_score"].to_numpy(), rows["refused"].to_numpy()])
        found = compare_metrics(
            refused, np.stack([wrong, wrong]), penalty=_as_weighted(self.penalty), **self._design(rows)
        )
        rate, right, score = (
            Estimate.of(found[name], found[name].confidence_interval(self.level)) for name in AS_METRICS
        )
        return Worth(_times(rate, -1), _times(right, -1), _times(score, 1 + self.penalty))

    def _design(self, rows: pl.DataFrame) -> dict[str, Any]:
        return matched_design(self.tables, rows.select("question_id"))


def _as_weighted(penalty: float) -> float:
    """Return the penalty of the weighted score that is the utility over one more than its own penalty."""
    return penalty / (1 + penalty)


def _times(found: Estimate, factor: float, shift: float = 0.0) -> Estimate:
    """Return a number with its interval on another scale."""
    ends = sorted(shift + factor * end for end in (found.low, found.high) if end is not None)
    low, high = ends if len(ends) == 2 else (None, None)
    estimate = None if found.estimate is None else shift + factor * found.estimate
    return replace(found, estimate=estimate, low=low, high=high, name="")


@dataclass(frozen=True)
class Halves:
    """Questions by id; none is in both, and questions of one cluster are in the same half."""

    first: frozenset[str]
    second: frozenset[str]


def halves_of(questions: pl.DataFrame, seed: int) -> Halves:
    """Split questions at random, whatever their order; of clusters of different sizes, as near to halves as they allow.

    Raises OutcomeTableError if there is only one cluster, or one question.

    - `questions`: columns `question_id`, each id once, and `cluster`, null where questions are independent.

    >>> questions = pl.DataFrame({"question_id": ["a", "b", "c", "d"], "cluster": ["x", "x", "y", "y"]})
    >>> sorted(map(sorted, (halves_of(questions, seed=0).first, halves_of(questions, seed=0).second)))
    [['a', 'b'], ['c', 'd']]
    """
    clustered = bool(questions["cluster"].null_count() < questions.height)
    unit = questions["cluster" if clustered else "question_id"]
    sizes = unit.value_counts(name="questions").sort(unit.name)
    if sizes.height < 2:
        raise OutcomeTableError(
            f"expected two {'clusters' if clustered else 'questions'} or more to split into halves, got "
            f"{sizes.height}; a cut is chosen on one half and judged on the other"
        )
    order = np.random.default_rng(seed).permutation(sizes.height)
    drawn = sizes[order.tolist()]
    after = drawn["questions"].cum_sum().to_numpy()[:-1]
    taken = int(np.argmin(abs(after - questions.height / 2))) + 1
    first = set(drawn[unit.name][:taken])
    ids = list(zip(questions["question_id"].to_list(), unit.to_list(), strict=True))
    return Halves(
        frozenset(question for question, one in ids if one in first),
        frozenset(question for question, one in ids if one not in first),
    )
