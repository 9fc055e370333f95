"""The table of scenario results, and the documentation page that summarises it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.faults.scenario import EQUAL, RESUMED, Row, Scenario
from tests.faults.soak import Soaked

COLUMNS = ("fault", "engine", "outcome equal", "requests paid", "repeated", "exit status", "message")

BELOW = "<!-- From here on: `python -m benchmarks.faults --write benchmarks/faults.md` -->"
"""Parts what is written by hand from what came out."""


def table(rows: Sequence[Row], soaked: Sequence[Soaked] = ()) -> str:
    """Return all rows as a table in Markdown."""
    return "\n".join([*_lines(COLUMNS, map(_cells, rows)), "", *(_soak_line(one) for one in soaked)])


def _cells(row: Row) -> tuple[str, ...]:
    outcome = row.outcome + (" **broken**" if row.broken else "")
    paid = f"{row.paid} of {row.needed}"
    return (row.scenario.title, row.engine, outcome, paid, str(row.repeated), _status(row.status), row.message)


def _status(status: int | None) -> str:
    if status is None:
        return "did not end"
    return f"signal {-status}" if status < 0 else str(status)


def _lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines]


def _escaped(text: str) -> str:
    for special in "\\|<>*_[]`":
        text = text.replace(special, f"\\{special}")
    return " ".join(text.split())


def page(document: str, scenarios: Sequence[Scenario], rows: Sequence[Row], soaked: Sequence[Soaked] = ()) -> str:
    """Return the page again: a section a group, and a line a fault, whatever the pass and the engine."""
    parts = [document.partition(BELOW)[0] + BELOW, ""]
    for group in dict.fromkeys(scenario.group for scenario in scenarios):
        names = dict.fromkeys(scenario.name for scenario in scenarios if scenario.group == group)
        lines = [_summed_up(name, [row for row in rows if row.scenario.name == name]) for name in names]
        parts += [f"## {group}", "", *_lines(("scenario", "outcome", "requested again", "exit status"), lines), ""]
    if soaked:
        parts += ["## Many requests", "", *(f"- {_soak_line(one)}" for one in soaked), ""]
    return "\n".join(parts)


def _summed_up(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return one line for a fault in several passes and with several engines; where they differ, it says of which."""
    if not rows:
        return name, "not run on this machine", "", ""
    again = max(row.repeated for row in rows)
    return (
        name,
        _per_engine(rows, [_outcome(row) for row in rows]),
        "nothing" if again == 0 else "in flight",
        _per_engine(rows, [_status(row.status) for row in rows]),
    )


def _outcome(row: Row) -> str:
    words = {EQUAL: "equal", RESUMED: "equal, after resuming"}
    return words.get(row.outcome, row.outcome.partition("; ")[0]) + (" (not as promised)" if row.broken else "")


def _per_engine(rows: Sequence[Row], output: Sequence[str]) -> str:
    kinds = dict.fromkeys(output)
    if len(kinds) == 1:
        return output[0]
    engines = {
        kind: dict.fromkeys(row.engine for row, one in zip(rows, output, strict=True) if one == kind) for kind in kinds
    }
    return "; ".join(f"{kind} ({', '.join(names)})" for kind, names in engines.items())


def _soak_line(one: Soaked) -> str:
    megabytes = ", ".join(f"{held:.0f}" for held in one.megabytes)
    return (
        f"{one.engine}: {one.requests:,} requests at 500 connections, {one.faults:,} more met with a fault; "
        f"{one.wrong} outcomes differ, {one.repeated} paid for twice, exit status {_status(one.status)}; "
        f"{one.seconds:.0f} s; {megabytes} MB when a third, two thirds and nearly all were answered"
    )
