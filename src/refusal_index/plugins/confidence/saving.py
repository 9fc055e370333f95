"""Write a threshold that was chosen on a run as a rule, which is applied without SciPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_index.data.files import json_text, plain, write_atomically
from refusal_index.data.folder import RUN_ID
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.entry_points import package_version
from refusal_index.errors import RunFolderError
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.confidence.answer_probability import CALIBRATIONS, REDUCTIONS
from refusal_index.plugins.confidence.rule import RULE_VERSION
from refusal_index.plugins.confidence.scored_answers import ScoredAnswers
from refusal_index.runs.results import procedure_of
from refusal_index.runs.settings import COMPARABILITY_VERSION

ABOUT_THRESHOLD = ("penalty", "max_error", "bound_level", "confidence_level", "seed", "chosen_on", "judged_on")
"""What a rule records of how its threshold was chosen."""


def write_rule(path: Path, run: RunResults, answers: ScoredAnswers, document: Mapping[str, Any]) -> None:
    """Write the rule of a threshold that was chosen on a run, as JSON; raises what `Threshold.save_rule` does.

    - `path`: the file.
    - `run`, `answers`: the run, and its answers with their scores.
    - `document`: the threshold, as `Threshold.to_document` returns it.
    """
    method = answers.method
    if not run.source.is_dir():
        raise RunFolderError(f"rule: expected the folder of a run, which says how replies are read, got {run.source}")
    if method not in REDUCTIONS:
        raise ConfidenceError(
            f"rule: expected a method whose score comes from a reply and its log probabilities, got {method}; "
            f"name one of {', '.join(REDUCTIONS)} as the method"
        )
    if method in CALIBRATIONS and answers.calibration is None:
        raise ConfidenceError(f"rule: {method} is not trained on one half of the questions: {answers.not_trained}")
    if document["cut"] is None:
        raise ConfidenceError(f"rule: expected a threshold between two scores, got none ({document['reason']})")
    rule = {
        "rule_version": RULE_VERSION,
        "comparability_version": COMPARABILITY_VERSION,
        "method": method,
        "model": run.settings["model"],
        "threshold": document["cut"],
        "calibration": answers.calibration,
        # A function only says which answers refuse, and the score is that of the answer either way.
        "reading": replace(procedure_of(run.settings, bool).rule, function=None),
        "provenance": {
            "refusal_index": package_version(),
            "run_id": run.about.get(RUN_ID),
            "settings": run.settings,
            "forced_prompt": (run.about.get("prompt_set") or {}).get("forced"),
            "threshold": {name: document[name] for name in ABOUT_THRESHOLD},
            "other_half": document["points"][0],
        },
    }
    write_atomically(path, json_text(plain(rule)).encode())
