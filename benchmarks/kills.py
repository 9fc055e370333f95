"""Kill a run repeatedly, and check that it ends complete and requests nothing twice that was stored.

    python -m benchmarks.kills
    python -m benchmarks.kills --engine batch --times 30

The run uses the embedded model behind ``refusal-index serve``. It is killed with SIGKILL at random moments, resumed
with the same command, and finally left to end. The server's log identifies each request by its seed, which is unique in
the run. A request may be answered twice only if it was in flight when the run was killed, and never in batches. Exit
status: 0 all of this holds, 1 it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL

import polars as pl
from benchmarks.http_client import COMMAND, MODELS, account, answered, server

from refusal_index.protocol import Pass, Request, Role, request_seed

STORED = "SELECT question_id, variant, pass, asked, draw, attempt FROM replies"
BROKEN = ("stored and requested again", "not complete", "different table")


def stored_seeds(folder: Path, seed: int) -> set[int]:
    """Return the seeds of the requests whose replies are stored in a run's folder."""
    path = folder / "replies.sqlite"
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute(STORED).fetchall()
        except sqlite3.OperationalError:  # the tables do not exist yet
            return set()
    return {
        request_seed(seed, question_id, draw, variant, Request(Pass(of), Role(asked), (), attempt))
        for question_id, variant, of, asked, draw, attempt in rows
    }


def run_for(command: Sequence[str], environment: Mapping[str, str], seconds: float | None) -> int:
    """Run a command, kill its process group after some seconds (None: never), and return the exit status."""
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def execute(arguments: argparse.Namespace, number: int, folder: Path, log: Path, url: str) -> Counter[str]:
    """Execute one run to its end, killing it until there were enough kills, and return the counts."""
    rng, counts = random.Random(f"{arguments.seed} {number}"), Counter[str](runs=1)
    command = [*COMMAND, "run", "--model", arguments.model, "--limit", str(arguments.limit), "--seed", str(number)]
    command += ["--engine", arguments.engine, "--out", str(folder)]
    command += ["--engine-option", "poll=0.2"] if arguments.engine == "batch" else []
    environment = {**os.environ, **account(url)}
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        before, stored = len(answered(log)), stored_seeds(folder, number)
        seconds = rng.uniform(*arguments.after) if arguments.done + counts["kills"] < arguments.times else None
        status = run_for(command, environment, seconds)
        counts["kills"] += status == -signal.SIGKILL
        counts["stored and requested again"] += sum(one["seed"] in stored for one in answered(log)[before:])
    counts["not complete"] += status != 0
    counts["needed"] = len(stored_seeds(folder, number))
    undisturbed = folder.with_name(f"{folder.name}-undisturbed")
    alone = [*COMMAND, "run", "--limit", str(arguments.limit), "--seed", str(number)]
    run_for([*alone, "--out", str(undisturbed)], environment, None)
    counts["different table"] = not table_in(folder).equals(table_in(undisturbed))
    return counts


def table_in(folder: Path) -> pl.DataFrame:
    """Return the sorted outcome table of a run, without the model's name, which depends on the client."""
    return pl.read_parquet(folder / "outcomes.parquet").sort("variant", "question_id", "draw").drop("model")


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="direct", choices=["direct", "batch", "ray"])
    parser.add_argument("--model", default=MODELS["openai"], help="with Inspect: together/base; on Ray: almanac/base")
    parser.add_argument("--times", type=int, default=30, help="number of kills")
    parser.add_argument(
        "--after", type=float, nargs=2, default=(0.5, 6.0), help="minimum and maximum seconds until a kill"
    )
    parser.add_argument("--limit", type=int, default=300, help="questions per run, with four prompts")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of kills")
    arguments = parser.parse_args()
    total = Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "server.jsonl"
        with server([*COMMAND, "serve", "--port", "0"], log) as url:
            while total["kills"] < arguments.times:
                arguments.done = total["kills"]
                number = total["runs"]
                total += execute(arguments, number, folder / f"run-{number}", log, url)
                print(f"{number + 1} runs, {total['kills']} kills", flush=True)
        total["answered"] = len(answered(log))
        submitted = [one for one in map(json.loads, log.read_text().splitlines()) if one["path"].endswith("/batches")]
        total["batches submitted"] = sum(one["method"] == "POST" for one in submitted)
    twice = total["answered"] - total["needed"]
    for what in ("runs", "kills", "needed", "answered", "batches submitted"):
        print(f"{what:32s}{total[what]:8,}")
    print(f"{'answered twice':32s}{twice:8,}  in flight when a run was killed")
    for what in BROKEN:
        print(f"{what:32s}{total[what]:8,}")
    sys.exit(any(total[what] for what in BROKEN) or (arguments.engine == "batch" and twice > 0))


if __name__ == "__main__":
    main()
