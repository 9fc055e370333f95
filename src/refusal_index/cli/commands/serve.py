"""``refusal-index serve``: the embedded models over the OpenAI chat, files and batches API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError
from refusal_index.cli.shared_options import output


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; one of another network needs --let-other-machines-in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    let_other_machines_in: Annotated[
        bool,
        typer.Option("--let-other-machines-in", help="Listen beyond this machine: whoever reaches it needs no key."),
    ] = False,
    log: Annotated[Path | None, output("Append a line of JSON for each request to this file.")] = None,
) -> None:
    """Serve the embedded models over the OpenAI chat API.

    Until Ctrl-C. They know the almanac's made-up world and nothing else: what they say about anything else is worth
    nothing. OpenAI's files and batches are there as well; they lie in a temporary folder and end with the server.
    """
    import asyncio

    from refusal_index.plugins.almanac import server

    if not (let_other_machines_in or server.is_loopback(host)):
        raise OptionError(
            f"--host: expected an address of this machine alone, such as 127.0.0.1, got {host!r}; on another one every "
            "machine that reaches it may ask, without a key: say --let-other-machines-in if that is meant"
        )
    try:
        asyncio.run(server.serve(host, port, log, _announce))
    except OSError as error:
        raise OptionError(f"{error}; choose another --host, --port or --log") from error


def _announce(url: str) -> None:
    from refusal_index.plugins.almanac.models import model_names

    served = ", ".join(f"almanac/{name}" for name in model_names())
    console.say(f"Serving {served} at {url} (Ctrl-C ends it). In another shell:")
    console.say()
    console.say(f"  export ALMANAC_BASE_URL={url} ALMANAC_API_KEY=any")
    console.say("  refusal-index run --model openai-api/almanac/base")
