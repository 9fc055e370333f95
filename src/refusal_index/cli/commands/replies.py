"""``refusal-index replies``: the results of files of requests, taken into their run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE

if TYPE_CHECKING:
    from refusal_index.plugins.batches.spool import Trouble
    from refusal_index.runs.files import Received


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
    from refusal_index.runs.files import take_replies
    from refusal_index.runs.plan import reopened
    from refusal_index.runs.settings import Settings

    received = take_replies(reopened(run, Settings(), prompts), files)
    _tell(received, run)
    complete = received.run is not None and received.run.is_complete
    if received.run is not None:
        from refusal_index.cli.runs import show_run

        console.say()
        show_run(received.run, as_json=False)
    if not complete or received.left_out:
        raise typer.Exit(INCOMPLETE)


def _tell(received: Received, run: Path) -> None:
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
