"""Every block of code in the README and on the site does what the page says."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT, Block, blocks, pages
from tests.docs.running import agrees, command_lines, has_part, nearly_agrees, problem_with, run_bash, run_python

ASKING = frozenset(
    {
        "README.md",
        "docs/confidence.md",
        "docs/configurations.md",
        "docs/export.md",
        "docs/python.md",
        "docs/scale.md",
        "docs/tutorial.md",
        "docs/how-to/own-data.md",
        "docs/how-to/paper.md",
        "docs/how-to/release-gate.md",
        "docs/how-to/training-run.md",
    }
)
"""Pages on which the embedded models answer many questions."""

BEFORE_A_CHANGE_LANDS = frozenset({"README.md", "docs/python.md", "docs/tutorial.md", "docs/how-to/release-gate.md"})
"""Those of them that `make test-all` runs; `make nightly` runs the others, too."""

README = {
    "make run": "tests/cli/test_main_job.py runs it with fewer questions",
    "pip install anthropic": "needs a key",
    "make check": "it is what runs the tests",
}
"""Blocks outside of the site that are not run, by how they begin, and why."""


def marked_pages() -> list[Any]:
    def tier(page: str) -> Sequence[pytest.MarkDecorator]:
        if page not in ASKING:
            return ()
        return [pytest.mark.slow if page in BEFORE_A_CHANGE_LANDS else pytest.mark.nightly]

    return [pytest.param(page, marks=tier(page)) for page in pages()]


@pytest.mark.slow
@pytest.mark.parametrize("page", marked_pages())
def test_code_does_what_the_page_says(page, tmp_path, monkeypatch, forgetting_modules):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if page in ASKING:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = ""
    for block in blocks(page):
        kind = "not_run" if is_not_run(block) else block.kind
        if kind == "file":
            write(block, tmp_path)
        elif kind == "output":
            assert is_output(block, printed), f"{block.place}: expected\n{block.text}\nfound\n{printed}"
        elif kind == "python":
            printed = run_python(block.text, namespace)
        elif kind == "bash":
            printed = run_bash(block.text, tmp_path)


@pytest.fixture
def forgetting_modules() -> Iterator[None]:
    """Forget the modules that a page brings along."""
    before = set(sys.modules)
    yield
    here = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name not in before}
    for name in (name for name, place in here.items() if Path(place).parent == Path.cwd()):
        del sys.modules[name]


def is_not_run(block: Block) -> bool:
    return block.page in {"README.md", "CONTRIBUTING.md"} and block.text.startswith(tuple(README))


def write(block: Block, folder: Path) -> None:
    path = folder / str(block.title)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


def is_output(block: Block, printed: str) -> bool:
    if block.comment.startswith("part of the output"):
        return has_part(block.text, printed)
    return (nearly_agrees if "figures may differ" in block.comment else agrees)(block.text.strip(), printed.strip())


@pytest.mark.parametrize("page", pages())
def test_commands_that_are_not_run_exist_with_their_options(page):
    problems = [
        f"{block.place}: {problem}"
        for block in blocks(page)
        if block.kind in {"not_run", "bash"}
        for words in command_lines(block.text)
        if (problem := problem_with(words)) is not None
    ]
    assert not problems


@pytest.mark.parametrize("page", pages())
def test_workflows_call_commands_that_exist(page):
    for block in blocks(page):
        if block.title is not None and block.title.endswith((".yml", ".yaml")):
            for words in [line for step in steps(block.text) for line in command_lines(step)]:
                assert problem_with(words) is None, block.place


def steps(workflow: str) -> Sequence[str]:
    document = yaml.safe_load(workflow)
    jobs = document.get("jobs", {}).values()
    of_gitlab = [line for job in document.values() if isinstance(job, dict) for line in job.get("script", ())]
    return [*(step["run"] for job in jobs for step in job["steps"] if "run" in step), *of_gitlab]


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/")])
def test_every_block_says_what_it_is(page):
    """A block that nothing checks goes out of date unseen, so each is code, a file, an output or says why not."""
    assert not [block.place for block in blocks(page) if block.kind == "unknown"]


def test_what_the_readme_does_not_run_is_in_it():
    texts = [block.text for page in ("README.md", "CONTRIBUTING.md") for block in blocks(page)]
    assert not [start for start in README if not any(text.startswith(start) for text in texts)]


def test_make_has_the_targets_that_pages_name():
    makefile = (ROOT / "Makefile").read_text()
    named = {
        words[1]
        for page in pages()
        for block in blocks(page)
        if block.kind in {"bash", "not_run"}
        for words in command_lines(block.text)
        if words[0] == "make"
    }
    assert named
    assert not [target for target in named if f"\n{target}:" not in makefile]
