"""``refusal-index gate``: may a candidate take the place of its baseline, or is it within fixed bounds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError, option
from refusal_index.cli.shared_options import FORECAST, check_folder_of, output, takes_settings
from refusal_index.runs.settings import SETTINGS

if TYPE_CHECKING:
    from refusal_index.findings.gate import GateResult
    from refusal_index.findings.gate_policy import Policy

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
"""The exit status of each verdict; 2 is bad input, as everywhere."""

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Names the file that GitHub shows below a job, where there is one."""

SUFFIXES = {"json": ".json", "markdown": ".md", "junit": ".xml", "report": ".html"}


ASKING = tuple(
    name
    for name in SETTINGS
    if name not in ("variants", "log_to", "until", "detach", "penalty", "truthfulness_weights", *FORECAST)
)
"""Settings of a candidate that is asked while it is judged."""


@takes_settings(*ASKING, looks="With --run: how often to look, after equal portions of the questions.")
def gate(
    candidate: Path,
    /,
    baseline: Path | None = None,
    policy: Path | None = None,
    margin: list[str] | None = None,
    at_least: list[str] | None = None,
    at_most: list[str] | None = None,
    variant: str | None = None,
    json: Annotated[str | None, output()] = None,
    markdown: Annotated[Path | None, output()] = None,
    junit: Annotated[Path | None, output()] = None,
    report: Annotated[Path | None, output()] = None,
    run: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Judge whether a model may be released.

    It passes if every guard is shown to lie within its limit, fails if one is shown to lie beyond, and is inconclusive
    otherwise. Against a baseline four numbers are guarded, so that knowing less, answering everything or refusing
    everything fails by name: RI, the share of right answers, their share among the answered, and the refusal rate. A
    run that lacks more than 2 % of its grades is inconclusive.

    With --run the candidate is asked, with the options of 'refusal-index run', and looked at five times: it stops at
    the first look at which the verdict is certain. All looks together err as seldom as one. The same command again
    resumes.

    Exit status: 0 pass, 1 fail, 3 inconclusive, 2 bad input or an output that cannot be written, 130 interrupted.

    - `candidate` CANDIDATE: A run's folder, or an outcome table; with --run, the folder to ask into.
    - `baseline` RUN: The run in use, over the same questions: folder or table.
    - `policy` FILE: What is demanded, in TOML; options add to it.
    - `margin` METRIC=NUMBER: By how much worse than the baseline a metric may be; may be repeated. [default:
      refusal_index=0.1, correct_rate=0.05, correct_given_attempted=0.05, refusal_rate=0.1]
    - `at_least` METRIC=NUMBER: Lowest value of the candidate's metric.
    - `at_most` METRIC=NUMBER: Highest value of the candidate's metric.
    - `variant`: Judge by this prompt variant. [default: the only one]
    - `json` FILE: Write everything as JSON; '-' prints it and nothing else.
    - `markdown` FILE: Write it as Markdown; on GitHub it also goes below the job.
    - `junit` FILE: Write it as JUnit XML.
    - `report` FILE: Write the report of both runs, an HTML file.
    - `run`: Ask the candidate, only until the verdict is certain, as the options below say.
    """
    from refusal_index.runs.gate import gate as judge

    as_json = None if json in {None, "-"} else Path(json)
    files = {"markdown": markdown, "junit": junit, "json": as_json, "report": report}
    places = {form: place for form, place in files.items() if place is not None}
    for form, place in places.items():
        _check_place(form, place)
    demanded = _policy(policy, margin, at_least, at_most, variant)
    if not run:
        _refuse_asking(values)
    else:
        _refuse_asking_the_baseline(candidate, baseline)
    try:
        found = _asked(candidate, baseline, demanded, values) if run else judge(candidate, baseline, demanded)
    except OSError as error:  # a full disk is no verdict, which its usual exit status would be
        raise OptionError(f"{error}; there is no verdict") from error
    _write(found, [candidate, *([baseline] if baseline else [])], places)
    _print(found, as_json=json == "-")
    raise typer.Exit(EXIT[found.verdict])


def _asked(candidate: Path, baseline: Path | None, policy: Policy, values: Mapping[str, Any]) -> GateResult:
    """Ask the candidate until the verdict is certain."""
    from refusal_index.cli.runs import execute_with_progress, tell_notes
    from refusal_index.runs.gate import gate_while_asking, not_compared, read_one, variant_to_ask
    from refusal_index.runs.plan import prepare
    from refusal_index.runs.settings import Settings

    other = None if baseline is None else read_one(baseline, "baseline")
    settings = Settings.of(**{**values, "variants": variant_to_ask(policy, other)})
    plan = prepare(settings, out=candidate)
    tell_notes([plan])
    in_vain = 0 if other is None else not_compared(plan, other)
    if in_vain:
        console.note(
            f"baseline: {in_vain:,} of the {len(plan.dataset.questions):,} questions to ask are not in {baseline}: "
            "they are asked, and not compared"
        )
    gated = execute_with_progress(plan, partial(gate_while_asking, plan, other, policy))
    for note in gated.notes:
        console.note(note)
    return gated.verdict


def _refuse_asking(values: Mapping[str, Any]) -> None:
    """Raise where an option would do nothing."""
    if values:
        raise OptionError(
            f"{option(next(iter(values)))}: says how a candidate is asked; expected --run beside it, got none"
        )


def _refuse_asking_the_baseline(candidate: Path, baseline: Path | None) -> None:
    """Raise where a candidate would be asked into the folder of what it is compared with."""
    from refusal_index.runs.gate import whole_run

    if baseline is not None and whole_run(candidate).resolve() == whole_run(baseline).resolve():
        raise OptionError(
            f"--baseline: expected another run than the candidate, got the same: {baseline} and {candidate}; ask "
            "the candidate into a folder of its own"
        )


def _policy(
    path: Path | None,
    margin: Sequence[str] | None,
    at_least: Sequence[str] | None,
    at_most: Sequence[str] | None,
    variant: str | None,
) -> Policy:
    """Read the policy, and add to it what options say."""
    from refusal_index.runs.gate import policy_of

    tables = {"margins": ("--margin", margin), "at_least": ("--at-least", at_least), "at_most": ("--at-most", at_most)}
    given = {name: _numbers(option, pairs) for name, (option, pairs) in tables.items() if pairs}
    return policy_of(path).changed(**given, variant=variant)


def _numbers(option: str, pairs: Sequence[str]) -> dict[str, float]:
    """Read ``METRIC=NUMBER`` pairs."""
    found = {}
    for pair in pairs:
        metric, _, number = (part.strip() for part in pair.partition("="))
        if metric in found:
            raise OptionError(f"{option}: expected one number for {metric!r}, got several; leave one out")
        try:
            found[metric] = float(number)
        except ValueError:
            raise OptionError(
                f"{option}: expected METRIC=NUMBER, for instance refusal_index=0.1, got {pair!r}"
            ) from None
    return found


def _check_place(form: str, place: Path) -> None:
    """Refuse a place whose file is of another form: a mistyped option should not cost it."""
    if place.suffix.lower() != SUFFIXES[form] or place.is_dir():
        raise OptionError(f"--{form}: expected a file that ends in {SUFFIXES[form]}, got {place}")
    check_folder_of(f"--{form}", place)


def _print(found: GateResult, *, as_json: bool) -> None:
    """Print the verdict; it stands as well where whoever reads it has gone, as `head` does after a line."""
    from refusal_index.render.gate import gate_blocks, gate_document

    try:
        if as_json:
            console.document(gate_document(found))
        else:
            console.show(gate_blocks(found))
            if found.guards:
                console.say()
                console.say("all numbers and changed questions: add --report FILE.html or --markdown FILE.md")
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the last is how Rich says the first
        console.print_no_more()
    except OSError as error:
        console.print_no_more()
        raise OptionError(
            f"the standard output cannot be written ({error.strerror}); the verdict is {found.verdict}: print it to "
            "another place"
        ) from error


def _write(found: GateResult, runs: Sequence[Path], places: Mapping[str, Path]) -> None:
    """Write the verdict to its places, the report of the runs among them, and to where GitHub shows it."""
    from refusal_index.data.errors import NotWrittenError
    from refusal_index.runs.gate import write_verdict

    _tell_github(found)
    errors = []
    others = {form: place for form, place in places.items() if form != "report"}
    for write in (partial(write_verdict, found, others), partial(_write_report, found, runs, places.get("report"))):
        try:
            write()
        except NotWrittenError as error:
            errors.append(error)
    if errors:
        raise OptionError(f"{'; '.join(map(str, errors))}; the verdict is {found.verdict}") from errors[0]


def _write_report(found: GateResult, runs: Sequence[Path], place: Path | None) -> None:
    """Write the report of the runs with the verdict on top, where one is wanted and there is something to show."""
    from refusal_index.render.report import read_report_runs, write_report

    if place is not None and found.unasked is not None:
        console.note(f"{place} is not written: nothing was judged")
    elif place is not None:
        write_report(read_report_runs(runs).runs, place, gate=found)


def _tell_github(found: GateResult) -> None:
    """Append the verdict to the summary of the job, where one runs."""
    place = os.environ.get(STEP_SUMMARY)
    if not place:
        return
    from refusal_index.render.gate_files import to_markdown

    try:
        with Path(place).open("a", encoding="utf-8") as summary:
            summary.write(f"{to_markdown(found)}\n")
    except OSError as error:
        console.note(f"${STEP_SUMMARY} cannot be written ({error.strerror}); the verdict stands")
