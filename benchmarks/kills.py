"""A run killed again and again: it ends complete, and nothing that was stored is asked twice.

    python -m benchmarks.kills
    python -m benchmarks.kills --engine batch --times 30

Asks the embedded model behind ``refusal-index serve``, kills the run with SIGKILL at random moments, starts the same
command again, and at last lets it end. The server counts what it answered: by the seed of each request, which no other
request of the run has. A request may be answered twice only where its reply was in flight when the run was killed, and
in batches none may. Exit status: 0 all of it held, 1 not.
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
BROKEN = ("stored and asked again", "ended otherwise than complete", "another table")


def stored_seeds(folder: Path, seed: int) -> set[int]:
    """Return the seeds of the requests whose replies the folder of a run holds."""
    path = folder / "replies.sqlite"
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute(STORED).fetchall()
        except sqlite3.OperationalError:  # its tables are not made yet
            return set()
    return {
        request_seed(seed, question_id, draw, variant, Request(Pass(of), Role(asked), (), attempt))
        for question_id, variant, of, asked, draw, attempt in rows
    }


def lived(command: Sequence[str], environment: Mapping[str, str], longest: float | None) -> int:
    """Run a command, killed with all that it started after so many seconds, and return its exit status."""
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)
    try:
        return process.wait(longest)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def carried(arguments: argparse.Namespace, number: int, folder: Path, log: Path, url: str) -> Counter[str]:
    """Carry one run out to its end, killed until that was done often enough, and return what was counted."""
    rng, counts = random.Random(f"{arguments.seed} {number}"), Counter[str](runs=1)
    command = [*COMMAND, "run", "--model", arguments.model, "--limit", str(arguments.limit), "--seed", str(number)]
    command += ["--engine", arguments.engine, "--out", str(folder)]
    command += ["--engine-option", "poll=0.2"] if arguments.engine == "batch" else []
    environment = {**os.environ, **account(url)}
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        before, stored = len(answered(log)), stored_seeds(folder, number)
        longest = rng.uniform(*arguments.after) if arguments.done + counts["kills"] < arguments.times else None
        status = lived(command, environment, longest)
        counts["kills"] += status == -signal.SIGKILL
        counts["stored and asked again"] += sum(one["seed"] in stored for one in answered(log)[before:])
    counts["ended otherwise than complete"] += status != 0
    counts["needed"] = len(stored_seeds(folder, number))
    undisturbed = folder.with_name(f"{folder.name}-undisturbed")
    alone = [*COMMAND, "run", "--limit", str(arguments.limit), "--seed", str(number)]
    lived([*alone, "--out", str(undisturbed)], environment, None)
    counts["another table"] = not table_in(folder).equals(table_in(undisturbed))
    return counts


def table_in(folder: Path) -> pl.DataFrame:
    """Return the outcome table of a run, in order; whose it is does not count: one model goes by several names."""
    return pl.read_parquet(folder / "outcomes.parquet").sort("variant", "question_id", "draw").drop("model")


def main() -> None:
    """Print what was counted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="direct", choices=["direct", "batch", "ray"])
    parser.add_argument("--model", default=MODELS["openai"], help="by Inspect: together/base; on Ray: almanac/base")
    parser.add_argument("--times", type=int, default=30, help="how often to kill")
    parser.add_argument("--after", type=float, nargs=2, default=(0.5, 6.0), help="seconds, at least and at most")
    parser.add_argument("--limit", type=int, default=300, help="questions of a run, under four prompts")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    total = Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "server.jsonl"
        with server([*COMMAND, "serve", "--port", "0"], log) as url:
            while total["kills"] < arguments.times:
                arguments.done = total["kills"]
                number = total["runs"]
                total += carried(arguments, number, folder / f"run-{number}", log, url)
                print(f"{number + 1} runs, {total['kills']} kills", flush=True)
        total["answered"] = len(answered(log))
        submitted = [one for one in map(json.loads, log.read_text().splitlines()) if one["path"].endswith("/batches")]
        total["batches submitted"] = sum(one["method"] == "POST" for one in submitted)
    twice = total["answered"] - total["needed"]
    for what in ("runs", "kills", "needed", "answered", "batches submitted"):
        print(f"{what:32s}{total[what]:8,}")
    print(f"{'answered twice':32s}{twice:8,}  replies that were in flight when a run was killed")
    for what in BROKEN:
        print(f"{what:32s}{total[what]:8,}")
    sys.exit(any(total[what] for what in BROKEN) or (arguments.engine == "batch" and twice > 0))


if __name__ == "__main__":
    main()
