"""The command line: parse, call, print."""

from __future__ import annotations

import os
import signal
import stat
from contextlib import suppress

import typer

from refusal_index.cli.console import filter_streams, print_no_more
from refusal_index.cli.groups import LazyGroup, new_group

app = new_group(
    cls=LazyGroup,
    name="refusal-index",
    help="Does a language model know what it does not know? Measure its Refusal Index in two passes.",
    no_args_is_help=True,
)


def _version(show: bool) -> None:
    if show:
        from refusal_index.version import __version__

        typer.echo(f"refusal-index {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Measure the Refusal Index of a language model."""


def _interrupted(*_: object) -> None:
    """Do what Ctrl-C does, also where that itself is ignored, as in a script's background."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):  # a terminal that was closed
                print_no_more(descriptor)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def main() -> None:
    """Run the command line.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 3 inconclusive (gate only), 130 interrupted.
    """
    filter_streams()
    # A cluster sends SIGTERM, a terminal that is closed SIGHUP, which nohup ignores: from the first moment on like
    # Ctrl-C, and no more once the exit status stands.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ending = [
        number for number in numbers if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in ending:
        signal.signal(number, _interrupted)
    try:
        app()
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_IGN)
