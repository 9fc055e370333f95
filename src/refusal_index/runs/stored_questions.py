"""The questions in the folder of a run, which resumes it without the Hub and at the commit at which it began."""

from __future__ import annotations

from typing import Any

from refusal_index.data.datasets import Dataset, GraderName
from refusal_index.data.datasets.dataset import SIGN, questions_sha256
from refusal_index.data.datasets.hub import PREFIX
from refusal_index.data.folder import RunFolder
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import open_store

ASKED_FOR = "asked_for"
"""Key in `about.dataset` of the settings that select the questions of a dataset on the Hub."""


def asked_for(settings: Settings) -> dict[str, Any]:
    """Return the settings that select the questions of a dataset on the Hub; none for any other dataset."""
    options = settings.questions
    name = options.dataset or ""
    if not name.startswith(PREFIX) or SIGN in name:
        return {}
    return {"dataset": name, "limit": options.limit, "column": dict(options.column)}


def stored_questions(folder: RunFolder, settings: Settings) -> Dataset | None:
    """Return the questions of a run if the settings select the same ones from the Hub; None if that is not known."""
    selected = asked_for(settings)
    recorded = folder.read_about().get("dataset") if selected and folder.run_json.exists() else None
    if not isinstance(recorded, dict) or recorded.get(ASKED_FOR) != selected:
        return None
    dataset = folder.read_complete_settings()["dataset"]
    with open_store(folder, made=False) as store:
        questions = tuple(store.questions().values())
    if questions_sha256(questions) != dataset.get("questions_sha256"):  # it stopped before all were stored
        return None
    grader: GraderName = "choice" if all(question.choices for question in questions) else "model"
    return Dataset(
        dataset["name"],
        questions,
        dataset["sha256"],
        str(recorded.get("source")),
        grader,
        str(recorded.get("licence")),
    )
