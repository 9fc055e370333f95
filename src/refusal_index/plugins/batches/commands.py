"""``refusal-index requests`` and ``replies``: batch files of a run, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
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
    """Write the pending requests of a run to batch files.

    Works in rounds over all questions: the first passes, their grading, the forced passes, their grading. Submit each
    file to its provider's batch API, 'vllm run-batch' or 'refusal-index run-batch', load the results with
    'refusal-index replies', and run this command again for the next round. A file holds requests to one model, up to
    the limit of its format.

    Exit status: 0 done, 2 bad input.

    - `run` RUN: Folder of a run; 'refusal-index run --engine files' creates one.
    - `out` FILE: File to write; if there are more, their names are numbered.
    - `format_`: Format: openai, compatible (vLLM and other servers) or anthropic. [default: that of the provider]
    - `prompts` FILE: Prompt set of the run, if it is your own file.
    """
    from refusal_index.plugins.batches.request_files import reopened, write_requests
    from refusal_index.runs.settings import Settings

    files = write_requests(reopened(run, Settings.from_values(**values), prompts), out, format_)
    _show_written(files, run, logprobs=bool(values.get("logprobs")))


def _show_written(written: RequestFiles, run: Path, *, logprobs: bool) -> None:
    from refusal_index.render.format import Table

    files = written.files
    for name, count in written.functions.items():
        console.note(f"note: {count:,} requests are for {name}, a function; send them with run --engine direct")
    for style in dict.fromkeys(file.style for file in files):
        missing = [name for name in style.leaves_out if logprobs or name != "logprobs"]
        if missing:
            console.note(f"note: the {style.name} format does not support {', '.join(missing)}; replies come without")
    if files:
        rows = [
            (str(file.path), file.model, file.style.name, f"{file.requests:,}", f"{file.size / 1e6:.1f} MB")
            for file in files
        ]
        names = ("file", "model", "format")
        console.show([Table.from_rows((*names, "requests", "size"), rows, left=names)])
        console.say()
        console.say(f"Load the results with: refusal-index replies {run} FILE...")
    elif not written.functions:
        console.say(f"{run}: no request is pending; 'refusal-index score {run}' prints its results")


def replies(
    run: Path,
    files: list[Path],
    /,
    prompts: str | None = None,
) -> None:
    """Load batch results into a run.

    Reads results of OpenAI, Anthropic or vLLM, in any order; loading a file twice is harmless. Failed requests stay
    pending for the next round. A result for a request of another run, or one that contradicts a stored reply, is
    reported and skipped. Once no request is pending, the results of the run are written and printed.

    Exit status: 0 done, 1 something is still pending or was skipped, 2 bad input.

    - `run` RUN: Folder of the run.
    - `files` FILE: Batch results of OpenAI, Anthropic or vLLM.
    - `prompts` FILE: Prompt set of the run, if it is your own file.
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
        raise typer.Exit(console.INCOMPLETE)


def _show_received(received: Received, run: Path) -> None:
    from refusal_index.render.format import count

    counts = received.counts
    stored = f", {counts.stored:,} {'was' if counts.stored == 1 else 'were'} stored before" if counts.stored else ""
    console.say(f"{run}: {counts.replies:,} new repl{'y' if counts.replies == 1 else 'ies'}{stored}")
    for path in received.empty:
        console.note(f"{path} is empty; no results have been written to it yet")
    for message, times in received.failures.most_common(5):
        console.say(f"  {count(times, 'request')} failed and stay{'s' if times == 1 else ''} pending: {message}")
    if received.unknown_failures:
        failures = count(received.unknown_failures, "failure")
        console.say(f"  {failures} of requests that are not, or no longer, part of this run")
    for kind, problems in received.left_out.items():
        console.note(f"left out: {problems.count:,} {kind}")
        for location in problems.named:
            console.note(f"  {location}")
        if problems.count > len(problems.named):
            console.note(f"  and {problems.count - len(problems.named):,} more")
    pending = f"{count(counts.pending, 'request')} {'is' if counts.pending == 1 else 'are'} pending"
    if counts.pending and received.in_flight is not None:
        advice = "repeat the run's command with --engine batch to collect them"
        console.say(f"{pending}, and {received.in_flight}: {advice}")
    elif counts.pending:
        console.say(f"{pending}: 'refusal-index requests {run} --out FILE' writes them")
