"""How much a run was asked and lacks; its folder knows the first better than the outcomes of one that was killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from refusal_index.outcomes.counts import Completeness, completeness
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
    """Return the share of what was asked under a variant that has no grade, as `larger_share` has it.

    >>> row = {"model": "m", "dataset": "d", "variant": "v", "refused": False, "wrong": False, "unscored_reason": None}
    >>> drawn = ("a", 0), ("b", 0), ("a", 1)
    >>> table = pl.DataFrame([row | {"question_id": one, "draw": draw} for one, draw in drawn])
    >>> [missing_share(table, Asked(*asked)) for asked in ((2, 1), (4, 1), (2, 4))]
    [0.0, 0.5, 0.75]
    """
    first, further = completeness(first_draws(outcomes)), completeness(further_draws(outcomes))
    return larger_share(first, further, asked) or 0.0


NOTHING_KNOWN = Asked()


def larger_share(first: Completeness, further: Completeness | None, asked: Asked = NOTHING_KNOWN) -> float | None:
    """Return the larger one of two shares without a grade; None where nothing was asked.

    That of the questions, by their first draws, and that of the further draws, which the index of the probabilities
    rests on as much.

    - `first`, `further`: how much of both could be scored, the last None where there are none.
    - `asked`: how much was asked, where that is known to be more.
    """
    parts = [(first.scored, max(first.asked, asked.questions))]
    if further is not None:
        parts.append((further.scored, max(further.asked, asked.further_draws)))
    return max(((number - scored) / number for scored, number in parts if number), default=None)
