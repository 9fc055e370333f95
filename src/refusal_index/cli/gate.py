"""``refusal-index gate``: whether a candidate may replace its baseline, or meets fixed bounds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import BAD_INPUT, INCOMPLETE, OptionError, option
from refusal_index.cli.shared_options import check_folder_of, check_named, output, settings_of, takes_settings

if TYPE_CHECKING:
    from refusal_index.findings.gate import GateResult
    from refusal_index.findings.gate_policy import Policy


STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Names the file that GitHub shows below a job, where there is one."""

FORMS = (".json", ".md", ".xml", ".html")
"""Suffixes of the files that ``--out`` writes."""


@takes_settings(
    *settings_of("gate"),
    all_of_run=True,
    looks="With --run: number of interim checks, evenly spaced over the questions.",
)
def gate(
    candidate: Path,
    more: Annotated[list[Path] | None, typer.Argument(hidden=True, metavar="")] = None,
    /,
    baseline: Path | None = None,
    policy: Path | None = None,
    margin: list[str] | None = None,
    at_least: list[str] | None = None,
    at_most: list[str] | None = None,
    variants: str | None = None,
    out: Annotated[list[Path] | None, output()] = None,
    json: bool = False,
    run: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Check a candidate model against release criteria.

    The candidate passes if every guarded metric is shown to be within its limit, fails if one is shown to be beyond it,
    and is inconclusive otherwise. With a baseline, four metrics are guarded by default: RI, the share of correct
    answers, accuracy when answering, and the refusal rate. So a model that knows less, never refuses or always refuses
    fails. RI leaves out what the forced pass refused again. Missing answers are assumed to count against the verdict. A
    run that lacks more than 1% of its grades is inconclusive.

    The first line says what to do and why. With 300 to 500 questions, --policy coarse has wider margins.

    With --run, the candidate is evaluated first, with all options of the command 'run'. The result is checked
    five times along the way, and the run stops at the first clear verdict; the overall chance of a wrong verdict is no
    higher than that of a single test. Running the same command again resumes.

    Exit status: 0 pass, 1 fail, 3 inconclusive, 2 no verdict or an output that cannot be written, 130 interrupted.

    - `candidate` CANDIDATE: Folder of a run, or an outcome table; with --run, the folder to write the run to.
    - `baseline` RUN: Run of the model in use on the same questions: a folder or an outcome table.
    - `policy` FILE|coarse: TOML file of release criteria, or the margins for 300 to 500 questions; options are added.
    - `margin` METRIC=NUMBER: How much worse than the baseline a metric may be. Repeatable. [default:
      refusal_index=0.1, correct_rate=0.05, correct_given_attempted=0.05, refusal_rate=0.1]
    - `at_least` METRIC=NUMBER: Minimum value of a metric of the candidate. Repeatable.
    - `at_most` METRIC=NUMBER: Maximum value of a metric of the candidate. Repeatable.
    - `variants` NAME: Prompt to judge. [required if the runs share several]
    - `out` FILE: Also write the verdict to a file: .json, .md, .xml (JUnit) or .html (the report of both runs).
      Repeatable. In GitHub Actions, the Markdown is also added to the job summary.
    - `json`: Print the verdict as JSON and nothing else.
    - `run`: Evaluate the candidate, and stop as soon as the verdict is certain.
    """
    from refusal_index.runs.gate import gate as judge
    from refusal_index.runs.gate import policy_of, whole_run

    if more:
        raise OptionError(
            f"gate: expected one candidate, also got {more[0]}; name the run in use with --baseline RUN, and a file to "
            "write with --out FILE (--json takes no file)"
        )
    files = _places(out or [])
    limits = {"margins": ("--margin", margin), "at_least": ("--at-least", at_least), "at_most": ("--at-most", at_most)}
    numbers = {name: _numbers(flag, pairs) for name, (flag, pairs) in limits.items() if pairs}
    criteria = policy_of(policy).changed(**numbers, variant=variants)
    if values and not run:
        raise OptionError(
            f"{option(next(iter(values)))}: applies only when the candidate is evaluated; add --run, or leave it out"
        )
    if run and baseline is not None and whole_run(candidate).resolve() == whole_run(baseline).resolve():
        raise OptionError(
            f"--baseline: expected another run than the candidate, got {baseline} and {candidate}; choose another "
            "folder for the candidate"
        )
    try:
        result = _evaluate(candidate, baseline, criteria, values) if run else judge(candidate, baseline, criteria)
    except OSError as error:  # a full disk is not a verdict, which exit status 1 would mean
        raise OptionError(f"{error}; there is no verdict") from error
    except typer.Exit as ended:  # nor is a run that could not be completed
        raise typer.Exit(BAD_INPUT if ended.exit_code == INCOMPLETE else ended.exit_code) from ended
    _write(result, [candidate, *([baseline] if baseline else [])], files)
    _print(result, files.values(), as_json=json)
    # exit statuses of the verdicts; an error, without a verdict, exits with 2
    raise typer.Exit({"pass": 0, "fail": 1, "inconclusive": 3}[result.verdict])


def _evaluate(candidate: Path, baseline: Path | None, policy: Policy, values: Mapping[str, Any]) -> GateResult:
    """Evaluate the candidate until the verdict is certain."""
    from refusal_index.cli.runs import execute_with_progress, print_caveats, print_notes
    from refusal_index.render.gate import not_asked
    from refusal_index.runs.gate import count_not_compared, gate_while_asking, read_run, variant_to_ask
    from refusal_index.runs.plan import prepare
    from refusal_index.runs.settings import Settings

    check_named(values)
    other = None if baseline is None else read_run(baseline, "baseline")
    settings = Settings.from_values(**{**values, "variants": variant_to_ask(policy, other)})
    plan = prepare(settings, out=candidate)
    print_notes([plan])
    print_caveats([plan])
    unmatched = 0 if other is None else count_not_compared(plan, other)
    if unmatched:
        console.note(
            f"baseline: {unmatched:,} of the {len(plan.dataset.questions):,} questions are not in {baseline}, so they "
            "are asked but not compared"
        )
    run, verdict = execute_with_progress(plan, partial(gate_while_asking, plan, other, policy))
    console.note(*not_asked(run, verdict))
    return verdict


def _numbers(option: str, pairs: Sequence[str]) -> dict[str, float]:
    """Read ``METRIC=NUMBER`` pairs."""
    numbers = {}
    for pair in pairs:
        metric, _, number = (part.strip() for part in pair.partition("="))
        if metric in numbers:
            raise OptionError(f"{option}: expected one number for {metric!r}, got several; keep one")
        try:
            numbers[metric] = float(number)
        except ValueError:
            raise OptionError(
                f"{option}: expected METRIC=NUMBER, for instance refusal_index=0.1, got {pair!r}"
            ) from None
    return numbers


def _places(files: Sequence[Path]) -> dict[str, Path]:
    """Return the files of ``--out`` by suffix; raises OptionError for any other suffix."""
    by_suffix: dict[str, Path] = {}
    for file in files:
        suffix = file.suffix.lower()
        if suffix not in FORMS or file.is_dir():
            raise OptionError(f"--out: expected a file that ends in {', '.join(FORMS)}, got {file}")
        if suffix in by_suffix:
            raise OptionError(f"--out: expected one {file.suffix} file, got {by_suffix[suffix]} and {file}")
        check_folder_of(file)
        by_suffix[suffix] = file
    return by_suffix


def _print(result: GateResult, written: Iterable[Path], *, as_json: bool) -> None:
    """Print the verdict; the exit status is kept even if the reader closes the output early, as `head` does."""
    from refusal_index.render.gate import gate_blocks, gate_document

    try:
        if as_json:
            console.document(gate_document(result))
        else:
            console.show(gate_blocks(result))
            if files := ", ".join(map(str, written)):
                console.show(["", f"Written: {files}"])
            elif result.guards:
                console.show(["", "Add --out FILE.html for all numbers and every question."])
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # Rich turns the first into the second
        console.print_no_more()
    except OSError as error:
        console.print_no_more()
        raise OptionError(
            f"cannot write to standard output ({error.strerror}); the verdict is {result.verdict}"
        ) from error


def _write(result: GateResult, runs: Sequence[Path], files: Mapping[str, Path]) -> None:
    """Write the verdict to its files by suffix, the report of the runs among them, and to the summary of a GitHub job.

    Raises OptionError if one cannot be written, after writing the others.
    """
    from refusal_index.data.files import json_text, write_atomically
    from refusal_index.errors import NotWrittenError, listed
    from refusal_index.findings.run_results import find_runs
    from refusal_index.redaction import redacted_in
    from refusal_index.render.gate import gate_document, to_junit, to_markdown
    from refusal_index.render.report import write_report

    if path := os.environ.get(STEP_SUMMARY):
        try:
            with Path(path).open("a", encoding="utf-8") as summary:
                summary.write(f"{to_markdown(result)}\n")
        except OSError as error:
            console.note(f"${STEP_SUMMARY} cannot be written ({error.strerror}); the verdict stands")
    contents = {
        ".json": lambda: json_text(redacted_in(gate_document(result))).encode(),
        ".md": lambda: to_markdown(result).encode(),
        ".xml": lambda: to_junit(result),
    }
    errors = []
    for suffix, file in files.items():
        try:
            if suffix in contents:
                write_atomically(file, contents[suffix]())
            elif result.unasked is None:
                write_report(find_runs(runs).runs, file, gate=result)
            else:
                console.note(f"{file} is not written: nothing was judged")
        except NotWrittenError as error:
            errors.append(error)
    if errors:
        first, *others = errors
        if others:
            more = f"nor can {listed(error.filename for error in others)}"
            first = NotWrittenError(
                Path(first.filename), first, f"{more}; free some disk space, or choose other places"
            )
        raise OptionError(f"{first}; the verdict is {result.verdict}") from first
