"""Settings and hooks shared by all tests."""

import gc
import os
import signal
import ssl
import tempfile
from collections.abc import Generator, Iterator
from functools import cache, lru_cache
from pathlib import Path

import pytest
import typer.testing
from _pytest.doctest import DoctestModule
from hypothesis import settings

from refusal_index.models import failures
from refusal_index.plugins.almanac import models, runtime
from refusal_index.plugins.almanac.models import ChatTokenizer
from refusal_index.runs import identity

# No deadline: a busy machine makes any example slow. `make test` and `make test-all` run the same examples every time,
# so that a change passes or fails on its own merits; `make nightly` tries new ones.
settings.register_profile("fast", deadline=None, max_examples=25, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=50, derandomize=True, database=None)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile("fast")


MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own there
"""Where Linux has files in memory."""


def pytest_configure() -> None:
    """Write temporary files to memory where there is room and programs in files can be run.

    Every reply of a run is written to the disk before the next, and tests make thousands of runs.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    system = os.statvfs(MEMORY)
    if system.f_bavail * system.f_frsize > 4 << 30 and not system.f_flag & (os.ST_RDONLY | os.ST_NOEXEC):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


@pytest.fixture(scope="session", autouse=True)
def interrupts_and_collections() -> Iterator[None]:
    """Deliver Ctrl-C, which background processes of a shell ignore, and collect garbage less often.

    Tests of interruptions send Ctrl-C to themselves. A full collection takes 0.2 s once Inspect and SciPy are loaded.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    threshold = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    gc.freeze()  # what was imported and collected lives to the end
    yield
    gc.set_threshold(*threshold)
    signal.signal(signal.SIGINT, handler or signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def short_waits_and_cached_reads() -> Iterator[None]:
    """Retry and write without waiting, and read certificates, versions, tokenizers and commands once.

    Thousands of runs read the same ones, and none of them changes while the tests run. Tests kill processes, not the
    machine, so files need not reach the disk.
    """
    embedded = models.model_folder("base").parent

    @cache
    def cached_tokenizer(folder: Path) -> ChatTokenizer:
        tokenizer = ChatTokenizer(folder)
        tokenizer._encode = lru_cache(maxsize=2**15)(tokenizer._encode)  # type: ignore[method-assign]
        return tokenizer

    def load_tokenizer(folder: Path) -> ChatTokenizer:
        """Encode each prompt of an embedded model once, as most tests ask about the same few questions."""
        return cached_tokenizer(folder) if folder.parent == embedded else ChatTokenizer(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "FIRST_WAIT", 0.001)
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        patch.setattr(identity, "version", cache(identity.version))
        patch.setattr("typer.testing._get_command", cache(typer.testing._get_command))
        patch.setattr(models, "ChatTokenizer", load_tokenizer)
        patch.setattr(runtime, "ChatTokenizer", load_tokenizer)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect doctests from the package only: scanning the docstrings of tests takes seconds in every worker."""
    found = yield
    return [collector for collector in found if not isinstance(collector, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep halves of surrogate pairs out of the report of a failing test: workers cannot send them."""
    report = yield
    text = report.longreprtext
    if text != (encodable := _encodable(text)):
        report.longrepr = encodable
    report.sections = [(_encodable(name), _encodable(output)) for name, output in report.sections]
    return report


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
