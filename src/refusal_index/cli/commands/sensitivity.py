"""``refusal-index sensitivity``: how results depend on missing, wrong or guessed answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError
from refusal_index.cli.shared_options import ConfidenceLevel, Penalty, weights_of


def sensitivity(
    run: Path,
    /,
    labels: Path | None = None,
    grader_error: str | None = None,
    choices: Annotated[int | None, typer.Option(min=2)] = None,
    penalty: Penalty = 1.0,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
) -> None:
    """Show how results depend on grading decisions.

    Prints each metric as a range over scoring rules (refused again: wrong, right or excluded; unscored: excluded or
    worst case), bounds for missing answers, RI within topics, and RI corrected for grading errors, which are assumed or
    estimated from labels.

    - `run` RUN: Folder of a run, or an outcome table.
    - `labels` FILE: Grades checked by a person: the completed sheet of 'refusal-index audit'.
    - `grader_error` A,B: Largest error rates of the grader to allow for: right answers graded wrong, wrong answers
      graded right, as in 0.02,0.03. [default: 0.03,0.03]
    - `choices`: For multiple-choice questions: correct for guessing among this many choices.
    """
    from refusal_index.data.run_json import TruthfulnessWeights
    from refusal_index.data.runs import read_outcomes_of
    from refusal_index.findings.labels import read_labels
    from refusal_index.findings.sensitivity import DecisionOptions, decide_otherwise
    from refusal_index.render.planning import decisions_blocks

    outcomes = read_outcomes_of(run)
    options = DecisionOptions(
        labels=read_labels(labels, outcomes) if labels else None,
        errors=_rates(grader_error) if grader_error else (0.03, 0.03),
        choices=choices,
        penalty=penalty,
        truthfulness_weights=weights_of(truthfulness_weights) or TruthfulnessWeights(),
        confidence_level=confidence_level,
    )
    console.show(decisions_blocks(decide_otherwise(outcomes, options), options))


def _rates(given: str) -> tuple[float, float]:
    try:
        right, wrong = (float(part) for part in given.split(","))
    except ValueError:
        raise OptionError(f"--grader-error: expected two rates as in 0.02,0.03, got {given!r}") from None
    if not (0 <= right < 1 and 0 <= wrong < 1 and right + wrong < 1):
        raise OptionError(
            f"--grader-error: expected two rates of at least 0 with a sum below 1, got {given!r}; are they percentages?"
        )
    return right, wrong
