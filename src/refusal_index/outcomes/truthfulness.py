"""The weights of the truthfulness score, as they are given."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple


class TruthfulnessWeights(NamedTuple):
    """What the truthfulness score gives for a right answer and for a refusal, and takes for a wrong answer.

    The defaults are those of `refusal_index.stats.TRUTHFULNESS_WEIGHTS`; they stand here too because settings are read
    without the statistics.
    """

    right: float = 1.0
    refused: float = 0.0
    wrong: float = 1.0

    @classmethod
    def parse(cls, given: Any) -> TruthfulnessWeights:
        """Read text such as ``"1,0,1"``, or three numbers; raises ValueError if they are no weights.

        >>> print(TruthfulnessWeights.parse("1,0.25,2"))
        1,0.25,2
        """
        parts = given.split(",") if isinstance(given, str) else given
        weights = [float(part) for part in parts] if isinstance(parts, Iterable) else []
        if len(weights) != 3 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError("expected three numbers from 0, not all 0")
        return cls(*weights)

    def __str__(self) -> str:
        return ",".join(f"{weight:g}" for weight in self)
