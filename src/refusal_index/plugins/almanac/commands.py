"""``refusal-index serve`` and ``run-batch``: embedded models over the OpenAI API, or on a batch file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import output

MAX_REASONS = 3  # failures that are shown
MAX_LENGTH = 200  # characters of each


def serve(
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    let_other_machines_in: bool = False,
    log: Annotated[Path | None, output()] = None,
) -> None:
    """Serve the embedded models over the OpenAI API.

    Runs until Ctrl-C. The models know only the fictional world of the almanac; their answers to other questions are
    meaningless. The Files and Batch APIs work too; their data is in a temporary folder, deleted when the server stops.

    - `host`: Address to listen on; one that other machines can reach requires --let-other-machines-in.
    - `port`: Port to listen on; 0 chooses a free one.
    - `let_other_machines_in`: Allow an address that other machines can reach, without an API key.
    - `log` FILE: Append a line of JSON for each request to this file.
    """
    import asyncio

    from refusal_index.plugins.almanac import server

    if not (let_other_machines_in or server.is_loopback(host)):
        raise console.OptionError(
            f"--host: expected an address of this machine only, such as 127.0.0.1, got {host!r}; add "
            "--let-other-machines-in to serve other machines without an API key"
        )
    try:
        asyncio.run(server.serve(host, port, log, _announce))
    except OSError as error:
        raise console.OptionError(f"{error}; choose another --host, --port or --log") from error


def _announce(url: str) -> None:
    from refusal_index.plugins.almanac.models import MODEL_NAMES

    served = ", ".join(f"almanac/{name}" for name in MODEL_NAMES)
    console.say(f"Serving {served} at {url} (Ctrl-C to stop). In another shell:")
    console.say()
    console.say(f"  refusal-index run --model almanac/base --base-url {url}")


def run_batch(
    input_file: Annotated[Path, typer.Option("-i")],
    output_file: Annotated[Path, output("-o", allowed="rounds")],
    model: str,
    output_tmp_dir: Path | None = None,
) -> None:
    """Answer a batch file with an embedded model.

    Has the same interface as 'vllm run-batch', so programs that call it can be tested without a GPU. Accepts
    /v1/chat/completions only. Failed requests appear in the output file with their status and error. The file is
    written once all requests are done.

    Exit status: 0 done, even if requests failed, 1 the file cannot be written, 2 bad input.

    - `input_file` FILE: Requests in OpenAI's batch format, one per line.
    - `output_file` FILE: File for the results, in the same order.
    - `model`: Embedded model, as 'refusal-index ls' names it.
    - `output_tmp_dir`: Accepted for compatibility with vLLM, and ignored.
    """
    import asyncio

    from refusal_index.plugins.almanac import ALMANAC, BatchLineError
    from refusal_index.plugins.almanac.chat_api import ModelPool, answer_file, count_requests
    from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder
    from refusal_index.runs.progress import counting

    if output_tmp_dir is not None:
        console.note(f"--output-tmp-dir: ignored; the results go to {output_file}")
    if not input_file.is_file():
        raise console.OptionError(f"--input-file: expected a file of requests, got {input_file}, which is not a file")
    if input_file.resolve() == output_file.resolve():
        raise console.OptionError(f"--output-file: {output_file} is the input file; choose another name")
    name = console.one_of("--model", model, [f"{ALMANAC}/{name}" for name in MODEL_NAMES]).removeprefix(f"{ALMANAC}/")
    pool = ModelPool([name], model_folder)
    try:
        total = count_requests(input_file)
        with counting(console.terminal(stderr=True), "Running batch", total) as answered:
            failed = asyncio.run(answer_file(pool, input_file, output_file, answered))
    except BatchLineError as error:
        raise console.OptionError(f"--input-file: {input_file}, line {error.line}: {error}") from error
    count = failed.total()
    console.note(f"{output_file}: {total:,} requests{f', {count:,} of which failed' if count else ''}")
    for message, times in failed.most_common(MAX_REASONS):
        console.note(f"  {times:,} failed: {message[:MAX_LENGTH]}")
    if len(failed) > MAX_REASONS:
        console.note(f"  see the file for {len(failed) - MAX_REASONS:,} more kinds of failure")
