"""A panel: one run for each checkpoint of a training, all asked the same questions, in one folder that a report reads.

It is a set of runs (`outcomes.run_sets`) that grows while the training goes on. What lies in it stays: a training that
is resumed, or another look at the same checkpoints, adds to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refusal_index.evaluation.sweep import CellResult, run_document
from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.files import write_atomically
from refusal_index.outcomes.run_sets import SET_VERSION, SUMMARY, check_set_version, set_document

NAME = "panel"

UNNUMBERED = "step_by_order"
"""Marks an entry whose step is not said by the name of its checkpoint."""


class PanelFolder:
    """The folder of a panel.

    Parameters
    ----------
    path
        Where it lies or will.

    Raises
    ------
    RunFolderError
        If it is the folder of something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        document = set_document(path)
        if (path / "run.json").exists():
            raise RunFolderError(f"{path} is the folder of a single run; choose another one for the checkpoints")
        if (path / SUMMARY).exists() and ("set_version" not in document or "config" in document):
            raise RunFolderError(f"{path / SUMMARY} is not the summary of checkpoints; choose another folder")
        check_set_version(path, document)
        runs = document.get("runs")
        self._runs: list[dict[str, Any]] = [one for one in runs if isinstance(one, dict)] if runs else []

    def put(self, result: CellResult, step: int | None) -> None:
        """Add what became of a checkpoint, in the place of what was known of it before, and write the summary.

        Those without a number of their own come one step after another behind all others.
        """
        entry = {**run_document(result), "step": step, **({UNNUMBERED: True} if step is None else {})}
        # Of a step that was trained anew the last one counts: its weights are those that the training went on with.
        place = next((n for n, one in enumerate(self._runs) if _named(one) == _named(entry)), len(self._runs))
        if not any(_is_kept(one, entry) for one in self._runs[place : place + 1]):
            self._runs[place : place + 1] = [entry]
        self._runs = _in_order(self._runs)
        document = {
            "set_version": SET_VERSION,
            "name": NAME,
            "complete": all(one.get("status") == "complete" for one in self._runs),
            "runs": self._runs,
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(self.path / SUMMARY, text.encode())


def _named(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry.get("model"), entry.get("dataset")


def _is_kept(before: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether what is known of a folder stays: one that came to nothing this time has the results that it had."""
    return before.get("folder") == entry["folder"] and before.get("summary") is not None and entry["summary"] is None


def _in_order(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries by their steps; those without a number of their own behind them, as they came."""
    numbered = sorted((one for one in entries if not one.get(UNNUMBERED)), key=_step)
    last = _step(numbered[-1]) if numbered else 0
    unnumbered = (one for one in entries if one.get(UNNUMBERED))
    return [*numbered, *({**one, "step": last + n} for n, one in enumerate(unnumbered, 1))]


def _step(entry: dict[str, Any]) -> int:
    step = entry.get("step")
    return step if isinstance(step, int) else 0
