"""``refusal-index requests``: what a run asks next, as files for any executor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import output, takes_settings

if TYPE_CHECKING:
    from refusal_index.runs.files import Written


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
    from refusal_index.runs.files import write_requests
    from refusal_index.runs.plan import reopened
    from refusal_index.runs.settings import Settings

    written = write_requests(reopened(run, Settings.of(**values), prompts), out, format_)
    _show(written, run, logprobs=bool(values.get("logprobs")))


def _show(written: Written, run: Path, *, logprobs: bool) -> None:
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
