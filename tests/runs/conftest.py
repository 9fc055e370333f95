from __future__ import annotations

import pytest

from tests.models.provider_server import provider_server  # noqa: F401 - a fixture
from tests.runs import models


@pytest.fixture(autouse=True)
def run_in_tmp_path(tmp_path, monkeypatch):
    """Runs without a folder are written below the working directory."""
    monkeypatch.chdir(tmp_path)
    models.ASKED.clear()
