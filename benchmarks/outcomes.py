"""From the outcome table of a complete paper to every metric with its interval: `python -m benchmarks.outcomes`.

Sixteen models, four prompts and the 4,326 questions of SimpleQA make 276,864 rows of simulated outcomes with text of
ordinary length, written as Parquet. Reading and summarising them is compared with Polars reading the same file and
counting the four cells, with a quarter, a half and all of the models to show how both grow. Each measurement has its
own process: wall time and CPU time (user and system) of the work without interpreter start-up, and the peak memory of
the process. The best of a few repetitions is reported.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.estimator import processor

from refusal_index.data.outcome_table import SCHEMA, SCHEMA_VERSION, read_outcomes, write_outcomes
from refusal_index.findings.summary import summarise

MODELS, QUESTIONS = 16, 4326
THRESHOLDS = {"low": 0.8, "normal": 0.4, "high": 0.0, "highest": -0.4}
"""The variants, with the latent reluctance above which a question is refused."""

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
    found
        Number of cells counted or metrics computed, to check that the work was done.
    """

    wall: float
    cpu: float
    memory: float
    found: int


def made_up_outcomes(models: int, questions: int, seed: int = 5) -> pl.DataFrame:
    """Simulate the outcome table of models that differ in their error rate and their Refusal Index."""
    rng = np.random.default_rng(seed)
    rhos, thresholds = np.linspace(0.1, 0.7, models), np.linspace(-1.2, 0.4, models)
    difficulty = rng.normal(size=questions)
    frames = []
    for model, (rho, threshold) in enumerate(zip(rhos, thresholds, strict=True)):
        own_difficulty = 0.8 * difficulty + 0.6 * rng.normal(size=questions)
        reluctance = rho * own_difficulty + np.sqrt(1 - rho**2) * rng.normal(size=questions)
        wrong = own_difficulty > threshold
        frames += [
            _variant(f"model-{model:02}", variant, reluctance > limit, wrong) for variant, limit in THRESHOLDS.items()
        ]
    return pl.concat(frames)


def _variant(model: str, variant: str, refused: np.ndarray, wrong: np.ndarray) -> pl.DataFrame:
    columns = pl.DataFrame({"number": np.arange(len(wrong)), "refused": refused, "wrong": wrong})
    grade, is_refused = pl.when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct")), pl.col("refused")
    answer = pl.format("It was a person of the name of number {}.", "number")
    return columns.select(
        model=pl.lit(model),
        dataset=pl.lit("made-up"),
        variant=pl.lit(variant),
        question_id=pl.format("q{}", "number"),
        draw=pl.lit(0, pl.Int64),
        refused=is_refused,
        wrong=pl.col("wrong"),
        first_grade=pl.when(is_refused).then(pl.lit("refused")).otherwise(grade),
        forced_grade=pl.when(is_refused).then(grade),
        unscored_reason=pl.lit(None, pl.String),
        topic=pl.format("topic {}", pl.col("number") % 10),
        cluster=pl.lit(None, pl.String),
        weight=pl.lit(None, pl.Float64),
        question=pl.format("Who received the prize of the society in the year in which it met {} times?", "number"),
        gold=pl.format("Person {}", "number"),
        answerable=pl.lit(value=True),
        reading=pl.when(is_refused).then(pl.lit("wording")).otherwise(pl.lit("answer")),
        first_reply=pl.when(is_refused).then(pl.lit("I don't know.")).otherwise(answer),
        forced_reply=pl.when(is_refused).then(answer),
        schema_version=pl.lit(SCHEMA_VERSION, pl.Int64),
    ).select(*SCHEMA)


def write(path: Path, models: int, questions: int) -> int:
    """Write the table, and return its number of rows."""
    table = made_up_outcomes(models, questions)
    write_outcomes(table, path)
    return table.height


def counted(path: Path) -> int:
    """Read the file and count its cells with Polars."""
    return pl.read_parquet(path).group_by("model", "variant", "refused", "wrong").len().height


def read(path: Path) -> int:
    """Read and check the table."""
    return read_outcomes(path).height


def summarised(path: Path) -> int:
    """Read the table and compute all metrics of all variants, the joint estimates and the tests."""
    summary = summarise(read_outcomes(path))
    return sum(len(variant.metrics) for variant in summary.variants) + len(summary.pooled)


WORK = {"counted by Polars": counted, "read and checked": read, "read and summarised": summarised}


def measured_here(work: str, path: Path) -> Measured:
    """Do the work in this process, which should have done nothing else."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = WORK[work](path)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(wall, cpu, after.ru_maxrss / MEBIBYTE, found)


def measure(work: str, path: Path, repetitions: int = 1) -> Measured:
    """Do the work in new processes, and return the fastest measurement."""
    task = json.dumps({"work": work, "path": str(path)})
    return min((Measured(**_in_new_process(task)) for _ in range(repetitions)), key=lambda one: one.wall)


def write_table(path: Path, models: int, questions: int) -> int:
    """Write the table in a new process, since a process's peak memory is inherited by those that it starts."""
    rows: int = _in_new_process(json.dumps({"path": str(path), "models": models, "questions": questions}))["rows"]
    return rows


def _in_new_process(task: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.outcomes", "--task", task]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def perform(task: str) -> str:
    """Perform a task of `measure` or `made` in this process."""
    fields = json.loads(task)
    path = Path(fields["path"])
    if "work" in fields:
        return json.dumps(asdict(measured_here(fields["work"], path)))
    return json.dumps({"rows": write(path, fields["models"], fields["questions"])})


def main() -> None:
    """Print the figures with a quarter, a half and all of the models."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outcomes", description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--repetitions", type=int, default=3, help="report the best of this many")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        print(perform(arguments.task))
        return
    print(f"Python {platform.python_version()}, polars {version('polars')}\n{processor()}, {platform.system()}\n")
    print(f"{'':22}{'rows':>10}{'wall s':>10}{'CPU s':>10}{'MiB':>8}{'us/row':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for models in sorted({max(1, arguments.models // 4), max(1, arguments.models // 2), arguments.models}):
            path = Path(folder) / f"{models}.parquet"
            rows = write_table(path, models, arguments.questions)
            for work in WORK:
                one = measure(work, path, arguments.repetitions)
                each = one.wall / rows * 1e6
                print(f"{work:22}{rows:10,}{one.wall:10.2f}{one.cpu:10.2f}{one.memory:8.0f}{each:10.2f}")


if __name__ == "__main__":
    main()
