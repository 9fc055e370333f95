"""Questions in two halves: on one something is chosen, on the other it is judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from refusal_index.outcomes.errors import OutcomeTableError


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
