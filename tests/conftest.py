"""Settings and hooks shared by all tests."""

import gc
import signal
import ssl
from collections.abc import Generator
from functools import cache, lru_cache
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from refusal_index.models import failures
from refusal_index.plugins.almanac import models, provider, runtime
from refusal_index.plugins.almanac.models import ChatTokenizer
from refusal_index.runs import plan

# No deadline: a busy machine makes any example slow. `make test` and `make test-all` run the same examples every time,
# so that a change passes or fails on its own merits; `make nightly` tries new ones.
settings.register_profile("fast", deadline=None, max_examples=25, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=50, derandomize=True, database=None)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile("fast")

# Background processes of a shell ignore Ctrl-C, which tests of interruptions send to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

failures.FIRST_WAIT = 0.001  # tests do not wait for a server to recover

# Thousands of runs read the same certificates, versions and questions. None of them changes while the tests run.
ssl.create_default_context = cache(ssl.create_default_context)
plan.version = cache(plan.version)
provider.load = cache(provider.load)

gc.set_threshold(50_000, 20, 20)  # a full collection takes 0.2 s once Inspect and SciPy are loaded


@cache
def _remembering(folder: Path) -> ChatTokenizer:
    tokenizer = ChatTokenizer(folder)
    tokenizer._encode = lru_cache(maxsize=2**15)(tokenizer._encode)  # type: ignore[method-assign]
    return tokenizer


def _tokenizer(folder: Path) -> ChatTokenizer:
    """Encode each prompt of an embedded model once, as most tests ask about the same few questions."""
    return _remembering(folder) if folder.parent == models.model_folder("base").parent else ChatTokenizer(folder)


models.ChatTokenizer = runtime.ChatTokenizer = _tokenizer  # type: ignore[assignment, misc]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect doctests from the package only: scanning the docstrings of tests takes seconds in every worker."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep halves of surrogate pairs out of the report of a failing test: workers cannot send them."""
    report = yield
    told = report.longreprtext
    if told != (sent := _encodable(told)):
        report.longrepr = sent
    report.sections = [(_encodable(name), _encodable(text)) for name, text in report.sections]
    return report


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
