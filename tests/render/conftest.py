from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.render.chromium import CHROMIUM, Browser, Page


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; each page has its own storage."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open a report in a separate window; at the end it must have logged nothing and requested nothing else."""
    opened: list[tuple[Page, Path]] = []

    def open_report(path: Path, address: str = "", **how: object) -> Page:
        page = Page(chromium, **how)  # type: ignore[arg-type]
        opened.append((page, path))
        page.open(path, address)
        return page

    yield open_report
    for page, path in opened:
        assert page.complaints() == []
        assert {url for url in page.requests() if not url.startswith("data:")} == {path.as_uri()}
        page.close()
