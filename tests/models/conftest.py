from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from refusal_index.data.datasets import Dataset
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.results import Derived, derive_into
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, open_store
from tests.models.provider_server import provider_server  # noqa: F401 - a fixture
from tests.served import KEY_NAME, MODEL, at, grader_at, is_served

VARIANTS = ("low", "normal", "high", "highest")
INSPECT_MODEL = "sambanova/any"
"""A model at the same server, reached through an Inspect provider that adds nothing to a request."""

both_clients = pytest.mark.parametrize("model", [MODEL, INSPECT_MODEL], ids=["openai", "inspect"])
PlanFor = Callable[..., Plan]


def make_dataset(count: int) -> Dataset:
    questions = tuple(
        Question(f"q{number}", f"What is {number} plus {number}?", str(2 * number)) for number in range(count)
    )
    return Dataset("sums", questions, "0" * 64, "made by a test", "exact", "none")


def run(plan: Plan) -> Derived:
    """Execute a plan and return the outcomes derived from its store."""
    asyncio.run(execute(plan))
    return results(plan.folder)


def derive(folder: RunFolder, store: ReplyStore) -> Derived:
    """Return the outcomes derived from a store, with the outcome table in memory."""
    with TemporaryDirectory() as beside:
        derived = derive_into(Path(beside, "outcomes.parquet"), folder, store)
        return replace(derived, outcomes=derived.outcomes.collect())


def results(folder: RunFolder) -> Derived:
    with open_store(folder) as store:
        return derive(folder, store)


def cells(derived: Derived) -> list[tuple[str, bool | None, bool | None]]:
    return derived.outcomes.select("question_id", "refused", "wrong").rows()


@pytest.fixture
def plan_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlanFor:
    """Return a function that makes plans for a server at a given address, all in one folder by default."""

    def make(url: str, count: int = 8, dataset: Dataset | None = None, out: str = "run", **changes: object) -> Plan:
        monkeypatch.setenv(KEY_NAME, "sk-very-secret")
        monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-very-secret")
        monkeypatch.setenv("SAMBANOVA_BASE_URL", url)
        judge = str(changes.get("refusal", "")).removeprefix("model:") or changes.get("grader")
        settings = {
            "model": MODEL,
            **(at(url) if is_served(changes.get("model", MODEL)) else {}),
            **(grader_at(url) if is_served(judge) else {}),
            "variants": "normal",
            "max_connections": 4,
            "max_retries": 2,
            "attempt_timeout": 2,
            **changes,
        }
        return prepare(Settings.from_values(**settings), dataset=dataset or make_dataset(count), out=tmp_path / out)

    return make
