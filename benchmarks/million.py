"""A million questions through request files: `python -m benchmarks.million [--questions 250000 500000 1000000]`.

A run of four variants is executed through request files with simulated replies: its questions are recorded, the pending
round is written as requests, simulated results are loaded (two rounds: first passes, then forced passes), and the
outcome table is derived. Each stage runs in its own process, whose wall time, CPU time (user and system) and peak
memory are printed beside those of Polars reading and writing the same bytes. Times should grow in proportion to the
number of questions, and memory should not grow.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from zlib import crc32

import polars as pl
from benchmarks.estimator import processor

from refusal_index.data.datasets import Dataset
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.plugins.batches.request_files import Reopened, reopened, take_replies, write_requests
from refusal_index.runs.plan import prepare
from refusal_index.runs.rebuild import rebuild
from refusal_index.runs.results import derive_into
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import open_store

SIZES = (250_000, 500_000, 1_000_000)
VARIANTS = "low,normal,high,highest"
REFUSED = 3  # tenths of the first passes
QUESTION = re.compile(rb"in which it met (\d+) times")
CHUNK_SIZE = 10_000
MEBIBYTE = 1024  # in kibibytes, the unit of the operating system


@dataclass(frozen=True)
class Measured:
    """The measurements of one process.

    Attributes
    ----------
    wall, cpu
        Wall time and CPU time of the work, in seconds.
    memory
        Peak resident memory of the process, in MiB.
    requests
        Number of requests written, results loaded, or replies from which outcomes were derived.
    """

    wall: float
    cpu: float
    memory: float
    requests: int


class Place:
    """The files of one size."""

    def __init__(self, folder: Path) -> None:
        self.run, self.out = RunFolder(folder / "run"), folder / "out"

    def requests(self, number: int) -> list[Path]:
        """Return the request files of a round."""
        return sorted(self.out.parent.glob(f"round{number}*.jsonl"))

    def results(self, number: int) -> list[Path]:
        """Return the result files of a round."""
        return sorted(self.out.parent.glob(f"results{number}*.jsonl"))


def questions(number: int) -> Iterator[Question]:
    """Yield made-up questions of ordinary length."""
    for n in range(number):
        text = f"Who received the prize of the society in the year in which it met {n} times?"
        yield Question(f"q{n:07}", text, f"Person {n}")


def begin(place: Place, number: int) -> int:
    """Create the run's folder and record its questions."""
    some = Dataset("made-up", tuple(questions(min(number, CHUNK_SIZE))), "0" * 64, "made up", "exact", "none")
    settings = Settings.from_values(
        model="openai/gpt-4.1-mini", grader="exact", variants=VARIANTS, draws=1, temperature=0.7, max_tokens=256
    )
    plan = prepare(settings, dataset=some, out=place.run.path)
    with place.run.lock():
        place.run.create_or_resume(plan.identity, about=plan.about)
        with open_store(place.run) as store:
            each = questions(number)
            while part := list(islice(each, CHUNK_SIZE)):
                for variant in plan.procedures:
                    store.require(variant, dict.fromkeys(part, 1))
    return number * len(plan.procedures)


def reopen(place: Place) -> Reopened:
    """Reopen the run."""
    return reopened(place.run.path, Settings())


def write(place: Place, number: int) -> int:
    """Write the request files of the pending round."""
    written = write_requests(reopen(place), place.out.with_name(f"round{number}.jsonl"), "openai")
    return sum(file.requests for file in written.files)


def plant(place: Place, number: int) -> int:
    """Write a simulated result for each request; some in the first round are refusals."""
    count = 0
    for path in place.requests(number):
        with path.open("rb") as requests, path.with_name(path.name.replace("round", "results")).open("w") as results:
            for line in requests:
                results.write(json.dumps(result(line, first=number == 1)) + "\n")
                count += 1
    return count


def answer(line: bytes, chance: int, *, first: bool) -> str:
    """Return the answer to a request: right in three of four first passes, and in every other forced pass."""
    match = QUESTION.search(line)
    if not match:
        raise SystemExit(f"expected a question of this benchmark in each request, got {line[:200]!r}")
    wrong = chance // 10 % (4 if first else 2) == 0
    return f"Person {int(match[1]) + wrong}"


