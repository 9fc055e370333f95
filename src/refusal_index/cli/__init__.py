"""The command line: parse, call, print."""

from __future__ import annotations

import signal

import typer

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
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def main() -> None:
    """Run the command line.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.
    """
    from refusal_index.cli.console import filter_streams

    filter_streams()
    # As a cluster ends a command: from its first moment on like Ctrl-C, and no more once its exit status stands.
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        app()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
