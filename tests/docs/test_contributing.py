"""What the pages for contributors say of the code is so: its packages, its paths, the lines of the example."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks

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


def test_the_steps_of_one_question_are_names_of_the_code():
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
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    found = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, times in found.items() if times > 1 and not name.startswith("_")] == []
