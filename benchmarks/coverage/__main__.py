"""Simulate what the statistics promise: coverage of intervals, size and power of tests, bias, planned widths.

``python -m benchmarks.coverage`` runs everything; names choose topics, ``--replicates`` trades time for precision. Each
figure is printed with its Monte-Carlo error and the range in which it should lie; exit status 1 if one does not,
give or take two of those errors.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterator

import numpy as np
from benchmarks.coverage.row import Row

TOPICS = (
    "intervals",
    "comparison",
    "ranking",
    "joint",
    "joint_comparison",
    "clusters",
    "copula_test",
    "corrected_index",
    "corrected_difference",
    "misgrading",
    "topics",
    "planning",
    "curves",
    "calibration",
    "sampling_noise",
    "gate",
    "sequential",
)


def simulate(topic: str, replicates: int, seed: int) -> Iterator[Row]:
    """Yield the figures of one topic."""
    rows: Iterator[Row] = importlib.import_module(f"benchmarks.coverage.{topic}").rows(
        replicates, np.random.default_rng(seed)
    )
    return rows


def print_row(row: Row) -> None:
    """Print one figure."""
    verdict = "ok" if row.holds else "OUT OF RANGE"
    print(
        f"  {row.value:8.4f} +- {row.monte_carlo_error:.4f}  [{row.low:g}, {row.high:g}]  {verdict:<12}  "
        f"{row.quantity}: {row.scenario}",
        flush=True,
    )


def main() -> None:
    """Print every figure of the chosen topics."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"some of {', '.join(TOPICS)} (default: all)")
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    unknown = sorted(set(given.topics) - set(TOPICS))
    if unknown:
        parser.error(f"unknown topic {', '.join(unknown)}; expected some of {', '.join(TOPICS)}")
    out = 0
    for topic in given.topics or TOPICS:
        started = time.perf_counter()
        print(f"{topic}, {given.replicates:,} replicates")
        for row in simulate(topic, given.replicates, given.seed):
            print_row(row)
            out += not row.holds
        print(f"  {time.perf_counter() - started:.0f} s\n")
    print(f"{out} out of range" if out else "all in range")
    sys.exit(1 if out else 0)


if __name__ == "__main__":
    main()
