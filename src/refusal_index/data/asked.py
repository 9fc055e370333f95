"""How much a run asked, which is read from its folder: the outcome table of an interrupted run does not show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from refusal_index.data.rates import completeness, first_draws, further_draws
from refusal_index.data.run_json import Stop


@dataclass(frozen=True)
class Asked:
    """How much was asked under one variant."""

    questions: int = 0
    further_draws: int = 0  # number of draws beyond the first of each question


def count_asked(draws: Mapping[str, int], settings: Mapping[str, Any], about: Mapping[str, Any]) -> Asked:
    """Return how much a run was asked under one variant.

    - `draws`: number of times each question was asked so far, by id; empty if unknown.
    - `settings`, `about`: from the run's folder; a run asks all questions of its dataset unless it stopped.
    """
    stop = Stop.read(about)
    dataset = settings.get("dataset")
    planned = dataset.get("questions") if isinstance(dataset, Mapping) else None
    planned = planned if isinstance(planned, int) else 0
    n_questions = planned if stop is None else stop.asked
    return Asked(max(n_questions, len(draws)), sum(count - 1 for count in draws.values()))


def missing_share(outcomes: pl.DataFrame, requested: Asked) -> float:
    """Return the share of what was asked under one variant that is unscored.

    The larger of the shares among first draws and among further draws, on which corrected RI depends as much.

    >>> row = {"model": "m", "dataset": "d", "variant": "v", "refused": False, "wrong": False, "unscored_reason": None}
    >>> drawn = ("a", 0), ("b", 0), ("a", 1)
    >>> table = pl.DataFrame([row | {"question_id": one, "draw": draw} for one, draw in drawn])
    >>> [missing_share(table, Asked(*asked)) for asked in ((2, 1), (4, 1), (2, 4))]
    [0.0, 0.5, 0.75]
    """
    first = completeness(first_draws(outcomes))
    further = completeness(further_draws(outcomes))
    parts = (
        (first.scored, max(first.asked, requested.questions)),
        (further.scored, max(further.asked, requested.further_draws)),
    )
    return max(((number - scored) / number for scored, number in parts if number), default=0.0)
