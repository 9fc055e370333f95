"""Save a chosen threshold as a rule that `refusal_index.plugins.confidence.rule` loads without SciPy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from refusal_index.data.files import json_text, plain, write_atomically
from refusal_index.data.folder import RUN_ID
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.entry_points import package_version
from refusal_index.errors import RunFolderError
from refusal_index.plugins.confidence.answer_probability import CALIBRATIONS, REDUCTIONS
from refusal_index.plugins.confidence.rule import Rule
from refusal_index.plugins.confidence.threshold import Threshold
from refusal_index.runs.results import procedure_of

ABOUT_THRESHOLD = ("penalty", "max_error", "bound_level", "confidence_level", "seed", "chosen_on", "judged_on")
"""What is saved of how the threshold was chosen, as `Threshold.to_document` names it."""


def save_rule(found: Threshold, path: Path) -> None:
    """Write a threshold and what its score is computed from as a JSON file.

    Raises
    ------
    ConfidenceError
        If the score is computed from more than a reply and its log probabilities, or there is no threshold.
    RunFolderError
        If the scores are not those of a run's folder.
    """
    write_atomically(path, json_text(plain(rule_of_threshold(found).to_document())).encode())


def rule_of_threshold(found: Threshold) -> Rule:
    """Return the rule of a threshold; raises as `save_rule` does."""
    answers = found.answers
    method = answers.method
    cut = found.selected.cut
    run = found.run
    if not run.source.is_dir():
        raise RunFolderError(f"rule: expected the folder of a run, which says how replies are read, got {run.source}")
    if method not in REDUCTIONS:
        raise ConfidenceError(
            f"rule: expected a method whose score comes from a reply and its log probabilities, got {method}; "
            f"name one of {', '.join(REDUCTIONS)} as the method"
        )
    if method in CALIBRATIONS and answers.calibration is None:
        raise ConfidenceError(f"rule: {method} is not trained on one half of the questions: {answers.not_trained}")
    if cut is None or not math.isfinite(cut):
        raise ConfidenceError(f"rule: expected a threshold between two scores, got none ({found.selected.reason})")
    settings = run.settings
    document = found.to_document()
    # A function only says which answers refuse, and the score is that of the answer either way.
    reading = replace(procedure_of(settings, bool).rule, function=None)
    provenance = {
        "refusal_index": package_version(),
        "run_id": run.about.get(RUN_ID),
        "settings": settings,
        "forced_prompt": (run.about.get("prompt_set") or {}).get("forced"),
        "threshold": {name: document[name] for name in ABOUT_THRESHOLD},
        "other_half": document["points"][0],
    }
    return Rule(method, str(settings["model"]), cut, answers.calibration, reading, provenance)
