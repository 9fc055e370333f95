"""One run by every engine and client: the same outcome table row by row, the requests each took, and the time.

    python -m benchmarks.engines
    python -m benchmarks.engines --data simple_qa_test_set.csv

The default almanac run, or all of SimpleQA where its file is given, by each engine and client in an empty folder:
within the process, by OpenAI's client, by Inspect's and in batches against ``refusal-index serve`` on loopback, by
files of requests that ``refusal-index run-batch`` answers, by the engine ``command`` with the same program, and by
Ray where it is installed. Requests to a server are counted at the server, others by the run's own summary. Exit
status: 0 all tables are equal, 1 one differs.
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
WAVES = 6  # more than any run takes
SERVED = (*MODELS, "batch")
RUN_BATCH = shlex.join([*COMMAND, "run-batch", "-i", "{requests}", "-o", "{replies}", "--model", "almanac/{model}"])


@dataclass(frozen=True)
class Measured:
    """What one engine made of the run.

    Attributes
    ----------
    engine, requests, seconds, processor
        Which engine or client carried it, how many requests it took, and how long, in all and on the processor.
    table
        The outcome table, in order; without the model's name, of which the embedded one has several.
    """

    engine: str
    requests: int
    seconds: float
    processor: float
    table: pl.DataFrame


def refusal_index(*arguments: str, environment: Mapping[str, str] | None = None) -> int:
    """Run a command of the command line, and return its exit status."""
    found = subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, check=False
    )
    return found.returncode


def by_hand(options: Sequence[str], folder: Path) -> None:
    """Have the run asked by files of requests, wave by wave."""
    refusal_index("run", *options, "--engine", "files", "--out", str(folder))
    for number in range(WAVES):
        asked, came = (folder.parent / f"{name}-{number}.jsonl" for name in ("requests", "results"))
        refusal_index("requests", str(folder), "--out", str(asked))
        if not asked.exists():
            return
        refusal_index("run-batch", "-i", str(asked), "-o", str(came), "--model", "almanac/base")
        refusal_index("replies", str(folder), str(came))


def measure(engine: str, options: Sequence[str], folder: Path) -> Measured:
    """Carry the run out by one engine."""
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
        requests = sum(one["usage"]["requests"] for one in summary["variants"])
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    table = pl.read_parquet(folder / "outcomes.parquet").sort(KEYS).drop("model")
    return Measured(engine, requests, time.monotonic() - started, processor, table)


def main() -> None:
    """Print a row for each engine, and whether its table is that of the first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="a local copy of the SimpleQA test set; without it, the default almanac run")
    parser.add_argument("--limit", type=int, help="only so many questions")
    parser.add_argument("--engines", nargs="+", help="some of them")
    arguments = parser.parse_args()
    options = ["--limit", str(arguments.limit)] if arguments.limit else []
    if arguments.data:
        options += ["--dataset", "simpleqa", "--data", arguments.data, "--variants", "normal", "--grader", "exact"]
    known = ["embedded", *SERVED, "files", "command", *(["ray"] if find_spec("ray") else [])]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}: {' '.join(options)}")
    print(f"{'engine':10s}{'requests':>10s}{'seconds':>10s}{'CPU s':>10s}  table")
    first: Measured | None = None
    same = True
    for engine in arguments.engines or known:
        with tempfile.TemporaryDirectory() as name:
            found = measure(engine, options, Path(name) / "run")
        first = first or found
        equal = found.table.equals(first.table)
        same = same and equal
        said = f"{found.table.height:,} rows, {'equal' if equal else 'DIFFERENT'}"
        print(f"{engine:10s}{found.requests:10,}{found.seconds:10.1f}{found.processor:10.1f}  {said}", flush=True)
    sys.exit(not same)


if __name__ == "__main__":
    main()
