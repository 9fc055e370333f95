"""Time the estimator and other implementations of the same estimate: `python -m benchmarks.estimator`.

Each implementation estimates the Refusal Index, or the tetrachoric correlation behind it, of the same tables. Times
are the best of a few repetitions, in microseconds per table; the ratio is the time of a plain SciPy implementation of
the paper's likelihood divided by that time. `ordinalcorr` and R's `psych` and `polycor` are timed if installed.
"""

import argparse
import importlib.metadata
import importlib.util
import math
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm

from refusal_index import ContingencyTable, refusal_index, refusal_index_many

Counts = tuple[int, int, int, int]


class Timing(NamedTuple):
    """A row of the result."""

    implementation: str
    microseconds: float


def sample_tables(n_tables: int, n_questions: int, seed: int) -> npt.NDArray[np.int64]:
    """Draw tables with the refusal and error rates of published models, shape (n_tables, 4)."""
    rng = np.random.default_rng(seed)
    base = np.array([[0.71, 0.03, 0.21, 0.05], [0.16, 0.01, 0.79, 0.04], [0.30, 0.06, 0.26, 0.38]])
    probabilities = base[rng.integers(len(base), size=n_tables)]
    return np.maximum(rng.multinomial(n_questions, probabilities), 1)


def plain_scipy(counts: Counts) -> float:
    """Maximise the paper's log-likelihood in rho with SciPy's bounded search and multivariate normal CDF."""
    n11, n10, n01, _ = counts
    n = sum(counts)
    r, mu = (n11 + n10) / n, (n11 + n01) / n
    thresholds = norm.isf([r, mu])

    def negative_log_likelihood(rho: float) -> float:
        both_below = multivariate_normal(mean=[0, 0], cov=[[1, rho], [rho, 1]]).cdf(thresholds)
        p11 = r + mu - 1 + both_below
        cells = (p11, r - p11, mu - p11, both_below)
        return -sum(count * math.log(max(cell, 1e-12)) for count, cell in zip(counts, cells, strict=True))

    rho = minimize_scalar(negative_log_likelihood, bounds=(-0.999, 0.999), method="bounded").x
    return 6 / math.pi * math.asin(rho / 2)


def one_call(counts: Counts) -> float | None:
    """Estimate the index, with the result object and its standard error."""
    return refusal_index(ContingencyTable(*counts)).estimate


def one_call_with_interval(counts: Counts) -> tuple[float, float]:
    """Estimate the index with its default interval."""
    return refusal_index(ContingencyTable(*counts)).confidence_interval()


def microseconds_each(function: Callable[[Counts], object], tables: list[Counts], repetitions: int) -> float:
    """Return the best time per table of calling the function on each table."""

    def once() -> float:
        start = time.perf_counter()
        for counts in tables:
            function(counts)
        return time.perf_counter() - start

    return min(once() for _ in range(repetitions)) / len(tables) * 1e6


def time_many(tables: npt.NDArray[np.int64], repetitions: int) -> float:
    """Return the best time per table of `refusal_index_many`."""
    columns = tuple(np.ascontiguousarray(column) for column in tables.T)
    elapsed = []
    for _ in range(repetitions):
        start = time.perf_counter()
        refusal_index_many(*columns)
        elapsed.append(time.perf_counter() - start)
    return min(elapsed) / len(tables) * 1e6


def time_ordinalcorr(tables: list[Counts], repetitions: int) -> Iterator[Timing]:
    """Time `ordinalcorr.tetrachoric`, which takes a pair of values per question."""
    if importlib.util.find_spec("ordinalcorr") is None:
        return
    from ordinalcorr import tetrachoric  # noqa: PLC0415 # optional, and slow to import

    pairs = {counts: (np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)) for counts in tables}
    elapsed = microseconds_each(lambda counts: tetrachoric(*pairs[counts]), tables, repetitions)
    yield Timing(f"ordinalcorr {importlib.metadata.version('ordinalcorr')}", elapsed)


R_SCRIPT = """
counts <- scan(file("stdin"), quiet = TRUE)
tables <- lapply(split(counts, ceiling(seq_along(counts) / 4)), matrix, nrow = 2, byrow = TRUE)
time <- function(name, f) {
  seconds <- system.time(for (t in tables) f(t))[["elapsed"]]
  cat(sprintf("%s\\t%.3f\\n", name, seconds / length(tables) * 1e6))
}
has <- function(package) suppressWarnings(suppressMessages(requireNamespace(package, quietly = TRUE)))
label <- function(package, what) paste0("R ", package, " ", packageVersion(package), what)
if (has("psych")) time(label("psych", ""), function(t) psych::tetrachoric(t, correct = 0))
if (has("polycor")) {
  time(label("polycor", ", two-step"), function(t) polycor::polychor(t))
  time(label("polycor", ", ML"), function(t) polycor::polychor(t, ML = TRUE, std.err = TRUE))
}
"""


def time_r(tables: list[Counts]) -> Iterator[Timing]:
    """Time R's packages in one R process, without its start-up."""
    if shutil.which("Rscript") is None:
        return
    numbers = "\n".join(str(count) for counts in tables for count in counts)
    done = subprocess.run(["Rscript", "-e", R_SCRIPT], input=numbers, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name, elapsed = line.split("\t")
        yield Timing(name, float(elapsed))


def measure(n_many: int, n_one: int, n_slow: int, repetitions: int) -> list[Timing]:
    """Time all implementations on samples of the same tables."""
    tables = sample_tables(n_many, n_questions=4326, seed=20250)
    few: list[Counts] = [tuple(counts) for counts in tables[:n_one].tolist()]
    fewest = few[:n_slow]
    return [
        Timing("plain SciPy, the paper's likelihood", microseconds_each(plain_scipy, fewest, repetitions)),
        *time_ordinalcorr(fewest, repetitions),
        *time_r(fewest),
        Timing(f"refusal_index_many, {n_many:,} tables", time_many(tables, repetitions)),
        Timing("refusal_index, one call", microseconds_each(one_call, few, repetitions)),
        Timing("refusal_index with profile interval", microseconds_each(one_call_with_interval, few, repetitions)),
    ]


def processor() -> str:
    """Return the name of the processor, or else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    """Print the time of each implementation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1_000_000, help="tables for refusal_index_many")
    parser.add_argument("--one", type=int, default=2_000, help="tables for single calls")
    parser.add_argument("--slow", type=int, default=50, help="tables for the other implementations")
    parser.add_argument("--repetitions", type=int, default=3, help="report the best of this many")
    arguments = parser.parse_args()

    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("refusal-index", "numpy", "scipy"))
    print(f"Python {platform.python_version()}, {versions}\n{processor()}, {platform.system()}\n")
    timings = measure(arguments.many, arguments.one, arguments.slow, arguments.repetitions)
    print(f"{'':42}{'us per table':>13}{'ratio':>10}")
    for implementation, microseconds in timings:
        print(f"{implementation:42}{microseconds:13.2f}{timings[0].microseconds / microseconds:10,.1f}")


if __name__ == "__main__":
    main()
