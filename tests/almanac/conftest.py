"""Two tiny untrained models, described in ``make_fixtures.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from refusal_index.plugins.almanac.llama import Llama
from refusal_index.plugins.almanac.models import ChatTokenizer
from refusal_index.plugins.almanac.runtime import Runtime

DATA = Path(__file__).parent / "data"


@pytest.fixture(params=["tied", "grouped"])
def folder(request):
    return DATA / request.param


@pytest.fixture
def model(folder):
    return Llama.load(folder)


@pytest.fixture
def tokenizer(folder):
    return ChatTokenizer(folder)


@pytest.fixture
def runtime():
    return Runtime(DATA / "grouped")
