"""``refusal-index requests`` and ``replies``: what a run asks next as files, and the results of such files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE
from refusal_index.cli.shared_options import output, takes_settings

if TYPE_CHECKING:
    from refusal_index.plugins.batches.request_files import Received, RequestFiles


@takes_settings("max_choices", "logprobs")
def requests(
    run: Path,
    /,
    out: Annotated[Path, output()],
    format_: str | None = None,
    prompts: str | None = None,
    *,
    values: Mapping[str, Any],
) -> None:
    """Write what a run asks next into files for batches.

    All questions go together: first every first pass, then what needs grading, then the forced passes, then their
    grades. Hand each file to its provider's batches, to 'vllm run-batch' or to 'refusal-index run-batch', and its
    results to 'refusal-index replies'; then write the next round. A file holds requests to one model, and as many as
    the format allows. Exit status: 0 done, 2 bad input.

    - `run` RUN: The folder of a run; 'run --engine files' begins one.
    - `out` FILE: Where to write them; further files are called alike, with numbers.
    - `format_`: openai, compatible (as vLLM and other servers take it) or anthropic. [default: what the provider of the
      model takes]
    - `prompts` FILE: The run's prompt set, where it is a file of yours.
    """
    from refusal_index.plugins.batches.request_files import reopened, write_requests
    from refusal_index.runs.settings import Settings

    files = write_requests(reopened(run, Settings.of(**values), prompts), out, format_)
    _show_written(files, run, logprobs=bool(values.get("logprobs")))


def _show_written(written: RequestFiles, run: Path, *, logprobs: bool) -> None:
    from refusal_index.render.blocks import Table

    files = written.files
    for name, count in written.functions.items():
        console.note(f"note: {count:,} requests are to {name}, a function, which no file can ask: run --engine direct")
    for style in dict.fromkeys(file.style for file in files):
        missing = [name for name in style.leaves_out if logprobs or name != "logprobs"]
        if missing:
            console.note(f"note: {style.name}'s format takes no {', '.join(missing)}: replies come without")
    if files:
        rows = [
            (str(file.path), file.model, file.style.name, f"{file.requests:,}", f"{file.size / 1e6:.1f} MB")
            for file in files
        ]
        names = ("file", "model", "format")
        console.show([Table.of((*names, "requests", "size"), rows, left=names)])
        console.say()
        console.say(f"Read their results with: refusal-index replies {run} FILE...")
    elif not written.functions:
        console.say(f"{run}: no request is pending; 'refusal-index score {run}' prints its results")


def replies(
    run: Path,
    files: list[Path],
    /,
    prompts: str | None = None,
) -> None:
    """Read the results of request files into their run.

    In any order and as often as one likes, as OpenAI, Anthropic or vLLM write them.

    What failed stays pending, and goes with the next round. A result whose request is not this run's, or that
    contradicts a stored reply, is named and left out. Once no request is pending the results are written and printed.
    Exit status: 0 done, 1 something is still pending or was left out, 2 bad input.

    - `run` RUN: The folder of the run whose requests they answer.
    - `files` FILE: Results as OpenAI, Anthropic or vLLM write them.
    - `prompts` FILE: The run's prompt set, where it is a file of yours.
    """
    from refusal_index.cli.runs import show_run
    from refusal_index.plugins.batches.request_files import reopened, take_replies
    from refusal_index.runs.settings import Settings

    received = take_replies(reopened(run, Settings(), prompts), files)
    _show_received(received, run)
    complete = received.run is not None and received.run.is_complete
    if received.run is not None:
        console.say()
        show_run(received.run, as_json=False)
    if not complete or received.left_out:
        raise typer.Exit(INCOMPLETE)


def _show_received(received: Received, run: Path) -> None:
    counts = received.counts
    stored = f", {counts.stored:,} {'was' if counts.stored == 1 else 'were'} stored before" if counts.stored else ""
    console.say(f"{run}: {_number(counts.replies, 'new reply', 'new replies')}{stored}")
    for path in received.empty:
        console.note(f"{path} is empty: no result has been written into it, or not yet")
    for message, count in received.failures.most_common(5):
        console.say(f"  {_number(count, 'request')} failed and stay{'s' if count == 1 else ''} pending: {message}")
    if received.unknown_failures:
        failures = _number(received.unknown_failures, "failure")
        console.say(f"  {failures} of requests that are not this run's, or no longer")
    for what, problems in received.left_out.items():
        console.note(f"left out: {problems.count:,} {what}")
        for place in problems.named:
            console.note(f"  {place}")
        if problems.count > len(problems.named):
            console.note(f"  and {problems.count - len(problems.named):,} more")
    pending = f"{_number(counts.pending, 'request')} {'is' if counts.pending == 1 else 'are'} pending"
    if counts.pending and received.in_flight is not None:
        console.say(f"{pending}, and {received.in_flight}: the run's own command with --engine batch collects them")
    elif counts.pending:
        console.say(f"{pending}: 'refusal-index requests {run} --out FILE' writes them")


def _number(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
