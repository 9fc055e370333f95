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
from refusal_index.outcomes.run_sets import SET_VERSION, SUMMARY, set_document

NAME = "panel"


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
        if (path / SUMMARY).exists() and (document.get("set_version") != SET_VERSION or "config" in document):
            raise RunFolderError(f"{path / SUMMARY} is not the summary of checkpoints; choose another folder")
        runs = document.get("runs")
        self._runs: list[dict[str, Any]] = [one for one in runs if isinstance(one, dict)] if runs else []

    def put(self, result: CellResult, step: int | None) -> None:
        """Add what became of a checkpoint, in the place of what was known of it before, and write the summary.

        One without a number of its own comes one step after all others.
        """
        entry = run_document(result)
        named = (entry["model"], entry["dataset"])
        # Of a step that was trained anew the last one counts: its weights are those that the training went on with.
        before = [one for one in self._runs if (one.get("model"), one.get("dataset")) == named]
        others = [one for one in self._runs if (one.get("model"), one.get("dataset")) != named]
        known = [place for one in (*before, *others) if isinstance(place := one.get("step"), int)]
        if step is None:
            step = known[0] if before and known else max(known, default=0) + 1
        self._runs = sorted([*others, {**entry, "step": step}], key=_by_step)
        document = {
            "set_version": SET_VERSION,
            "name": NAME,
            "complete": all(one.get("status") == "complete" for one in self._runs),
            "runs": self._runs,
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(self.path / SUMMARY, text.encode())


def _by_step(entry: dict[str, Any]) -> int:
    step = entry.get("step")
    return step if isinstance(step, int) else 0
