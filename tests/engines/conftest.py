from __future__ import annotations

from pathlib import Path

import pytest
from refusal_index.engines.inspect.run import RunPlan

from refusal_index.datasets import Dataset
from refusal_index.engines.inspect.task import Asking
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.question import Question
from refusal_index.protocol import GraderKind

VARIANTS = ("low", "normal", "high", "highest")


def make_dataset(count: int) -> Dataset:
    questions = tuple(
        Question(f"q{number}", f"What is {number} plus {number}?", str(2 * number)) for number in range(count)
    )
    return Dataset("sums", questions, "0" * 64, "made by a test", "exact", "none")


@pytest.fixture
def plan_for(monkeypatch: pytest.MonkeyPatch):
    """Return a maker of plans that ask a server at a given address."""

    def make(url: str, count: int = 8, variants: tuple[str, ...] = ("normal",), **changes: object) -> RunPlan:
        monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
        monkeypatch.setenv("FAKE_BASE_URL", url)
        asking = Asking(grader=GraderKind.MODEL if "grader" in changes else GraderKind.EXACT, attempt_timeout=2)
        settings: dict[str, object] = {"max_connections": 4, "max_retries": 2, "asking": asking, **changes}
        return RunPlan("openai-api/fake/any", make_dataset(count), variants, **settings)

    return make


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Return a run's folder that is ready to be run in."""
    run = RunFolder(tmp_path / "run")
    settings = {"model": "fake", "dataset": {"name": "sums"}, "prompts": {"variants": list(VARIANTS)}}
    with run.lock():
        run.create_or_resume(settings)
    return run
