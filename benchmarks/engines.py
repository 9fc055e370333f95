"""Compare the engines and clients on the same run: outcome tables row by row, number of requests, and time.

    python -m benchmarks.engines
    python -m benchmarks.engines --data simple_qa_test_set.csv

The run is the default almanac run, or all of SimpleQA if its file is given, each time in an empty folder: in this
process; against ``refusal-index serve`` on loopback with OpenAI's client, with Inspect's and in batches; through
request files that ``refusal-index run-batch`` answers; with the engine ``command`` and the same program; and with Ray
if it is installed. Requests to a server are counted at the server, others in the run's summary. Exit status: 0 all
tables are equal, 1 one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import polars as pl
from benchmarks.http_client import COMMAND, MODELS, account, answered, server

KEYS = ("variant", "question_id", "draw")
MAX_ROUNDS = 6  # more than any run needs
SERVED = (*MODELS, "batch")
RUN_BATCH = shlex.join([*COMMAND, "run-batch", "-i", "{requests}", "-o", "{replies}", "--model", "almanac/{model}"])


@dataclass(frozen=True)
class Measured:
    """The measurements of one engine or client.

    Attributes
    ----------
    engine, requests, seconds, processor
        The engine or client, the number of requests, and the wall and CPU time in seconds.
    table
        The sorted outcome table, without the model's name, which depends on the client.
    """

    engine: str
    requests: int
    seconds: float
    processor: float
    table: pl.DataFrame


def refusal_index(*arguments: str, environment: Mapping[str, str] | None = None) -> int:
    """Run a ``refusal-index`` command, and return its exit status."""
    done = subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode


def by_hand(options: Sequence[str], folder: Path) -> None:
    """Execute the run through request files, round by round."""
    refusal_index("run", *options, "--engine", "files", "--out", str(folder))
    for number in range(MAX_ROUNDS):
        requests, results = (folder.parent / f"{name}-{number}.jsonl" for name in ("requests", "results"))
        refusal_index("requests", str(folder), "--out", str(requests))
        if not requests.exists():
            return
        refusal_index("run-batch", "-i", str(requests), "-o", str(results), "--model", "almanac/base")
        refusal_index("replies", str(folder), str(results))


def measure(engine: str, options: Sequence[str], folder: Path) -> Measured:
    """Execute the run with one engine or client."""
    before, started, log = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), folder.parent / "log.jsonl"
    requests = None
    if engine == "files":
        by_hand(options, folder)
    elif engine in SERVED:
        command = [*COMMAND, "serve", "--port", "0"]
        with server(command, log) as url:
            batches = ("--engine", "batch", "--engine-option", "poll=0.5")
            more = ("--model", MODELS[engine]) if engine in MODELS else batches
            refusal_index("run", *options, *more, "--out", str(folder), environment=account(url))
            requests = len(answered(log))
    else:
        more = () if engine == "embedded" else ("--engine", engine)
        more += ("--command", RUN_BATCH) if engine == "command" else ()
        refusal_index("run", *options, *more, "--out", str(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if requests is None:
        summary = json.loads((folder / "summary.json").read_text())
        requests = sum(variant["usage"]["requests"] for variant in summary["variants"])
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    table = pl.read_parquet(folder / "outcomes.parquet").sort(KEYS).drop("model")
    return Measured(engine, requests, time.monotonic() - started, processor, table)


def main() -> None:
    """Print a row for each engine, and whether its table equals that of the first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="a local copy of the SimpleQA test set; without it, the default almanac run")
    parser.add_argument("--limit", type=int, help="number of questions")
    parser.add_argument("--engines", nargs="+", help="engines and clients to run")
    arguments = parser.parse_args()
    options = ["--limit", str(arguments.limit)] if arguments.limit else []
    if arguments.data:
        options += ["--dataset", "simpleqa", "--data", arguments.data, "--variants", "normal", "--grader", "exact"]
    engines = ["embedded", *SERVED, "files", "command", *(["ray"] if find_spec("ray") else [])]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}: {' '.join(options)}")
    print(f"{'engine':10s}{'requests':>10s}{'seconds':>10s}{'CPU s':>10s}  table")
    first: Measured | None = None
    same = True
    for engine in arguments.engines or engines:
        with tempfile.TemporaryDirectory() as name:
            one = measure(engine, options, Path(name) / "run")
        first = first or one
        equal = one.table.equals(first.table)
        same = same and equal
        verdict = f"{one.table.height:,} rows, {'equal' if equal else 'DIFFERENT'}"
        print(f"{engine:10s}{one.requests:10,}{one.seconds:10.1f}{one.processor:10.1f}  {verdict}", flush=True)
    sys.exit(not same)


if __name__ == "__main__":
    main()
