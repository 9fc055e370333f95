"""The reference and the pages for contributors name what there is."""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections import Counter
from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest

import refusal_index
from refusal_index import stats
from refusal_index.data.datasets import dataset_names
from refusal_index.data.first_pass import NOT_GRADED
from refusal_index.data.outcome import FORCED_NOT_ASKED, NO_SCORE, NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.outcome_table import SCHEMA
from refusal_index.data.run_json import STOPPED
from refusal_index.findings.confidence_record import MethodRecord
from refusal_index.findings.sections import with_sections
from refusal_index.findings.summary import summarise
from refusal_index.plugins.inspect.two_pass import FIRST_LIMIT
from refusal_index.plugins.studies.study import study_specs
from refusal_index.protocol.grading import RULES
from refusal_index.protocol.reading import CHOICE_AMBIGUOUS, PATTERN_TIMEOUT, REPLY_REASONS
from refusal_index.protocol.steps import GRADE_REASONS
from refusal_index.render.summary import summary_document
from refusal_index.runs.store import STORE_VERSION, TABLES
from tests.docs.blocks import ROOT, blocks
from tests.runs.test_package import USED_ELSEWHERE

# --- The reference is complete

NOT_THERE = ("__version__", "stats")
PYTHON = ROOT / "docs/reference/python"
FILES = (ROOT / "docs/reference/files.md").read_text()


def first_column(text: str, after: str = "") -> list[str]:
    """Return the code-formatted names in the first column of the first table after a comment."""
    table = text.partition(after)[2].partition("|---")[2].partition("\n\n")[0] if after else text
    return [name for row in re.findall(r"^\|([^|]*)\|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]


def test_every_public_name_is_in_the_python_reference_once():
    pages = "\n".join(page.read_text() for page in sorted(PYTHON.glob("*.md")))
    paths = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    public = [f"refusal_index.{name}" for name in refusal_index.__all__ if name not in {*stats.__all__, *NOT_THERE}]
    assert len(paths) == len(set(paths))
    assert {*public, *(f"refusal_index.stats.{name}" for name in stats.__all__)} <= set(paths)
    for path in paths:
        module, _, name = path.rpartition(".")
        assert name in USED_ELSEWHERE or hasattr(importlib.import_module(module), name), path


def test_store_tables_match_the_code():
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(TABLES)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in tables}
    table = FILES.partition("<!-- store -->\n\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", table, re.MULTILINE)
    names = re.compile(r"`(\w+)`")
    listed = {name: names.findall(named) for cell, named in rows for name in names.findall(cell) if name in tables}
    assert listed == columns
    assert f"`user_version`, which is {STORE_VERSION}" in FILES


def test_the_python_reference_has_an_entry_for_every_page():
    index = (PYTHON / "index.md").read_text()
    assert not [page.name for page in PYTHON.glob("*.md") if page.name != "index.md" and f"]({page.name})" not in index]


def test_outcome_table_columns_are_listed_in_order():
    assert first_column(FILES, "<!-- columns -->") == list(SCHEMA)


@pytest.fixture(scope="module")
def document() -> dict:
    frame = pl.DataFrame({"refused": [True, True, False, False], "wrong": [True, False, True, False]})
    columns = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in frame.columns]
    whole = frame.with_columns(columns).with_columns(
        question_id=pl.Series(["a", "b", "c", "d"]), draw=pl.lit(0, pl.Int64)
    )
    table = whole.select(list(SCHEMA)).with_columns(confidence=pl.lit(0.5))
    return summary_document(with_sections(summarise(table), table))


def test_summary_keys_match_the_code(document):
    assert first_column(FILES, "<!-- summary -->") == [
        *document,
        STOPPED,
        "short_of",
        "disagreements",
    ]  # run-only keys come last
    assert sorted(first_column(FILES, "<!-- variant -->")) == sorted(document["variants"][0])
    assert sorted(first_column(FILES, "<!-- confidence -->")) == sorted(document["confidence"][0])


def test_score_record_keys_match_the_code():
    keys = [field.name for field in fields(MethodRecord) if field.name != "method"]
    assert sorted(first_column(FILES, "<!-- record -->")) == sorted(keys)


