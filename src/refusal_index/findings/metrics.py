"""Metrics, statements, and the base class of results that can print themselves.

`METRICS` lists all metrics with label, range and direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Any, Literal, Protocol

from refusal_index import entry_points
from refusal_index.data.analysis import Analysis
from refusal_index.errors import listed, shortened, suggestion
from refusal_index.stats.baseline import ratio_weights

INDEX = "refusal_index"
"""RI: the index of one response per question, the number that the paper reports."""

CORRECTED = "corrected_refusal_index"
"""RI estimated for the model's probabilities of refusing and of being wrong, from repeated samples."""


@dataclass(frozen=True)
class Metric:
    """A metric; its description is the sentence of the same name in ``render/en.toml``."""

    name: str
    label: str  # in figures and printed tables
    # low, high: the smallest and the largest value; of a metric with a `setting`, those at its default
    low: float = 0.0
    high: float = 1.0
    lower_is_better: bool = False
    unit: Literal["proportion", "points", "correlation"] = "proportion"
    digits: int = 3  # shown
    setting: Literal["weighted_score_p", "truthfulness_weights"] | None = None  # of the run, on which the range depends
    # the table of a summary in which it has a column: that of the indices and rates, that of wrong answers against
    # refusals, that of refusals as predictions of wrong answers, or that of questions with and without a right answer
    table: Literal["rates", "errors", "refusals", "answerable"] = "rates"

    @property
    def column(self) -> str:
        """The label as the columns of a plain-text table have it.

        >>> METRICS["correct_rate"].column, METRICS["f_score"].column
        ('correct', 'F')
        """
        return self.label if self.label.isupper() else f"{self.label[0].lower()}{self.label[1:]}"

    def range(self, analysis: Analysis) -> tuple[float, float]:
        """Return the smallest and the largest value, given what answers are worth in the scores.

        >>> METRICS["weighted_score"].range(Analysis(weighted_score_p=0.25)), METRICS["refusal_index"].range(Analysis())
        ((-0.25, 0.75), (-1, 1.0))
        """
        if self.setting is None:
            return self.low, self.high
        weights = ratio_weights(analysis.payoffs)[self.name][0]
        return float(min(weights)), float(max(weights))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("correct_rate", "Correct"),
            Metric("refusal_rate", "Refused", lower_is_better=True),
            Metric("correct_given_attempted", "C/A"),
            Metric("f_score", "F"),
            Metric("weighted_score", "Weighted", -1, 0, unit="points", setting="weighted_score_p"),
            Metric("hallucination_rate", "Hallucinated", lower_is_better=True, table="errors"),
            Metric("omniscience_index", "Omniscience", -100, 100, unit="points", digits=1, table="errors"),
            Metric(
                *("truthfulness_score", "Truthfulness", -1, 1),
                unit="points",
                setting="truthfulness_weights",
                table="errors",
            ),
            Metric("error_rate", "Wrong overall", lower_is_better=True),
            Metric("refusal_precision", "Refusal precision", table="refusals"),
            Metric("refusal_recall", "Refusal recall", table="refusals"),
            Metric("over_refusal", "Over-refusal", lower_is_better=True, table="refusals"),
            Metric("refused_unanswerable", "Refused unanswerable", table="answerable"),
            Metric("refused_answerable", "Refused answerable", lower_is_better=True, table="answerable"),
            Metric(INDEX, "RI", -1, unit="correlation"),
            Metric(CORRECTED, "Corrected RI", -1, unit="correlation"),
        )
    }
)
"""Every metric by its name, in the order in which tables show them."""


SHOWN_AS: Mapping[str, str] = MappingProxyType(
    {
        **{metric.label.casefold(): metric.name for metric in METRICS.values()},
        "wrong": "correct_given_attempted",
        "precision": "refusal_precision",
        "recall": "refusal_recall",
        "error rate": "error_rate",
        "unanswerable": "refused_unanswerable",
        "answerable": "refused_answerable",
    }
)
"""Metrics by what screens call them; ``wrong`` is the complement of its metric."""


def unknown_metric(name: object) -> str:
    """Return the message for a metric that is not known, with the one that it may mean.

    >>> unknown_metric("precision")[-33:]
    "did you mean 'refusal_precision'?"
    """
    called = str(name).casefold()
    complement = " at most 0.2 wrong is at least 0.8 of it" if called == "wrong" else ""
    guess = suggestion(SHOWN_AS.get(called, called), METRICS)
    return f"expected metrics from {listed(METRICS)}, got {shortened(name)}{guess}{complement}"


Severity = Literal["conclusion", "scope", "note", "serious"]
"""Conclusion, scope, note, or reason to doubt the result."""


@dataclass(frozen=True)
class Statement:
    """One thing to say about a result."""

    code: str  # stays the same over releases
    severity: Severity = "note"
    values: Mapping[str, Any] = field(default_factory=dict)  # what its sentence needs: unformatted numbers and names


class Rendering(Protocol):
    """Results in words, as tables and as files: registered by the package `render` as the hook ``shown``."""

    def sentence(self, statement: Statement) -> str:
        """Return a statement in words."""

    def estimate_text(self, result: Any) -> str:
        """Return an estimate with its interval."""

    def text_of(self, result: Printable) -> str:
        """Return a result as plain text."""

    def html_of(self, result: Printable) -> str:
        """Return a result as HTML for a notebook."""

    def run_document(self, run: Any) -> dict[str, Any]:
        """Return the results of a run as in `summary.json`."""

    def write_report(self, runs: Sequence[Any], path: Path) -> object:
        """Write the report of runs; raises OSError if it cannot be written."""


def rendering() -> Rendering:
    """Return the functions that render results, which are imported on first use."""
    functions: Rendering = entry_points.hook("shown")
    return functions


class Printable:
    """A result that prints as text, and as tables in a notebook."""

    def __str__(self) -> str:
        return rendering().text_of(self)

    def __repr__(self) -> str:
        first_paragraph = shorten(str(self).split("\n\n")[0], 100, placeholder="...")
        return f"<{type(self).__name__}: {first_paragraph}>"

    def _repr_html_(self) -> str:
        return rendering().html_of(self)
