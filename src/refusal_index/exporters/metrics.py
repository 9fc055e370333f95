"""What each metric is, for formats that ask: its title, its range, and which end of it is the better one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refusal_index.exporters.numbers import finite


@dataclass(frozen=True)
class Described:
    """What is known of one metric."""

    title: str
    low: float = 0.0
    high: float = 1.0
    lower_is_better: bool = False
    unit: str = "proportion"


INDEX = "How closely refusals follow what the model does not know: the rank correlation of refusals and errors"

METRICS = {
    "correct_rate": Described("Share of all questions answered right"),
    "refusal_rate": Described("Share of all questions refused; by itself neither end is good", lower_is_better=True),
    "correct_given_attempted": Described("Share of right answers among the questions attempted"),
    "f_score": Described("Harmonic mean of the correct rate and of the share right among attempted"),
    "weighted_score": Described("Right answers less the penalty times the wrong ones, per question", unit="points"),
    "hallucination_rate": Described(
        "Share of wrong answers among the questions not answered right", lower_is_better=True
    ),
    "omniscience_index": Described("Right answers less wrong ones, per hundred questions", -100, 100, unit="points"),
    "truthfulness_score": Described("Right answers, refusals and wrong ones by three weights", unit="points"),
    "error_rate": Described("Share of questions wrong where every question must be answered", lower_is_better=True),
    "refusal_index": Described(f"{INDEX}, from one response per question", -1, 1, unit="correlation"),
    "corrected_refusal_index": Described(
        f"{INDEX}, estimated for the model's probabilities from repeated samples", -1, 1, unit="correlation"
    ),
}


def described(name: str, document: Mapping[str, Any]) -> Described | None:
    """Return what is known of a metric, with the range that it has in this summary; None for one of another release."""
    known = METRICS.get(name)
    if known is None or name not in ("weighted_score", "truthfulness_score"):
        return known
    given = document.get("truthfulness_weights") if name == "truthfulness_score" else (1, 0, document.get("penalty"))
    match [finite(one) for one in given] if isinstance(given, list | tuple) else ():
        case [float(right), float(refused), float(wrong)]:
            ends = right, refused, -wrong
            return Described(known.title, min(ends), max(ends), unit=known.unit)
    return None