def test_metric_names_match_the_code(document):
    (line,) = [line for line in FILES.splitlines() if line.startswith("Names of metrics: ")]
    assert re.findall(r"`([^`]+)`", line) == list(document["variants"][0]["metrics"])


def test_unscored_reasons_match_the_code():
    named = {re.sub(r"^(first|forced)_(?!not_asked)", "", reason) for reason in first_column(FILES, "<!-- reasons -->")}
    written = {*REPLY_REASONS, *GRADE_REASONS, REQUEST_FAILED, NOT_FINISHED, FORCED_NOT_ASKED, NO_SCORE}
    written |= {NOT_GRADED.removeprefix("first_"), FIRST_LIMIT.removeprefix("first_")}
    written |= {CHOICE_AMBIGUOUS, PATTERN_TIMEOUT}
    written |= {rule.unscored_reason for rule in RULES.values()}
    assert named == written


def test_listed_datasets_match_the_package():
    assert sorted(first_column((ROOT / "docs/reference/datasets.md").read_text().split("## A file")[0])) == sorted(
        dataset_names()
    )


def test_the_gallery_shows_every_study():
    gallery = (ROOT / "docs/gallery.md").read_text()
    assert re.findall(r"^## .* \{#(\w+)\}$", gallery, re.MULTILINE) == [spec.name for spec in study_specs()]
    pictures = [ROOT / "docs" / path for path in re.findall(r"\]\((gallery/[^)]+)\)", gallery)]
    assert sorted(pictures) == sorted((ROOT / "docs/gallery").iterdir())
    assert sum(path.stat().st_size for path in pictures) < 1.5e6


# --- Pages for contributors match the code

PACKAGE = ROOT / "src/refusal_index"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
CHANGES = CONTRIBUTING.partition("## Where to make a change")[2]


def test_every_package_is_in_the_table():
    table = CONTRIBUTING.partition("| package |")[2].partition("\n\n")[0]
    packages = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    assert sorted(re.findall(r"^\| `(\w+)/`", table, re.MULTILINE)) == sorted(packages)


def test_every_line_of_the_example_is_in_its_file():
    (example,) = [block for block in blocks("CONTRIBUTING.md") if block.language == "diff"]
    files = re.findall(r"^\+\+\+ b/(\S+)\n((?:^(?:@@ |\+(?!\+))[^\n]*\n)+)", example.text, re.MULTILINE)
    assert len(files) == 3
    for path, hunks in files:
        lines, added = (ROOT / path).read_text().splitlines(), re.findall(r"^\+(.*)", hunks, re.MULTILINE)
        assert added
        assert not [line for line in added if line not in lines], path


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_/]+(?:\.py|\.md|\.toml|/))`", CHANGES))))
def test_every_file_in_the_table_of_changes_exists(path):
    assert any((place / path).exists() for place in (ROOT, PACKAGE, PACKAGE / "plugins/inspect"))


def test_steps_in_the_one_question_picture_name_real_code():
    """The picture's boxes that are classes, and the modules beside them."""
    picture = (ROOT / "docs/assets/one-question.svg").read_text()
    names = re.findall(r'<text x="105"[^>]*>([^<]+)<', picture)
    places = re.findall(r'<text x="555"[^>]*>([^<]+)<', picture)
    assert len(names) == len(places) == 12
    for name, place in zip(names, places, strict=True):
        found = [PACKAGE / part for part in place.split(", ")]
        assert all(path.exists() for path in found), place
        if name[0].isupper():
            assert f"class {name}" in "".join(text_of(path) for path in found), (name, place)


def text_of(path: Path) -> str:
    return path.read_text() if path.is_file() else "".join(one.read_text() for one in path.rglob("*.py"))


def test_no_two_public_classes_have_the_same_name():
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    found = Counter(name for text in texts for name in re.findall(r"^ *class (\w+)[:(]", text, re.MULTILINE))
    assert found["RefusalIndexResult"] == 1
    assert [name for name, times in found.items() if times > 1 and not name.startswith("_")] == []
