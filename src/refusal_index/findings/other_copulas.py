"""A significant difference of RI between runs that refuse unequally often, under other copulas than the Gaussian."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refusal_index import stats
from refusal_index.data.analysis import Analysis

DIFFERENT_CAUTION = 0.15
"""Difference of refusal rates from which on a difference of RI may come from the copula."""


def differ_in_caution(first_rate: float, second_rate: float) -> bool:
    """Whether two refusal rates differ by so much that a difference of RI depends on the copula.

    >>> differ_in_caution(0.6, 0.45), differ_in_caution(0.6, 0.5)
    (True, False)
    """
    return round(abs(first_rate - second_rate), 9) >= DIFFERENT_CAUTION


@dataclass(frozen=True)
class UnderOtherCopulas:
    """Spearman's correlation of both runs under other copulas."""

    variant: str  # the prompt, or what the joint RI rests on
    # mean refusal rates of the prompts
    first_rate: float
    second_rate: float
    differences: tuple[stats.CopulaDifference, ...]
    # by family, adjusted as that of RI; None where a run has no standard error
    pvalues: Mapping[str, float | None]

    def not_significant(self, alpha: float) -> dict[str, float | None]:
        """Return the p-values that are not significant, by family."""
        return {family: pvalue for family, pvalue in self.pvalues.items() if pvalue is None or pvalue >= alpha}

    def to_document(self, analysis: Analysis) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary."""
        differences = {}
        for difference in self.differences:
            low, high = difference.confidence_interval(analysis.confidence_level).or_none()
            differences[difference.family] = {
                "first": difference.first,
                "second": difference.second,
                "estimate": difference.estimate,
                "low": low,
                "high": high,
                "pvalue": difference.pvalue,
                "pvalue_adjusted": self.pvalues[difference.family],
                "status": difference.status,
                "reason": difference.reason,
            }
        rates = {"first": self.first_rate, "second": self.second_rate}
        return {"variant": self.variant, "refusal_rates": rates, "copulas": differences}
