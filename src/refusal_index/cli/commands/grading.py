"""Commands about grading errors: ``audit`` and ``sensitivity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError
from refusal_index.cli.shared_options import ConfidenceLevel, Penalty, check_new_file, output, weights_of

DEFAULT_SIZE = 100


def audit(
    run: Path,
    /,
    out: Annotated[Path, output()],
    size: Annotated[int | None, typer.Option(min=1)] = None,
    half_width: float | None = None,
    grader_error: float = 0.03,
    seed: int = 0,
) -> None:
    """Sample graded answers for a person to check.

    Takes equal numbers from each model, dataset, pass and grade, as far as available, and records the probability with
    which each answer was sampled. Fill in the column human_grade (correct, incorrect or refused), then run
    'refusal-index sensitivity RUN --labels SHEET'. It estimates the grader's errors for each model and dataset, and
    corrects RI for them, including the uncertainty of the estimate.

    - `run` RUN: Folder of a run, or an outcome table with replies.
    - `out` FILE: Sheet to write, a CSV file.
    - `size`: Number of answers to sample. [default: 100]
    - `half_width`: Sample as many answers as an interval of RI of this half-width needs, instead of --size.
    - `grader_error`: Assumed error rate of the grader for --half-width, for right and for wrong answers.
    - `seed`: Random seed of the sample.
    """
    from refusal_index.data.runs import read_outcomes_of
    from refusal_index.findings.labels import audit_sheet, labels_needed, write_sheet
    from refusal_index.render.sentences import sentence

    check_new_file(out)
    _check(size, half_width, grader_error)
    outcomes = read_outcomes_of(run)
    if half_width is not None:
        needed = labels_needed(outcomes, half_width, grader_error)
        size = needed.values["labels"]
        console.prose(sentence(needed))
    sheet = audit_sheet(outcomes, size or DEFAULT_SIZE, seed)
    if not sheet.height:
        raise OptionError(f"audit: expected graded answers in {run}, got none")
    write_sheet(sheet, out)
    console.prose(
        f"{sheet.height:,} answers in {out}: fill in human_grade, then 'refusal-index sensitivity {run} --labels {out}'"
    )


def _check(size: int | None, half_width: float | None, grader_error: float) -> None:
    if size is not None and half_width is not None:
        raise OptionError("audit: expected --size or --half-width, got both; leave out one of them")
    if half_width is not None and not 0 < half_width < 2:
        raise OptionError(f"--half-width: expected a number above 0 and below 2, got {half_width}")
    if not 0 <= grader_error < 0.5:
        raise OptionError(
            f"--grader-error: expected a rate of at least 0 and below 0.5, got {grader_error}; is it a percentage?"
        )


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
