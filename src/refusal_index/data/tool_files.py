"""Result files of other tools that need more than usual names of columns: those of promptfoo and deepeval.

A record of promptfoo's JSON holds the variables of a test, the reply and the verdict. A row of its CSV has a column for
each variable, and a group of columns for every prompt and provider. Both become rows of graded answers. A test of
deepeval without a metric, or with one that failed, has no grade.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from refusal_index.data.documents import has_column
from refusal_index.data.nested import reached
from refusal_index.data.tables import Row, plain_name

STATUS = re.compile(r"Status( \d+)?")
HEADING = re.compile(r"\[(?P<provider>[^\]]*)\] (?P<label>.*)", re.DOTALL)
DEFUSED = re.compile(r"\A'(?=[=+\-@\t\r])")
"""The apostrophe that promptfoo writes before text that a spreadsheet could take for a formula."""

LITERAL = ("equals", "contains", "icontains", "starts-with", "contains-any", "icontains-any", "similar", "factuality")
"""Assertions of promptfoo whose value is the gold answer."""

ASSERTION_FAILED = 1
"""The `failureReason` of a result without an error."""


NO_ASSERTIONS = "No assertions"
"""The reason that promptfoo gives for passing a test that checks nothing."""


def usual_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of a file with columns of usual names; those of other tools as they are."""
    columns = rows[0].cells.keys()
    if {"vars", "prompt", "success"} <= columns:
        prompts = {_prompt_index(row.cells): _prompt(row.cells) for row in rows}
        in_order = sorted(prompts, key=lambda index: (len(str(index)), str(index)))
        names = _names({index: prompts[index] for index in in_order})
        return _numbered([_of_result(row, names) for row in rows])
    if {"Status", "Grader Reason"} <= columns:
        return _numbered([one for row in rows for one in _of_csv(row)])
    metrics = next((name for name in columns if plain_name(name) == "metrics_data"), None)
    if metrics is not None and "success" in columns:
        return tuple(_of_deepeval(row, row.cells.get(metrics)) for row in rows)
    return tuple(rows)


def _of_deepeval(row: Row, metrics: Any) -> Row:
    """Return a test of deepeval, without its verdict if no metric could give one."""
    data = [metric for metric in metrics if isinstance(metric, Mapping)] if isinstance(metrics, list) else []
    is_judged = bool(data) and (row.cells["success"] is True or not any(metric.get("error") for metric in data))
    return row if is_judged else replace(row, cells={**row.cells, "success": None})


Prompt = tuple[str, str]
"""A provider, and the label of a prompt, which several providers share."""


def _prompt(cells: Mapping[str, Any]) -> Prompt:
    """Return the prompt of a result."""
    label = reached(cells, ("prompt", "label")) or reached(cells, ("prompt", "display"))
    return str(cells.get("provider")), str(label or cells.get("promptIdx"))


def _prompt_index(cells: Mapping[str, Any]) -> Any:
    """Return what distinguishes a prompt of a provider from the others; older files have no index."""
    return cells.get("promptIdx", _prompt(cells))


def _names(prompts: Mapping[Any, Prompt]) -> dict[Any, str]:
    """Return a name for each of several prompts, by what distinguishes it; none if there is only one.

    A prompt has the same name for each provider, unless a provider has two with the same label.
    """
    is_unique = len(set(prompts.values())) == len(prompts)
    labels = {index: prompt[1] if is_unique else str(index) for index, prompt in prompts.items()}
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels.values()))}
    return {index: f"prompt {numbers[label]}" for index, label in labels.items()} if len(numbers) > 1 else {}


def _of_result(row: Row, names: Mapping[Any, str]) -> Row:
    """Return a result of promptfoo's JSON as a graded answer.

    - `names`: the names of the prompts by `_prompt_index`.
    """
    cells = row.cells
    variables = cells["vars"] if isinstance(cells["vars"], Mapping) else {}
    provider = cells.get("provider")
    output = reached(cells, ("response", "output"))
    failed = cells.get("failureReason") == ASSERTION_FAILED
    if "failureReason" not in cells:  # as in files of older releases
        failed = reached(cells, ("gradingResult", "pass")) is False and not cells.get("error")
    passed = cells.get("success") is True and reached(cells, ("gradingResult", "reason")) != NO_ASSERTIONS
    made = {
        "reply": json.dumps(output) if isinstance(output, Mapping | list) else output,
        "correct": passed if passed or failed else None,
        "model": (provider.get("label") or provider.get("id")) if isinstance(provider, Mapping) else provider,
        "variant": names.get(_prompt_index(cells)),
    }
    if not has_column(variables, "question"):
        made["question"] = reached(cells, ("prompt", "raw"))
    asserted = _asserted(cells.get("testCase"))
    if asserted is not None and not has_column(variables, "answer"):
        made["answer"] = asserted
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
    headings = {index: HEADING.fullmatch(names[index]) for index in groups}
    prompts = {
        index: (heading["provider"], heading["label"]) if heading else ("", names[index])
        for index, heading in headings.items()
    }
    variants = _names(prompts)
    for index, heading in headings.items():
        status = cells[names[index + 1]]
        is_checked = cells.get(names[index + 1].replace("Status", "Grader Reason")) != NO_ASSERTIONS
        made = {
            "reply": None if status == "ERROR" else cells[names[index]],
            "correct": {"PASS": True, "FAIL": False}.get(status) if is_checked else None,
            "model": heading["provider"] if heading else None,
            "variant": variants.get(index),
        }
        yield replace(row, cells={**variables, **made})
