"""Inside loops that run already: the notebook of the documentation, and its server."""

from __future__ import annotations

import asyncio
import importlib.util
from types import ModuleType
from typing import Any

import pytest

import refusal_index as ri
from tests.docs.blocks import ROOT, blocks

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
    shown = {cell["id"]: cell["outputs"] for cell in book.cells if cell["cell_type"] == "code"}
    run = html(shown["evaluate"])
    assert "<table" in run
    assert "<svg" in run
    assert run.index("highest") < run.index("<svg")
    assert "almanac/base vs python:__main__:shy" in html(shown["shy"])
    assert shown["await"][-1]["data"]["text/plain"] == "True"


def html(outputs: list[Any]) -> str:
    return str(outputs[-1]["data"]["text/html"])


def test_the_notebook_lies_there_without_outputs():
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    assert not [cell["id"] for cell in book.cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.fixture
def server(tmp_path, monkeypatch) -> ModuleType:
    """The server as the page has it."""
    (block,) = [block for block in blocks("docs/python.md") if block.title == "server.py"]
    place = tmp_path / "server.py"
    place.write_text(block.text)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("server", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_handler_of_a_server_awaits_an_evaluation_while_others_are_served(server):
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


def test_a_cancelled_evaluation_ends_nothing_but_itself(tmp_path):
    async def main() -> str:
        begun = asyncio.Event()

        async def silent(messages: Any) -> str:
            begun.set()
            await asyncio.sleep(60)
            return ""

        how = {"model_name": "silent", "variants": "low", "grader": "exact", "out": tmp_path / "run"}
        task = asyncio.create_task(ri.evaluate_async(silent, QUESTIONS, **how))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return "served"

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "served"
