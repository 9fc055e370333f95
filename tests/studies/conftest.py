"""Cheaper studies, for tests that do not depend on the number of resamples."""

import pytest

from refusal_index.plugins.studies import precision, rankings


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "RESAMPLES", 200)
    monkeypatch.setattr(rankings, "N_RESAMPLES", 5)
