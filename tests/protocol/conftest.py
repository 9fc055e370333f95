"""Shared fixtures of the protocol tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def shared_file() -> Callable[[str], Path]:
    """Find a file of real data beside the repository, or skip the test where there is none."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_file():
            pytest.skip(f"needs the real data {name} beside the repository")
        return path

    return find
