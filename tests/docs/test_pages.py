"""The code on the pages, in the notebook and in its server does what they say."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import refusal_index as ri
from tests.docs.blocks import ROOT, Block, blocks, pages
from tests.docs.running import agrees, command_lines, has_part, nearly_agrees, problem_with, run_bash, run_python

# --- Code blocks of the README and the site

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
    "make run": "tests/cli/test_run.py runs it with fewer questions",
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
def test_code_does_what_the_page_says(page, tmp_path, monkeypatch, unload_page_modules):
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
def unload_page_modules() -> Iterator[None]:
    """Unload the modules that a page imports."""
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
def test_every_code_block_has_a_known_kind(page):
    """Unchecked blocks go out of date unnoticed, so each is code, a file, output, or says why not."""
    assert not [block.place for block in blocks(page) if block.kind == "unknown"]


def test_listed_readme_exceptions_exist():
    texts = [block.text for page in ("README.md", "CONTRIBUTING.md") for block in blocks(page)]
    assert not [start for start in README if not any(text.startswith(start) for text in texts)]


def test_makefile_has_every_target_named_on_pages():
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


# --- Inside a running event loop

NOTEBOOK = ROOT / "docs/notebooks/evaluate.ipynb"
QUESTIONS = [{"question": "What is the capital of Peru?", "answer": "Lima"}, {"question": "Who?", "answer": "Ann"}]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_tables_and_a_plane(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = {cell["id"]: cell["outputs"] for cell in book.cells if cell["cell_type"] == "code"}
    run = html(outputs["evaluate"])
    assert "<table" in run
    assert "<svg" in run
    assert run.index("highest") < run.index("<svg")
    assert "almanac/base vs python:__main__:shy" in html(outputs["shy"])
    assert outputs["await"][-1]["data"]["text/plain"] == "True"


def html(outputs: list[Any]) -> str:
    return str(outputs[-1]["data"]["text/html"])


def test_notebook_is_stored_without_outputs():
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    assert not [cell["id"] for cell in book.cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.fixture
def server(tmp_path, monkeypatch) -> ModuleType:
    """The server as shown on the page."""
    (block,) = [block for block in blocks("docs/python.md") if block.title == "server.py"]
    place = tmp_path / "server.py"
    place.write_text(block.text)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("server", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_server_handles_other_requests_while_awaiting_an_evaluation(server):
    test_utils = pytest.importorskip("aiohttp.test_utils")

    async def main() -> list[dict[str, Any]]:
        async with test_utils.TestClient(test_utils.TestServer(server.app)) as client:
            asked = (QUESTIONS, QUESTIONS[:1])
            replies = await asyncio.gather(*(client.post("/measure", json=one) for one in asked))
            return [await reply.json() for reply in replies]

    several, one = asyncio.run(main())
    assert several["status"] == one["status"] == "undefined"
    assert several["index"] is None
    assert one["reason"]


def test_cancelling_an_evaluation_affects_nothing_else(tmp_path):
    async def main() -> str:
        begun = asyncio.Event()

        async def silent(messages: Any) -> str:
            begun.set()
            await asyncio.sleep(60)
            return ""

        how = {"model_name": "silent", "variants": "low", "grader": "exact", "attempt_timeout": 1}
        task = asyncio.create_task(ri.evaluate_async(silent, QUESTIONS, out=tmp_path / "run", **how))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not asyncio.current_task().cancelling(), "the evaluation ended by itself, before the time was up"
        return "served"

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "served"
