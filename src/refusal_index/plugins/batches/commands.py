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
    from refusal_index.plugins.batches.request_files import Received, Written
    from refusal_index.plugins.batches.spool import Trouble


@takes_settings("max_choices", "logprobs")
def requests(
    run: Annotated[Path, typer.Argument(help="The folder of a run; 'run --engine files' begins one.", metavar="RUN")],
    out: Annotated[
        Path,
        output("Where to write them; further files are called alike, with numbers.", metavar="FILE"),
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="openai, compatible (as vLLM and other servers take it) or anthropic. "
            "[default: what the provider of the model takes]",
        ),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="The run's prompt set, where it is a file of yours.", metavar="FILE")
    ] = None,
    *,
    values: Mapping[str, Any],
) -> None:
    """Write what a run asks next into files for batches.

    All questions go together: first every first pass, then what needs grading, then the forced passes, then their
    grades. Hand each file to its provider's batches, to 'vllm run-batch' or to 'refusal-index run-batch', and its
    results to 'refusal-index replies'; then write the next wave. A file holds requests to one model, and as many as
    the format allows. Exit status: 0 done, 2 bad input.
    """
    from refusal_index.plugins.batches.request_files import reopened, write_requests
    from refusal_index.runs.settings import Settings

    written = write_requests(reopened(run, Settings.of(**values), prompts), out, format_)
    _show_written(written, run, logprobs=bool(values.get("logprobs")))


def _show_written(written: Written, run: Path, *, logprobs: bool) -> None:
    from refusal_index.render.blocks import Table

    for name, count in written.functions.items():
        console.note(f"note: {count:,} requests are to {name}, a function, which no file can ask: run --engine direct")
    for style in dict.fromkeys(one.style for one in written.files):
        lacks = [one for one in style.leaves_out if logprobs or one != "logprobs"]
        if lacks:
            console.note(f"note: {style.name}'s format takes no {', '.join(lacks)}: replies come without")
    if not written.files and not written.functions:
        console.say(f"{run}: nothing is due; 'refusal-index score {run}' prints its results")
    if not written.files:
        return
    rows = [
        (str(one.path), one.model, one.style.name, f"{one.requests:,}", f"{one.size / 1e6:.1f} MB")
        for one in written.files
    ]
    console.show([Table.of(("file", "model", "format", "requests", "size"), rows, left=("file", "model", "format"))])
    console.say()
    console.say(f"Take their results in with: refusal-index replies {run} FILE...")


def replies(
    run: Annotated[Path, typer.Argument(help="The folder of the run whose requests they answer.", metavar="RUN")],
    files: Annotated[
        list[Path],
        typer.Argument(help="Results as OpenAI, Anthropic or vLLM write them.", metavar="FILE"),
    ],
    prompts: Annotated[
        str | None, typer.Option(help="The run's prompt set, where it is a file of yours.", metavar="FILE")
    ] = None,
) -> None:
    """Take the results of request files into their run.

    In any order and as often as one likes, as OpenAI, Anthropic or vLLM write them.

    What failed stays due, and goes with the next wave. A result whose request is not this run's, or that contradicts a
    reply that is there, is named and left out. Once nothing is due the results are written and printed. Exit status: 0
    done, 1 something is still due or was left out, 2 bad input.
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
    taken = received.taken
    there = f", {taken.there:,} {'was' if taken.there == 1 else 'were'} there before" if taken.there else ""
    console.say(f"{run}: {_number(taken.replies, 'reply', 'replies')} taken in{there}")
    for path in received.empty:
        console.note(f"{path} is empty: whoever answers the requests has written nothing into it, or not yet")
    for message, count in received.failures.most_common(5):
        console.say(f"  {_number(count, 'request')} failed and stay{'s' if count == 1 else ''} due: {message}")
    if received.stray.count:
        console.say(
            f"  {_number(received.stray.count, 'failure')} of requests that this run does not or no longer have"
        )
    _name("hold no result", received.unreadable)
    _name("contradict an earlier result", received.contradicting)
    _name("are another reply than the one that is kept", received.differing)
    _name("are of no request of this run", received.unknown)
    due = f"{_number(received.pending, 'request')} {'is' if received.pending == 1 else 'are'} due"
    if received.in_flight is not None and received.pending:
        console.say(f"{due}, and {received.in_flight}: the run's own command with --engine batch collects the results")
    elif received.pending:
        console.say(f"{due}: 'refusal-index requests {run} --out FILE' writes them")


def _number(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _name(what: str, trouble: Trouble) -> None:
    if not trouble.count:
        return
    console.note(f"left out: {trouble.count:,} {what}")
    for one in trouble.named:
        console.note(f"  {one}")
    if trouble.count > len(trouble.named):
        console.note(f"  and {trouble.count - len(trouble.named):,} more")
