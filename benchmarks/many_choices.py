"""Processor time and memory of P(Answering): many samples a question, as choices of one request or one by one.

    python -m benchmarks.many_choices

Starts ``refusal-index serve`` on loopback and asks it the almanac's questions through ``refusal-index run --draws 100``
under one variant: with as many choices a request as samples, then with ``--max-choices 1``. Every run is a process of
its own; what counts is the user and system time and the peak memory that the operating system booked for it, which
takes in everything but the server: asking, logs, the store of replies and results. From the time, that of a run over a
single question is taken off, which is what starting costs. One request a sample takes so long that fewer questions must
do; requests are counted at the server. Memory is looked at ten times a second; until the last response it is what
asking takes, and afterwards there are the results, a table with one row a question and sample.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.http_client import COMMAND, answered, server

MEBIBYTE = 1024  # the operating system counts in kibibytes


@dataclass(frozen=True)
class Measured:
    """What one run took.

    Attributes
    ----------
    questions, completions, requests
        How much was asked: completions in both passes, requests as the server counted them.
    cpu
        User and system time, in seconds.
    asking, memory
        Peak resident memory, in MiB: until the last response, and in all.
    """

    questions: int
    completions: int
    requests: int
    cpu: float
    asking: float
    memory: float

    def per_thousand(self, start: Measured) -> float:
        """Seconds for a thousand completions, without what starting took."""
        return 1000 * (self.cpu - start.cpu) / self.completions


@contextmanager
def bench(connections: int) -> Iterator[Bench]:
    """Run the server and give what measures runs against it, in a folder that goes afterwards."""
    with (
        tempfile.TemporaryDirectory() as name,
        server([*COMMAND, "serve", "--port", "0"], Path(name) / "server.jsonl") as url,
    ):
        yield Bench(Path(name), url, connections)


@dataclass(frozen=True)
class Bench:
    """Measures runs against a server whose log is in `folder`."""

    folder: Path
    url: str
    connections: int

    def measure(self, questions: int, draws: int, max_choices: int) -> Measured:
        """Run the evaluation in a process of its own."""
        out = self.folder / f"{questions}-{draws}-{max_choices}"
        log = self.folder / "server.jsonl"
        before = len(answered(log)) if log.exists() else 0
        command = [*COMMAND, "run", "--model", "openai-api/almanac/base", "--variants", "normal", "--grader", "exact"]
        command += ["--limit", str(questions), "--draws", str(draws), "--max-choices", str(max_choices)]
        command += ["--max-connections", str(self.connections), "--attempt-timeout", "600", "--out", str(out)]
        environment = {**os.environ, "ALMANAC_BASE_URL": self.url, "ALMANAC_API_KEY": "none"}
        with (
            (self.folder / "said.txt").open("w+") as said,
            subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT) as process,
        ):
            seen = list(watched(process.pid))
            _, status, used = os.wait4(process.pid, 0)  # of this process alone, unlike RUSAGE_CHILDREN
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode in (0, 1), (said.seek(0), said.read())  # 1: more than 2 % unscored
        last = json.loads(log.read_text().splitlines()[-1])["time"]
        return Measured(
            questions,
            2 * draws * questions if draws > 1 else questions,  # what is drawn repeatedly is forced in every draw
            len(answered(log)) - before,
            used.ru_utime + used.ru_stime,
            max((memory for time, memory in seen if time <= last), default=0.0),
            used.ru_maxrss / MEBIBYTE,
        )


def watched(process_id: int) -> Iterator[tuple[str, float]]:
    """Yield the time and the resident memory of a process until it ends."""
    while os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
        yield datetime.now(UTC).isoformat(timespec="milliseconds"), pages * resource.getpagesize() / 1024 / MEBIBYTE
        time.sleep(0.1)


def main() -> None:
    """Print what each way takes, their ratio, and the memory at a fifth of the questions and at all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_choices", description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, default=500, help="asked with many choices a request")
    parser.add_argument("--single-questions", type=int, default=25, help="asked with one request a sample")
    parser.add_argument("--draws", type=int, default=100, help="samples a question")
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    fewer = max(1, arguments.questions // 5)
    with bench(arguments.connections) as runs:
        start = runs.measure(1, 1, 1)
        few = runs.measure(fewer, arguments.draws, arguments.draws)
        many = runs.measure(arguments.questions, arguments.draws, arguments.draws)
        single = runs.measure(arguments.single_questions, arguments.draws, 1)
    print(f"{platform.machine()}, Python {platform.python_version()}, inspect-ai {version('inspect-ai')}")
    print(f"{arguments.draws} samples a question and pass; starting takes {start.cpu:.1f} CPU s and is taken off")
    head = ("questions", "completions", "requests", "CPU s", "a thousand", "MiB asking", "MiB in all")
    print(f"{'':24}{''.join(f'{name:>12}' for name in head)}")
    for name, one in (("many choices a request", few), ("", many), ("one request a sample", single)):
        print(
            f"{name:24}{one.questions:12,}{one.completions:12,}{one.requests:12,}{one.cpu - start.cpu:12.1f}"
            f"{one.per_thousand(start):12.3f}{one.asking:12.0f}{one.memory:12.0f}"
        )
    print(f"\nrequests a question and pass: {many.requests / many.questions / 2:.2f}")
    print(f"processor time a completion, one by one against many: {_ratio(single, many, start):.1f} times")
    print(
        f"memory at {many.questions:,} questions against {few.questions:,}: {many.asking - few.asking:+.0f} MiB while "
        f"asking, {many.memory - few.memory:+.0f} MiB in all"
    )


def _ratio(single: Measured, many: Measured, start: Measured) -> float:
    return single.per_thousand(start) / many.per_thousand(start)


if __name__ == "__main__":
    main()
