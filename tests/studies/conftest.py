"""Cheaper studies, for tests of what does not depend on how often questions are drawn again."""

import pytest

from refusal_index.plugins.studies import grading_sensitivity, rankings, sampling_error


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_error, "RESAMPLES", 200)
    monkeypatch.setattr(grading_sensitivity, "_RESAMPLES", 200)
    monkeypatch.setattr(rankings, "N_RESAMPLES", 5)
