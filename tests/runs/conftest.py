from __future__ import annotations

import pytest

from tests.runs import models


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """Runs without a folder lie below the working directory."""
    monkeypatch.chdir(tmp_path)
    models.ASKED.clear()
