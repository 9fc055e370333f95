"""Simulate the properties of the statistics: coverage of intervals, size and power of tests, bias, planned widths.

``python -m benchmarks.coverage`` simulates all topics; arguments select topics, and ``--replicates`` trades time for
precision. Each figure is printed with its Monte Carlo error and the range in which it should lie. Exit status: 1 if a
figure is more than two Monte Carlo errors outside its range.
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
    "weights",
    "copula_test",
    "other_copulas",
    "corrected_index",
    "corrected_difference",
    "misgrading",
    "topics",
    "planning",
    "curves",
    "calibration",
    "selection",
    "sampling_noise",
    "gate",
    "coarse_gate",
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
    """Print all figures of the chosen topics."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"topics, out of {', '.join(TOPICS)} (default: all)")
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.topics) - set(TOPICS))
    if unknown:
        parser.error(f"unknown topic {', '.join(unknown)}; expected {', '.join(TOPICS)}")
    n_outside = 0
    for topic in arguments.topics or TOPICS:
        started = time.perf_counter()
        print(f"{topic}, {arguments.replicates:,} replicates")
        for row in simulate(topic, arguments.replicates, arguments.seed):
            print_row(row)
            n_outside += not row.holds
        print(f"  {time.perf_counter() - started:.0f} s\n")
    print(f"{n_outside} out of range" if n_outside else "all in range")
    sys.exit(1 if n_outside else 0)


if __name__ == "__main__":
    main()