def result(line: bytes, *, first: bool) -> dict[str, object]:
    """Return a planted result of a request, as OpenAI's batches have it."""
    request = json.loads(line)
    chance = crc32(str(request["custom_id"]).encode())
    text = "UNANSWERED" if first and chance % 10 < REFUSED else answer(line, chance, first=first)
    message = {"role": "assistant", "content": f"It is hard to be sure. <answer>{text}</answer>", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 180, "completion_tokens": 14, "total_tokens": 194}
    body = {"id": f"c-{chance}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    response = {"status_code": 200, "request_id": f"r-{chance}", "body": {**body, "usage": usage}}
    return {"id": f"b-{chance}", "custom_id": request["custom_id"], "response": response, "error": None}


def collect(place: Place, number: int) -> int:
    """Load the results of a round."""
    return take_replies(reopen(place), place.results(number)).counts.replies


def derived(place: Place, number: int) -> int:
    """Derive the outcome table into its file, and return the number of replies."""
    with place.run.lock(), open_store(place.run) as store:
        derivation = derive_into(place.run.path / "derived.parquet", place.run, store)
    rows = pl.scan_parquet(place.run.path / "derived.parquet").select(pl.len()).collect().item()
    if rows != number * len(VARIANTS.split(",")):
        raise SystemExit(f"expected {number * len(VARIANTS.split(',')):,} outcomes, got {rows:,}")
    return sum(usage.requests for usage in derivation.usage.values())


def scored(place: Place) -> int:
    """Write all results of the run, as `refusal-index score` does, and return the number of replies."""
    summary = rebuild(place.run.path).summary
    return sum(variant.usage.requests for variant in summary.variants if variant.usage)


def copied(place: Place, kind: str, number: int) -> int:
    """Read the files of a round with Polars and write them again."""
    lines = pl.scan_ndjson(place.requests(number) if kind == "round" else place.results(number))
    lines.sink_ndjson(place.out)
    count = pl.scan_ndjson(place.out, schema={"custom_id": pl.String}).select(pl.len()).collect().item()
    place.out.unlink()
    return int(count)


def tabled(place: Place) -> int:
    """Read all results with Polars and write them as Parquet."""
    pl.scan_ndjson([*place.results(1), *place.results(2)]).sink_parquet(place.out)
    count = pl.scan_parquet(place.out).select(pl.len()).collect().item()
    place.out.unlink()
    return int(count)


STAGES: dict[str, Callable[[Place, int], int]] = {
    "questions recorded": begin,
    "requests written": lambda place, _: write(place, 1),
    "requests read and written by Polars": lambda place, _: copied(place, "round", 1),
    "(results simulated)": lambda place, _: plant(place, 1),
    "results loaded": lambda place, _: collect(place, 1),
    "results read and written by Polars": lambda place, _: copied(place, "results", 1),
    "second round written": lambda place, _: write(place, 2),
    "(second results simulated)": lambda place, _: plant(place, 2),
    "second round loaded, results written": lambda place, _: collect(place, 2),
    "outcomes derived": derived,
    "results written as Parquet by Polars": lambda place, _: tabled(place),
    "scored again": lambda place, _: scored(place),
}
"""The stages, in order."""

BASELINES = {
    "requests written": "requests read and written by Polars",
    "results loaded": "results read and written by Polars",
    "outcomes derived": "results written as Parquet by Polars",
}
"""The stage with which another is compared."""


def measured_here(stage: str, folder: Path, number: int) -> Measured:
    """Run a stage in this process, which should have done nothing else."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    requests = STAGES[stage](Place(folder), number)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(wall, cpu, after.ru_maxrss / MEBIBYTE, requests)


def measure(stage: str, folder: Path, number: int) -> Measured:
    """Run a stage in a new process."""
    work = json.dumps([stage, str(folder), number])
    command = [sys.executable, "-m", "benchmarks.million", "--work", work]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1])
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure_all(folder: Path, number: int, stages: list[str]) -> None:
    """Print the figures of each stage, and their ratio to those of Polars."""
    measurements: dict[str, Measured] = {}
    for stage in stages:
        one = measurements[stage] = measure(stage, folder, number)
        wall, cpu = (seconds / max(one.requests, 1) * 1e6 for seconds in (one.wall, one.cpu))
        sizes = f"{number:10,}{one.requests:11,}"
        print(f"{stage:38}{sizes}{one.wall:9.1f}{one.cpu:9.1f}{wall:8.1f}{cpu:8.1f}{one.memory:7.0f}", flush=True)
    for stage, baseline in BASELINES.items():
        if stage in measurements and baseline in measurements:
            ours, theirs = measurements[stage], measurements[baseline]
            share = theirs.requests / max(ours.requests, 1)
            wall, cpu = ours.wall / theirs.wall * share, ours.cpu / theirs.cpu * share
            print(f"{stage}: per request {wall:.1f} times the wall time of Polars, {cpu:.1f} times its CPU time")


def main() -> None:
    """Print the figures of each stage at each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", type=Path, help="folder to work in, which is kept; default: a temporary one")
    parser.add_argument("--without", nargs="*", default=[], choices=STAGES, help="stages to leave out")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        stage, folder, number = json.loads(arguments.work)
        print(json.dumps(asdict(measured_here(stage, Path(folder), number))))
        return
    print(f"Python {platform.python_version()}, polars {version('polars')}\n{processor()}, {platform.system()}\n")
    print(f"{'':38}{'questions':>10}{'requests':>11}{'wall s':>9}{'CPU s':>9}{'us each':>8}{'CPU us':>8}{'MiB':>7}")
    for number in arguments.questions:
        stages = [stage for stage in STAGES if stage not in arguments.without]
        if arguments.folder:
            folder = arguments.folder / str(number)
            folder.mkdir(parents=True)
            measure_all(folder, number, stages)
        else:
            with tempfile.TemporaryDirectory() as temporary:
                measure_all(Path(temporary), number, stages)


if __name__ == "__main__":
    main()
