"""How results are computed: one object from options or arguments to every number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from refusal_index.data.outcome_table import OWN_COLUMNS, Sampling
from refusal_index.errors import RefusalIndexError, suggestion
from refusal_index.stats import Adjustment
from refusal_index.stats.baseline import DEFAULT_PAYOFFS, Payoffs, Weights, checked_payoffs

DEFAULT_CONFIDENCE_LEVEL = 0.95


class AnalysisError(RefusalIndexError, ValueError):
    """An option of an analysis that is unknown or out of range; the message names it."""


PAYOFFS = ("weighted_score_p", "truthfulness_weights")
"""The adjustable payoffs of scores, by their key in a run's folder."""


@dataclass(frozen=True)
class Analysis:
    """How results are computed. Made once, from options or arguments, and handed on whole.

    Examples
    --------
    >>> Analysis(weighted_score_p=0.2).payoffs.weighted_score_p
    0.2
    >>> Analysis().with_recorded([{"weighted_score_p": 0.5}]).payoffs.weighted_score_p
    0.5
    """

    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL  # of every interval
    # weighted_score_p, truthfulness_weights: p of the weighted score c - p(1 - r), and the weights of the truthfulness
    # score; None for those that the folders of the runs record, else the defaults
    weighted_score_p: float | None = None
    truthfulness_weights: Weights | None = None
    sampling: Sampling = OWN_COLUMNS  # columns with the cluster and the weight of each question
    variant: str | None = None  # the only variant to compare; None for all shared variants
    metric: str = "refusal_index"  # what to rank by
    adjustment: Adjustment = "max-t"  # correction for multiple comparisons in a ranking
    seed: int = 0  # of the simulation for max-t

    def __post_init__(self) -> None:
        if not 0 < self.confidence_level < 1:
            raise AnalysisError(f"confidence_level: expected a number between 0 and 1, got {self.confidence_level}")
        try:
            _ = self.payoffs
        except (TypeError, ValueError) as error:
            raise AnalysisError(str(error)) from error

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Analysis:
        """Return the analysis that keyword arguments describe; raises AnalysisError for an unknown one."""
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                guess = suggestion(name, names)
                raise AnalysisError(f"{name}: expected one of {', '.join(names)}, got {name!r}{guess}")
        return cls(**options)

    @property
    def payoffs(self) -> Payoffs:
        """What answers are worth in the weighted score and the truthfulness score.

        Raises ValueError if one of them is out of range.
        """
        return checked_payoffs(
            DEFAULT_PAYOFFS.weighted_score_p if self.weighted_score_p is None else self.weighted_score_p,
            DEFAULT_PAYOFFS.truthfulness if self.truthfulness_weights is None else self.truthfulness_weights,
        )

    def with_recorded(self, abouts: Iterable[Mapping[str, Any]]) -> Analysis:
        """Return it with the payoffs that are not given taken from the folders of some runs, where these agree.

        - `abouts`: what each folder records about its run; those that name no payoffs count for nothing.
        """
        recorded = recorded_payoffs(abouts)
        missing = {name: values[0] for name, values in recorded.items() if getattr(self, name) is None}
        agreed = {name: value for name, value in missing.items() if all(other == value for other in recorded[name])}
        return replace(self, **agreed)

    def different_payoffs(self, abouts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """Return the payoffs that are not given and in which the folders of some runs differ, by name."""
        recorded = recorded_payoffs(abouts)
        return {
            name: values
            for name, values in recorded.items()
            if getattr(self, name) is None and any(value != values[0] for value in values)
        }


DEFAULT_ANALYSIS = Analysis()


def recorded_payoffs(abouts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the payoffs that the folders of some runs record, by name; none for a name that no folder records."""
    folders = list(abouts)
    by_name = {name: [_plain(about[name]) for about in folders if name in about] for name in PAYOFFS}
    return {name: values for name, values in by_name.items() if values}


def _plain(value: Any) -> Any:
    """Return the weights of a JSON document as a tuple, like those of options."""
    return tuple(value) if isinstance(value, list) else value
