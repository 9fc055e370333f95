"""Runs of many questions: `python -m benchmarks.many_questions [--questions 10000 100000] [--over-http]`.

A model function, or with `--over-http` the same model behind a server on loopback, answers or refuses each question;
refused questions are forced. Wall time, CPU time (user and system) and peak memory are those of the whole command.
Every outcome and reply is compared with the model's planned answers. Exit status: 0 if all are equal, else 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import polars as pl
from benchmarks.estimator import processor
from benchmarks.http_client import COMMAND
from tests.faults.api import FakeApi
from tests.faults.scenario_run import PLACE, TEXTS, VERDICTS
from tests.faults.world import KEY, answer, planted, write_questions

SIZES = (10_000, 100_000)
FUNCTION, OVER_HTTP = "python:tests.faults.world:reply", "any"
OPTIONS = ("--variants", "normal", "--grader", "exact", "--draws", "1")
MEBIBYTE = 1024  # in kibibytes, the unit of the operating system
ROOT = Path(__file__).parents[1]


def measure(number: int, *, over_http: bool, connections: int) -> int:
    """Run the command over so many questions, print the figures, and return how many outcomes are not as planted."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        questions, out = Path(name, "questions.csv"), Path(name, "run")
        write_questions(questions, number)
        model = OVER_HTTP if over_http else FUNCTION
        command = [*COMMAND, "run", "--model", model, "--data", str(questions), "--out", str(out), *OPTIONS]
        command += ["--max-connections", str(connections)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        if over_http:
            url = stack.enter_context(FakeApi(answer)).url
            environment["FAKE_API_KEY"] = KEY
            command += ["--base-url", url, "--api-key-env", "FAKE_API_KEY"]
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        wall, cpu = time.perf_counter() - start, used.ru_utime + used.ru_stime
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"the command ended with {os.waitstatus_to_exitcode(status)}")
        expected = planted(number).select(*PLACE, *VERDICTS, *TEXTS)
        found = pl.read_parquet(out / "outcomes.parquet", columns=expected.columns)
        others = expected.join(found, on=expected.columns, how="anti", nulls_equal=True).height
        size = sum(path.stat().st_size for path in out.iterdir()) / 2**20
    requests = number + number // 2
    figures = f"{wall:9.1f}{cpu:9.1f}{cpu / requests * 1e3:9.2f}{used.ru_maxrss / MEBIBYTE:8.0f}{size:8.0f}"
    print(f"{number:10,}{requests:11,}{figures}{others + abs(found.height - number):8,}", flush=True)
    return others + abs(found.height - number)


def main() -> int:
    """Print the figures of each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_questions", description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, nargs="+", default=SIZES)
    parser.add_argument("--over-http", action="store_true", help="ask a server instead of calling a function")
    parser.add_argument("--connections", type=int, default=100, help="requests in flight")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}\n{processor()}, {platform.system()}\n")
    heads = f"{'wall s':>9}{'CPU s':>9}{'CPU ms':>9}{'MiB':>8}{'disk':>8}{'wrong':>8}"
    print(f"{'questions':>10}{'requests':>11}{heads}")
    others = 0
    for number in arguments.questions:
        others += measure(number, over_http=arguments.over_http, connections=arguments.connections)
    return int(others > 0)


if __name__ == "__main__":
    sys.exit(main())
