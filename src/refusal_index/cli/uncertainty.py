"""Commands about uncertainty: ``plan``, of the sample of questions; ``audit`` and ``sensitivity``, of grading."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import ConfidenceLevel, check_new_file, output, weights_of


def plan(
    pilot: list[Path] | None = None,
    /,
    refusal_rate: Annotated[float | None, typer.Option(min=0, max=1)] = None,
    error_rate: Annotated[float | None, typer.Option(min=0, max=1)] = None,
    refusal_index: Annotated[float | None, typer.Option(min=-1, max=1)] = None,
    half_width: float | None = None,
    questions: Annotated[int | None, typer.Option("-n", min=1)] = None,
    difference: float | None = None,
    power: Annotated[float, typer.Option(min=0.05, max=0.9999)] = 0.8,
    budget_requests: float | None = None,
    budget_cost: float | None = None,
    request_cost: float | None = None,
    refusal_slope: float | None = None,
    error_slope: float | None = None,
    corrected: bool = False,
    variants: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    full: bool = False,
) -> None:
    """Estimate how many questions you need for RI, or for corrected RI.

    Takes expected rates (--refusal-rate, --error-rate, --refusal-index) or a finished run, and prints the half-width to
    expect, the number of questions for a given half-width, and the number needed to detect a difference between two
    models. For two runs on the same questions, it uses their observed correlation and difference. With a budget
    (--budget-requests, or --budget-cost and --request-cost), it prints how many questions give the narrowest interval,
    and with --corrected how many of them to sample twice; --questions is then the number available.

    - `pilot` RUN: Folder of a run or outcome table to plan from; two of them to plan a comparison.
    - `refusal_rate`: Expected refusal rate, without a pilot.
    - `error_rate`: Expected share wrong overall: when every question must be answered.
    - `refusal_index`: Expected RI.
    - `half_width`: Half-width of the interval to plan for. [default: a table of several]
    - `questions`: Print the precision that this many questions give.
    - `difference`: Smallest difference in RI between two models to detect.
    - `power`: Probability of detecting that difference.
    - `budget_requests`: Number of requests to spend on the narrowest interval.
    - `budget_cost`: The same budget as an amount of money; requires --request-cost.
    - `request_cost`: Cost of a request, including its grading.
    - `refusal_slope`: With --corrected: standard deviation over the questions of the probit of the probability of
      refusing, from 1 (very random) to 6. [default: estimated from the repeated samples of the pilot, or 2]
    - `error_slope`: The same for the probability of being wrong.
    - `corrected`: Plan for corrected RI, from questions sampled twice, instead of RI.
    - `variants` NAME: Prompt of the pilot to plan from. [default: each of them]
    - `full`: Print further sample sizes, and the precision that they give for every metric.
    """
    from refusal_index.render.planning import sample_size_blocks
    from refusal_index.runs.planning import plan as plan_questions

    sizes = plan_questions(
        pilot or (),
        refusal_rate=refusal_rate,
        error_rate=error_rate,
        refusal_index=refusal_index,
        half_width=half_width,
        questions=questions,
        difference=difference,
        power=power,
        budget_requests=budget_requests,
        budget_cost=budget_cost,
        request_cost=request_cost,
        refusal_slope=refusal_slope,
        error_slope=error_slope,
        corrected=corrected,
        variant=variants,
        confidence_level=confidence_level,
    )
    console.show(sample_size_blocks(sizes, full=full))
    if not full and len(sizes.runs) < 2:
        console.show(["", "Add --full for more sample sizes and other metrics."])


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
    """Sample graded answers for human review.

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
    from refusal_index.data.folder import read_outcomes_of
    from refusal_index.findings.labels import audit_sheet, labels_needed, write_sheet
    from refusal_index.render.sentences import sentence

    check_new_file(out)
    if size is not None and half_width is not None:
        raise console.OptionError("audit: expected --size or --half-width, got both; leave out one of them")
    if half_width is not None and not 0 < half_width < 2:
        raise console.OptionError(f"--half-width: expected a number above 0 and below 2, got {half_width}")
    if not 0 <= grader_error < 0.5:
        raise console.OptionError(
            f"--grader-error: expected a rate of at least 0 and below 0.5, got {grader_error}; is it a percentage?"
        )
    outcomes = read_outcomes_of(run)
    if half_width is not None:
        needed = labels_needed(outcomes, half_width, grader_error)
        size = needed.values["labels"]
        console.prose(sentence(needed))
    sheet = audit_sheet(outcomes, size or DEFAULT_SIZE, seed)
    if not sheet.height:
        raise console.OptionError(f"audit: expected graded answers in {run}, got none")
    write_sheet(sheet, out)
    console.prose(
        f"{sheet.height:,} answers in {out}: fill in human_grade, then 'refusal-index sensitivity {run} --labels {out}'"
    )


def sensitivity(
    run: Path,
    /,
    labels: Path | None = None,
    grader_error: str | None = None,
    choices: Annotated[int | None, typer.Option(min=2)] = None,
    weighted_score_p: Annotated[float | None, typer.Option(min=0)] = None,
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
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered. [default: that of the run, else 1]
    """
    from refusal_index.render.planning import decisions_blocks
    from refusal_index.runs.sensitivity import sensitivity as decide_otherwise

    rates = grader_error or "0.03,0.03"
    try:
        right, wrong = (float(part) for part in rates.split(","))
    except ValueError:
        raise console.OptionError(f"--grader-error: expected two rates as in 0.02,0.03, got {rates!r}") from None
    decided = decide_otherwise(
        run,
        labels,
        grader_error=(right, wrong),
        choices=choices,
        weighted_score_p=weighted_score_p,
        truthfulness_weights=weights_of(truthfulness_weights),
        confidence_level=confidence_level,
    )
    console.show(decisions_blocks(decided))
