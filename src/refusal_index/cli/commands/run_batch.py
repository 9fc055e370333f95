"""``refusal-index run-batch``: a file of requests for an embedded model, as ``vllm run-batch`` takes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError, one_of
from refusal_index.cli.shared_options import output

SHOWN, LONGEST = 3, 200  # reasons of failures, and their characters


def run_batch(
    input_file: Annotated[
        Path, typer.Option("--input-file", "-i", help="Requests in OpenAI's batch format, one a line.")
    ],
    output_file: Annotated[
        Path, output("What came of them, in the same order.", "--output-file", "-o", own="waves")  # --engine command
    ],
    model: Annotated[str, typer.Option(help="The embedded model that answers, as 'ls' names it.")],
    output_tmp_dir: Annotated[
        Path | None, typer.Option(help="Accepted as vLLM does, which needs it for results that it uploads only.")
    ] = None,
) -> None:
    """Answer a file of requests as vllm run-batch does.

    For trying what drives vLLM without a GPU. Takes /v1/chat/completions only. Requests that fail stand in the same
    file with their status and error. The file is written at the end, whole or not at all.
    Exit status: 0 done, even if requests failed, 1 the file cannot be written, 2 bad input.
    """
    from refusal_index.plugins.almanac.errors import BatchLineError

    if output_tmp_dir is not None:
        console.note(f"--output-tmp-dir: not used, since the results go to a file of this machine, {output_file}")
    if not input_file.is_file():
        raise OptionError(f"--input-file: expected a file of requests, got {input_file}, which is none")
    if input_file.resolve() == output_file.resolve():
        raise OptionError(f"--output-file: {output_file} is the input and would be lost; choose another name")
    try:
        total, failed = _run(input_file, output_file, _name(model))
    except BatchLineError as error:
        raise OptionError(f"--input-file: {input_file}, line {error.line}: {error}") from error
    count = failed.total()
    console.note(f"{output_file}: {total:,} requests{f', {count:,} of which failed' if count else ''}")
    for message, times in failed.most_common(SHOWN):
        console.note(f"  {times:,} failed: {message[:LONGEST]}")
    if len(failed) > SHOWN:
        console.note(f"  and for {len(failed) - SHOWN:,} more reasons, in the file")


def _name(model: str) -> str:
    from refusal_index.plugins.almanac import ALMANAC
    from refusal_index.plugins.almanac.models import model_names

    return one_of("--model", model, [f"{ALMANAC}/{name}" for name in model_names()]).removeprefix(f"{ALMANAC}/")


def _run(source: Path, target: Path, name: str) -> tuple[int, Counter[str]]:
    """Return how many requests there were, and how many of them failed for which reason."""
    import asyncio

    from refusal_index.plugins.almanac.batch_lines import ModelPool, count_requests, run_batch
    from refusal_index.plugins.almanac.models import model_folder
    from refusal_index.runs.progress import counting

    total, pool = count_requests(source), ModelPool([name], model_folder)
    try:
        with counting(console.terminal(stderr=True), "Running batch", total) as answered:
            return total, asyncio.run(run_batch(pool, source, target, answered))
    finally:
        pool.close()
