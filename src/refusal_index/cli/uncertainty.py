"""Commands about uncertainty: ``plan``, of the sample of questions; ``audit`` and ``sensitivity``, of grading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError
from refusal_index.cli.shared_options import ConfidenceLevel, check_new_file, output, weights_of

if TYPE_CHECKING:
    from refusal_index.findings.planning import PlanOptions
    from refusal_index.findings.run_results import RunResults
    from refusal_index.render.format import Block
    from refusal_index.stats import PlanningScenario


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
    from refusal_index.data.analysis import Analysis
    from refusal_index.findings.planning import (
        PlanOptions,
        plan_apart,
        plan_corrected,
        plan_scenario,
        scenarios_of,
        slopes_shown,
    )
    from refusal_index.findings.run_differences import missing_statements
    from refusal_index.render.planning import apart_screen, plan_blocks, plan_screen
    from refusal_index.render.sentences import sentence
    from refusal_index.stats import PlanningScenario

    budget = _budget(budget_requests, budget_cost, request_cost)
    slopes = refusal_slope, error_slope
    options = PlanOptions(
        half_width, questions, difference, power, Analysis(confidence_level), budget, request_cost, *slopes
    )
    _check(options)
    rates = (refusal_rate, error_rate, refusal_index)
    if variants and not pilot:
        raise OptionError("--variants: expected a run with prompts, got expected rates; leave it out")
    if pilot and rates != (None, None, None):
        raise OptionError("plan: expected a pilot or expected rates, got both; leave out one of them")
    if corrected and (difference is not None or len(pilot or ()) > 1):
        raise OptionError(
            "--corrected: plans for one model, not for a difference between two; leave it out to plan for a "
            "difference in RI"
        )
    if not corrected and slopes != (None, None):
        raise OptionError(
            "--refusal-slope, --error-slope: require --corrected, which is missing; add it, or leave them out"
        )
    runs = _pilots(pilot, options) if pilot else ()
    console.show(map(sentence, missing_statements(runs)))
    if len(runs) == 2:
        console.show(apart_screen(plan_apart(runs, variants, options), options))
        return
    scenarios = scenarios_of(runs[0], variants) if runs else {"expected": PlanningScenario(*_expected(*rates))}
    if not corrected:
        plans = {name: plan_scenario(scenario, options) for name, scenario in scenarios.items()}
    else:
        if runs and runs[0].is_deterministic:
            raise OptionError(
                "--corrected: the run was sampled at temperature 0, where corrected RI equals RI; leave it out"
            )
        shown = slopes_shown(runs[0], variants) if runs else {}
        plans = {
            name: plan_corrected(scenario, options, shown.get(name), from_run=bool(runs))
            for name, scenario in scenarios.items()
        }
    console.show((plan_blocks if full else plan_screen)(plans, options))
    if len(scenarios) == 1 and not corrected:
        console.show(_for_gate(runs, *next(iter(scenarios.items()))))
    if not full:
        console.show(["", "Add --full for more sample sizes and other metrics."])


def _for_gate(runs: Sequence[RunResults], name: str, scenario: PlanningScenario) -> list[Block]:
    """Return the lines on how many questions a gate needs with this run, or these expected rates, as its baseline."""
    from refusal_index.findings.summary import summarise
    from refusal_index.render.gate import baseline_blocks, scenario_blocks

    if not runs:
        recommended = list(scenario_blocks(scenario))
    else:
        variants = runs[0].tables
        rows = next(iter(variants.values())) if len(variants) == 1 else variants[name]
        recommended = list(baseline_blocks(summarise(rows)))
    return ["", *recommended] if recommended else []


def _budget(requests: float | None, cost: float | None, request_cost: float | None) -> float | None:
    """Return the budget in requests, if there is one."""
    for name, value in (("--budget-requests", requests), ("--budget-cost", cost), ("--request-cost", request_cost)):
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"{name}: expected a number above 0, got {value:g}")
    if cost is None:
        return requests
    if requests is not None:
        raise OptionError("plan: expected --budget-requests or --budget-cost with --request-cost, got both")
    if request_cost is None:
        raise OptionError("plan: --budget-cost needs --request-cost; 'refusal-index run --dry-run' estimates the cost")
    return cost / request_cost


def _pilots(paths: list[Path], options: PlanOptions) -> tuple[RunResults, ...]:
    from refusal_index.findings.run_results import read_runs

    runs = read_runs(paths)
    if len(runs) > 2:
        raise OptionError(f"plan: expected one or two models, got {len(runs)}; name the runs of two at most")
    if len(runs) == 2 and (options.half_width, options.difference, options.budget) != (None, None, None):
        raise OptionError(
            "plan: two runs are planned for by the difference between them; leave out --half-width, --difference and "
            "budgets, or name one run only"
        )
    return runs


def _expected(*rates: float | None) -> tuple[float, float, float]:
    refusal_rate, error_rate, refusal_index = rates
    if refusal_rate is None or error_rate is None or refusal_index is None:
        raise OptionError(
            "plan: expected a run to plan from, or --refusal-rate, --error-rate and --refusal-index together; "
            "for instance --refusal-rate .5 --error-rate .7 --refusal-index .4"
        )
    return refusal_rate, error_rate, refusal_index


def _check(options: PlanOptions) -> None:
    """Check the options before anything is read."""
    for name, value in (("--half-width", options.half_width), ("--difference", options.difference)):
        if value is not None and not 0 < value < 2:
            raise OptionError(f"{name}: expected a number above 0 and below 2, got {value}")
    for name, slope in (("--refusal-slope", options.refusal_slope), ("--error-slope", options.error_slope)):
        if slope is not None and not 0 < slope < float("inf"):
            raise OptionError(
                f"{name}: expected a number above 0, got {slope:g}; to plan for a model without randomness, leave out "
                "--corrected"
            )
    if options.half_width is not None and options.questions is not None:
        raise OptionError("plan: expected --half-width or --questions, got both; leave out one of them")
    error = 1 - options.analysis.confidence_level
    if options.power <= error:
        raise OptionError(
            f"--power: expected more than {error:g}, the chance of a false difference, got {options.power:g}"
        )


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
        raise OptionError("audit: expected --size or --half-width, got both; leave out one of them")
    if half_width is not None and not 0 < half_width < 2:
        raise OptionError(f"--half-width: expected a number above 0 and below 2, got {half_width}")
    if not 0 <= grader_error < 0.5:
        raise OptionError(
            f"--grader-error: expected a rate of at least 0 and below 0.5, got {grader_error}; is it a percentage?"
        )
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
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.folder import read_outcomes_of, recorded_in
    from refusal_index.findings.labels import read_labels
    from refusal_index.findings.run_results import runs_of_table
    from refusal_index.findings.sensitivity import DecisionOptions, decide_otherwise
    from refusal_index.render.planning import decisions_blocks

    outcomes = read_outcomes_of(run)
    compared = runs_of_table(run, outcomes, *recorded_in(run))
    rates = grader_error or "0.03,0.03"
    try:
        right, wrong = (float(part) for part in rates.split(","))
    except ValueError:
        raise OptionError(f"--grader-error: expected two rates as in 0.02,0.03, got {rates!r}") from None
    if not (0 <= right < 1 and 0 <= wrong < 1 and right + wrong < 1):
        raise OptionError(
            f"--grader-error: expected two rates of at least 0 with a sum below 1, got {rates!r}; are they percentages?"
        )
    analysis = Analysis(confidence_level, weighted_score_p, weights_of(truthfulness_weights))
    options = DecisionOptions(
        labels=read_labels(labels, outcomes) if labels else None,
        errors=(right, wrong),
        choices=choices,
        analysis=analysis.with_recorded(one.about for one in compared),
        is_deterministic=all(one.is_deterministic for one in compared),
    )
    console.show(decisions_blocks(decide_otherwise(outcomes, options), options))
