"""Result files of other tools that need more than usual names of columns: those of promptfoo.

A record of promptfoo's JSON holds the variables of a test, the reply and the verdict. A row of its CSV has a column for
each variable, and a group of columns for every prompt and provider. Both become rows of graded answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from refusal_index.data.column_names import NAMES
from refusal_index.data.tables import Row, plain_name

STATUS = re.compile(r"Status( \d+)?")
HEADING = re.compile(r"\[(?P<provider>[^\]]*)\] (?P<label>.*)", re.DOTALL)
DEFUSED = re.compile(r"\A'(?=[=+\-@\t\r])")
"""The apostrophe that promptfoo writes before text that a spreadsheet could take for a formula."""

LITERAL = ("equals", "contains", "icontains", "starts-with", "contains-any", "icontains-any", "similar", "factuality")
"""Assertions of promptfoo whose value is the gold answer."""

ASSERTION_FAILED = 1
"""The `failureReason` of a result without an error."""


def usual_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of a file with columns of usual names; those of other tools as they are."""
    columns = rows[0].cells.keys()
    if {"promptIdx", "testIdx", "vars"} <= columns:
        several = len({row.cells.get("promptIdx") for row in rows}) > 1
        return _numbered([_of_result(row, is_named=several) for row in rows])
    if {"Status", "Grader Reason"} <= columns:
        return tuple(one for row in rows for one in _of_csv(row))
    return tuple(rows)


def has_column(cells: Mapping[str, Any], role: str) -> bool:
    """Whether a record has a column with a usual name of a role."""
    return any(plain_name(name) in NAMES[role] for name in cells)


def _of_result(row: Row, *, is_named: bool) -> Row:
    """Return a result of promptfoo's JSON as a graded answer.

    - `is_named`: whether the prompt names the variant, because there are several.
    """
    cells = row.cells
    variables = cells["vars"] if isinstance(cells["vars"], Mapping) else {}
    prompt = cells.get("prompt")
    prompt = prompt if isinstance(prompt, Mapping) else {}
    provider = cells.get("provider")
    provider = provider if isinstance(provider, Mapping) else {"id": provider}
    response = cells.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    failed = cells.get("failureReason") == ASSERTION_FAILED
    if "failureReason" not in cells:  # as in files of older releases
        graded = cells.get("gradingResult")
        failed = isinstance(graded, Mapping) and graded.get("pass") is False and not cells.get("error")
    is_graded = cells.get("success") is True or failed
    made = {
        "reply": json.dumps(output) if isinstance(output, Mapping | list) else output,
        "correct": cells.get("success") if is_graded else None,
        "model": provider.get("label") or provider.get("id"),
        "variant": f"prompt {cells['promptIdx']}" if is_named else None,
    }
    if not has_column(variables, "question"):
        made["question"] = prompt.get("raw")
    if not has_column(variables, "answer"):
        made["answer"] = _asserted(cells.get("testCase"))
    return replace(row, cells={**variables, **made})


def _asserted(test: Any) -> Any:
    """Return the value of the first assertion that compares the reply with an answer; None if there is none."""
    assertions = test.get("assert") if isinstance(test, Mapping) else None
    for assertion in assertions if isinstance(assertions, list) else ():
        value = assertion.get("value") if isinstance(assertion, Mapping) else None
        if value is not None and assertion.get("type") in LITERAL and "{{" not in str(value):
            return value
    return None


def _numbered(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with numbers for the repetitions of a test, which have the same variables."""
    seen: Counter[str] = Counter()
    numbered = []
    for row in rows:
        same = str([value for name, value in row.cells.items() if name not in ("reply", "correct")])
        numbered.append(replace(row, cells={**row.cells, "draw": seen[same]}))
        seen[same] += 1
    return tuple(numbered)


def _of_csv(row: Row) -> Iterator[Row]:
    """Yield the graded answers in a row of promptfoo's CSV: one for each prompt and provider."""
    names = list(row.cells)
    cells = {name: DEFUSED.sub("", str(cell or "")) for name, cell in row.cells.items()}
    groups = [index - 1 for index, name in enumerate(names) if STATUS.fullmatch(name)]
    variables = {name: cells[name] for name in names[: groups[0]] if name != "Description"}
    for number, index in enumerate(groups):
        status = cells[names[index + 1]]
        heading = HEADING.fullmatch(names[index])
        made = {
            "reply": None if status == "ERROR" else cells[names[index]],
            "correct": {"PASS": True, "FAIL": False}.get(status),
            "model": heading["provider"] if heading else None,
            "variant": f"prompt {number}" if len(groups) > 1 else None,
        }
        yield replace(row, cells={**variables, **made})
