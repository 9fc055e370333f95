"""The site as it is built: strict, complete, and without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from refusal_index import __version__
from tests.docs.blocks import ROOT, pages
from tests.render.chromium import Browser, Page

LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#[^)\s]*)?\)")


@pytest.mark.parametrize(
    "page", [*pages(), "benchmarks/README.md", "src/refusal_index/plugins/almanac/models/README.md"]
)
def test_links_point_to_files_of_the_repository(page):
    """Pages are also read in the repository; links within the built site are checked when it is built."""
    generated = {ROOT / "docs" / name for name in ("reference/command-line.md", "benchmarks.md", "embedded-models.md")}
    place = ROOT / page
    missing = [
        target
        for target in LINK.findall(place.read_text())
        if target and not (path := (place.parent / target).resolve()).exists() and path not in generated
    ]
    assert not missing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed; 'make docs' installs it")
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


class Resources(HTMLParser):
    """The resources that a page makes the browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in {"script", "img", "iframe", "source"} or (tag == "link" and named.get("rel") != "canonical"):
            self.found += [value for key in ("src", "href") if (value := named.get(key))]


def fetched(page: Path) -> Iterator[str]:
    parser = Resources()
    parser.feed(page.read_text())
    return iter(parser.found)


@pytest.mark.slow
def test_pages_fetch_only_existing_local_resources(site):
    elsewhere = re.compile(r"^(?:[a-z]+:)?//")
    for page in site.rglob("*.html"):
        for resource in fetched(page):
            assert not elsewhere.match(resource), (page.name, resource)
            if page.name != "404.html":
                assert (page.parent / resource.partition("?")[0].partition("#")[0]).resolve().exists(), resource


@pytest.mark.slow
def test_every_page_states_its_version(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 40
    assert [page.name for page in pages if f"refusal-index {__version__}" not in page.read_text()] == []


@pytest.mark.slow
def test_the_command_line_page_has_every_command_and_option(site):
    page = (site / "reference/command-line.html").read_text()
    text = re.sub(r"<[^>]+>", "", page)
    for words in (
        "run",
        "score",
        "compare",
        "build precise-wiki",
        "--repeat-questions",
        "--grader-error",
        "3 inconclusive",
    ):
        assert words in text


@pytest.mark.slow
def test_names_on_the_statistics_page_link_to_the_reference(site):
    page = (site / "statistics.html").read_text()
    assert 'href="reference/python/stability.html#refusal_index.plugins.studies.stability.kendall_w"' in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_search_works_on_pages_opened_from_a_disk(site, tmp_path):
    page = f"{(site / 'index.html').as_uri()}?q=profile+likelihood"
    settings = ("--headless", "--no-sandbox", f"--user-data-dir={tmp_path}", "--virtual-time-budget=8000", "--dump-dom")
    output = subprocess.run(
        ["chromium", *settings, page], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert re.search(r"\d+ matching documents", output)
    assert 'class="md-search-result__link"' in output


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height", "dark"), [(1280, 900, False), (390, 844, True)])
def test_the_calculator_fits_its_window_and_works_from_a_disk(
    site: Path, chromium: Browser, width: int, height: int, dark: bool
) -> None:
    page = Page(chromium, width=width, height=height, dark=dark)
    page.open(site / "calculator.html")
    assert page.run("document.documentElement.scrollWidth") == width
    assert page.run("document.getElementById('headline').textContent") == "RI 0.482"
    assert page.run("document.querySelector('#plane svg').getBoundingClientRect().right") <= width
    assert page.complaints() == []
    assert {url.partition(":")[0] for url in page.requests()} <= {"file", "data"}
    page.close()
