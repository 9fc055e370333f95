"""Files read by other tools: citation, workflows and badges, against their published schemas and the code."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT, blocks, pages

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


@pytest.mark.skipif(
    importlib.util.find_spec("check_jsonschema") is None,
    reason="the extra 'publish' is not installed; 'make dist' installs it",
)
@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.citation-file-format", ROOT / "CITATION.cff"),
        *(("vendor.github-workflows", path) for path in WORKFLOWS),
        ("vendor.github-actions", ROOT / "action.yml"),
    ],
    ids=str,
)
def test_files_follow_their_published_schemas(schema: str, file: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_citation_matches_the_package_and_cites_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["title"], citation["version"]) == (PROJECT["name"], PROJECT["version"])
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    (paper,) = citation["references"]
    assert paper["title"].startswith("Can LLMs Refuse Questions They Do Not Know?")
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Pan", "Xu", "Chen", "Dong", "Qin", "Li", "Yu", "Jia"]


def workflow(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in workflow(path)["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_checkouts_keep_no_credentials(path):
    for step in steps(path):
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_permissions_are_minimal_per_job(path):
    content = workflow(path)
    assert set(content["permissions"].values()) <= {"read"}
    granted = {name: job.get("permissions", content["permissions"]) for name, job in content["jobs"].items()}
    writes = {name: [right for right, kind in rights.items() if kind == "write"] for name, rights in granted.items()}
    assert {name: rights for name, rights in writes.items() if rights} == (
        {"publish": ["id-token"], "announce": ["contents"]} if path.name == "release.yml" else {}
    )
    assert "secrets." not in path.read_text(encoding="utf-8")
    # Text from branch names, titles or comments must not become part of a script.
    for step in steps(path):
        assert "${{" not in step.get("run", "")


def test_workflows_call_the_documented_make_targets():
    called = {step["run"] for path in WORKFLOWS for step in steps(path) if step.get("run", "").startswith("make ")}
    commands = {
        " ".join(line.split()[:2])
        for page in ("README.md", "CONTRIBUTING.md")
        for block in blocks(page)
        for line in block.text.splitlines()
        if line.startswith("make ")
    }
    assert called == {"make run", "make test", "make check", "make docs", "make test-all", "make nightly", "make dist"}
    assert called == commands


def test_release_publishes_only_tested_files_without_a_password():
    jobs = workflow(ROOT / ".github/workflows/release.yml")["jobs"]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert commands.index("make test-all") < commands.index("make dist")
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["environment"] == "pypi"
    assert not any("run" in step for step in jobs["publish"]["steps"])
    assert all("with" not in step for step in jobs["publish"]["steps"] if "gh-action-pypi-publish" in step["uses"])


def test_every_supported_python_version_is_tested():
    tested = workflow(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert tested == supported_versions()


def supported_versions() -> list[str]:
    named = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert PROJECT["requires-python"] == f">={named[0]}"
    return named


class Images(HTMLParser):
    """Text of an SVG, and the resources it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.attributes: dict[str, str | None] = {}

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data.split()


def test_readme_badges_are_correct_and_fetch_nothing():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    badges = dict(re.findall(r"!\[([^\]]+)\]\((docs/assets/badges/[^)]+)\)", readme))
    versions = supported_versions()
    assert set(badges) == {f"Python: {versions[0]} to {versions[-1]}", f"Licence: {PROJECT['license']}"}
    for words, path in badges.items():
        image = Images()
        image.feed((ROOT / path).read_text(encoding="utf-8"))
        assert image.attributes["aria-label"] == words
        assert " ".join(image.text) == words.replace(": ", " ")
        assert not {"href", "src", "xlink:href"} & set(image.attributes)


def test_readme_names_the_citation_file():
    assert "CITATION.cff" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/comparison.md" in pages()
