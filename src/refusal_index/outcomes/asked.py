"""How much a run was asked, as its folder says it: the outcomes of one that was killed do not know what they lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from refusal_index.outcomes.counts import completeness
from refusal_index.outcomes.matching import first_draws, further_draws
from refusal_index.outcomes.stopping import Stop


@dataclass(frozen=True)
class Asked:
    """How much was asked under a variant."""

    questions: int = 0
    further_draws: int = 0  # of questions that are drawn repeatedly, the first draw of each not counted


def asked_under(draws: Mapping[str, int], settings: Mapping[str, Any], about: Mapping[str, Any]) -> Asked:
    """Return how much a run was asked under one of its variants.

    - `draws`: how often each question was asked by now, by its id; empty where nobody knows.
    - `settings`, `about`: what the run's folder says: a run is of all questions of its dataset, unless it stopped.
    """
    stop, dataset = Stop.read(about), settings.get("dataset")
    planned = dataset.get("questions") if isinstance(dataset, Mapping) else None
    planned = planned if isinstance(planned, int) else 0
    known = planned if stop is None else stop.asked
    return Asked(max(known, len(draws)), sum(count - 1 for count in draws.values()))


def missing_share(outcomes: pl.DataFrame, asked: Asked) -> float:
    """Return the share of what was asked under a variant that has no grade.

    The larger one of two: of the questions by their first draws, and of the further draws, which the corrected index
    rests on as much.

    >>> row = {"model": "m", "dataset": "d", "variant": "v", "refused": False, "wrong": False, "unscored_reason": None}
    >>> drawn = ("a", 0), ("b", 0), ("a", 1)
    >>> table = pl.DataFrame([row | {"question_id": one, "draw": draw} for one, draw in drawn])
    >>> [missing_share(table, Asked(*asked)) for asked in ((2, 1), (4, 1), (2, 4))]
    [0.0, 0.5, 0.75]
    """
    first, further = completeness(first_draws(outcomes)), completeness(further_draws(outcomes))
    parts = (
        (first.scored, max(first.asked, asked.questions)),
        (further.scored, max(further.asked, asked.further_draws)),
    )
    return max(((number - scored) / number for scored, number in parts if number), default=0.0)
