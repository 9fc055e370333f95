"""Run every fault scenario of the tests with every engine and client, and print the outcomes as a table.

    python -m benchmarks.faults
    python -m benchmarks.faults --fast
    python -m benchmarks.faults --only 'kill -9' --engine functions
    python -m benchmarks.faults --write benchmarks/faults.md
    python -m benchmarks.faults --soak 100000
    python -m benchmarks.faults --rules docs/what-happens-when.md

Each scenario runs the command in its own process against a server on loopback, and compares its outcome table with
that of an undisturbed run. A soak test follows: many requests over 500 connections, one in twenty with a fault. With
`--fast`, each engine runs one scenario of each group, Ray a single one, without the soak test. With `--rules`, nothing
runs: the rules that the scenarios show are written into the tables of a page.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from tests.faults.page import page, table
from tests.faults.rules import with_tables
from tests.faults.scenario import ENGINES, SOAKED, Engine, Row, Scenario
from tests.faults.scenario_run import NotPossibleHereError, run_scenario
from tests.faults.soak import soak
from tests.faults.table import KEPT, SCENARIOS


def row_or_reason(pair: tuple[Scenario, Engine]) -> Row | str:
    """Run a scenario with an engine; return an explanation if this machine cannot run it."""
    scenario, engine = pair
    try:
        row = run_scenario(scenario, engine)
    except NotPossibleHereError as error:
        return f"{scenario.title}: {error}"
    except Exception as error:
        return f"{scenario.title} ({engine.name}): {type(error).__name__}: {error}"
    print(
        f"{'ok  ' if not row.broken else 'FAIL'} {row.seconds:5.1f} s  {row.engine}: {scenario.title}", file=sys.stderr
    )
    return row


def one_of_each_group(pairs: Iterable[tuple[Scenario, Engine]]) -> list[tuple[Scenario, Engine]]:
    """Return one scenario per group and engine, and one for Ray, preferring those that `make test-all` runs."""
    chosen: dict[tuple[str, str], tuple[Scenario, Engine]] = {}
    for scenario, engine in sorted(pairs, key=lambda pair: pair[0].title not in KEPT):
        group = "" if engine.name == "ray" else scenario.group  # Ray takes a minute, mostly to start
        chosen.setdefault((group, engine.name), (scenario, engine))
    return list(chosen.values())


def main() -> int:
    """Print the table, and return 1 if a promise was broken, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="scenarios whose group or name matches this pattern")
    parser.add_argument("--engine", choices=[engine.name for engine in ENGINES], help="a single engine or client")
    parser.add_argument("--fast", action="store_true", help="one scenario of each group with each engine, no soak test")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of scenarios to run at a time")
    parser.add_argument("--write", type=Path, help="write the results into this page of the documentation")
    parser.add_argument(
        "--rules", type=Path, help="write the rules into this page of the documentation, and run nothing"
    )
    parser.add_argument("--soak", type=int, default=3000, help="requests of the soak test; 0 for none")
    arguments = parser.parse_args()
    if arguments.rules is not None:
        document = arguments.rules.read_text(encoding="utf-8")
        arguments.rules.write_text(with_tables(document), encoding="utf-8")
        return 0
    began = time.monotonic()
    chosen = [scenario for scenario in SCENARIOS if re.search(arguments.only, f"{scenario.group}: {scenario.title}")]
    engines = [engine for engine in ENGINES if arguments.engine in (None, engine.name)]
    pairs = [(scenario, engine) for scenario, engine in product(chosen, engines) if engine.name in scenario.engines]
    if arguments.fast:
        pairs = one_of_each_group(pairs)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(row_or_reason, pairs))
    rows = [one for one in results if isinstance(one, Row)]
    is_soaked = arguments.soak and not arguments.only and not arguments.fast
    soaked = [soak(engine, arguments.soak) for engine in engines if engine in SOAKED] if is_soaked else []
    print(table(rows, soaked))
    for result in results:
        if isinstance(result, str):
            print(f"not run: {result}")
    broken = [row for row in rows if row.broken]
    for row in broken:
        print(f"broken: {row.engine}: {row.scenario.title}: {'; '.join(row.broken)}")
    print(f"{len(rows)} rows, {len(broken)} with a broken promise, {time.monotonic() - began:.0f} s")
    if arguments.write is not None:
        before = arguments.write.read_text(encoding="utf-8") if arguments.write.exists() else ""
        arguments.write.write_text(page(before, SCENARIOS, rows, soaked), encoding="utf-8")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
