"""CPU time and memory of P(Answering): many samples per question, as choices of one request or one per request.

    python -m benchmarks.many_choices

Starts ``refusal-index serve`` on loopback and runs ``refusal-index run --draws 100`` on the almanac with one variant:
with all samples as choices of one request, then with ``--max-choices 1`` and fewer questions, since that is slow. Each
run has its own process. Its CPU time (user and system) and peak memory are those reported by the operating system; they
include everything but the server: sending requests, logs, the reply store and the results. The time of a run with a
single question, which is start-up, is subtracted. Requests are counted at the server. Memory is sampled ten times a
second: its peak until the last response, and overall, which includes the results with a row per question and sample.
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

MEBIBYTE = 1024  # in kibibytes, the unit of the operating system


@dataclass(frozen=True)
class Measured:
    """The measurements of one run.

    Attributes
    ----------
    questions, completions, requests
        Number of questions, of completions in both passes, and of requests counted by the server.
    cpu
        User and system time in seconds.
    asking, memory
        Peak resident memory in MiB until the last response, and overall.
    """

    questions: int
    completions: int
    requests: int
    cpu: float
    asking: float
    memory: float

    def per_thousand(self, start: Measured) -> float:
        """Return the CPU seconds per thousand completions, without start-up."""
        return 1000 * (self.cpu - start.cpu) / self.completions


@contextmanager
def bench(connections: int) -> Iterator[Bench]:
    """Run the server and yield a `Bench` for it, with a temporary folder."""
    with (
        tempfile.TemporaryDirectory() as name,
        server([*COMMAND, "serve", "--port", "0"], Path(name) / "server.jsonl") as url,
    ):
        yield Bench(Path(name), url, connections)


@dataclass(frozen=True)
class Bench:
    """Measures runs against a server; `folder` holds the server's log."""

    folder: Path
    url: str
    connections: int

    def measure(self, questions: int, draws: int, max_choices: int) -> Measured:
        """Run the evaluation in its own process."""
        out = self.folder / f"{questions}-{draws}-{max_choices}"
        log = self.folder / "server.jsonl"
        before = len(answered(log)) if log.exists() else 0
        command = [*COMMAND, "run", "--model", "base", "--variants", "normal", "--grader", "exact"]
        command += ["--limit", str(questions), "--draws", str(draws), "--max-choices", str(max_choices)]
        command += [
            "--base-url",
            self.url,
            "--max-connections",
            str(self.connections),
            "--attempt-timeout",
            "600",
            "--out",
            str(out),
        ]
        with (
            (self.folder / "output.txt").open("w+") as output,
            subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            samples = list(memory_samples(process.pid))
            _, status, used = os.wait4(process.pid, 0)  # this process only, unlike RUSAGE_CHILDREN
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode in (0, 1), (output.seek(0), output.read())  # 1: more than 2% unscored
        last = json.loads(log.read_text().splitlines()[-1])["time"]
        return Measured(
            questions,
            2 * draws * questions if draws > 1 else questions,  # with several draws, each draw has a forced pass
            len(answered(log)) - before,
            used.ru_utime + used.ru_stime,
            max((memory for time, memory in samples if time <= last), default=0.0),
            used.ru_maxrss / MEBIBYTE,
        )


def memory_samples(process_id: int) -> Iterator[tuple[str, float]]:
    """Yield the time and the resident memory in MiB of a process until it ends."""
    while os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
        yield datetime.now(UTC).isoformat(timespec="milliseconds"), pages * resource.getpagesize() / 1024 / MEBIBYTE
        time.sleep(0.1)


def main() -> None:
    """Print the figures of both ways, their ratio, and the memory with a fifth and with all of the questions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_choices", description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, default=500, help="questions with many choices per request")
    parser.add_argument("--single-questions", type=int, default=25, help="questions with one request per sample")
    parser.add_argument("--draws", type=int, default=100, help="samples per question")
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    fewer = max(1, arguments.questions // 5)
    with bench(arguments.connections) as runs:
        start = runs.measure(1, 1, 1)
        few = runs.measure(fewer, arguments.draws, arguments.draws)
        many = runs.measure(arguments.questions, arguments.draws, arguments.draws)
        single = runs.measure(arguments.single_questions, arguments.draws, 1)
    print(f"{platform.machine()}, Python {platform.python_version()}, inspect-ai {version('inspect-ai')}")
    print(f"{arguments.draws} samples per question and pass; start-up of {start.cpu:.1f} CPU s is subtracted")
    head = ("questions", "completions", "requests", "CPU s", "per 1,000", "MiB sending", "MiB overall")
    print(f"{'':26}{''.join(f'{name:>12}' for name in head)}")
    for name, one in (("many choices per request", few), ("", many), ("one request per sample", single)):
        print(
            f"{name:26}{one.questions:12,}{one.completions:12,}{one.requests:12,}{one.cpu - start.cpu:12.1f}"
            f"{one.per_thousand(start):12.3f}{one.asking:12.0f}{one.memory:12.0f}"
        )
    ratio = single.per_thousand(start) / many.per_thousand(start)
    print(f"\nrequests per question and pass: {many.requests / many.questions / 2:.2f}")
    print(f"CPU time per completion, one per request over many: {ratio:.1f}")
    print(
        f"memory with {many.questions:,} questions less that with {few.questions:,}: "
        f"{many.asking - few.asking:+.0f} MiB while sending, {many.memory - few.memory:+.0f} MiB overall"
    )


if __name__ == "__main__":
    main()
