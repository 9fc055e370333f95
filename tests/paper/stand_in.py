"""A set of runs like the paper's, against the stand-in server of the paper's models; both are outside this repository.

The server answers SimpleQA only, so the files of the other datasets have their form and questions of SimpleQA.
"""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[3] / "shared"
SERVER = SHARED / "cases" / "paper" / "server.py"
QUESTIONS = SHARED / "data" / "simpleqa" / "simple_qa_test_set.csv"

MODELS = (
    ("Gemma-3-12B", "google/gemma-3-12b-it", ""),
    ("Qwen2.5-72B", "Qwen/Qwen2.5-72B-Instruct", ""),
    ("Qwen3-32B", "Qwen/Qwen3-32B", "/no_think"),
    ("Qwen3-32B-Think", "Qwen/Qwen3-32B", "/think"),
    ("Mistral-123B", "mistralai/Mistral-Large-Instruct-2411", ""),
    ("Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct", ""),
    ("GPT-4.1", "gpt-4.1-2025-04-14", ""),
    ("Claude-Sonnet-4", "claude-sonnet-4-20250514", ""),
)
"""Name, the server's name, and what chooses the thinking mode."""

ON_BENCHMARKS = ("Gemma-3-12B", "Qwen2.5-72B", "Qwen3-32B", "Mistral-123B", "Llama-3.1-70B")
"""The models that the paper ran on the hallucination benchmarks."""

BENCHMARKS = {
    "precise_wiki": ["precise_wiki.jsonl"],
    "faitheval_counterfactual": ["counterfactual.jsonl"],
    "faitheval_inconsistent+precise_wiki": ["inconsistent.jsonl", "precise_wiki.jsonl"],
    "faitheval_unanswerable+precise_wiki": ["unanswerable.jsonl", "precise_wiki.jsonl"],
}
"""Their files."""

CALIBRATED = "Qwen3-32B"
"""The model whose confidence the paper calibrates."""

SAMPLES = 11
"""Samples of P(Answering), of which the paper has 100; the first one is not part of them."""

REPLACED = {
    # the third case by which a grader is tested
    "'enough information' in p": "'enough information' in p or \"don't know\" in p",
    # questions without a gold answer, and choices
    "    g,p = html.unescape(m[1]), html.unescape(m[2])": """\
    if m is None:
        return 'C' if 'UNANSWERED' in text.rsplit('<prediction>', 1)[-1] or 'enough information' in text else 'B'
    g,p = html.unescape(m[1]), html.unescape(m[2])
    g = re.sub(r'^[A-D][).:] ', '', g)  # a gold answer with its letter""",
    # questions with choices below them
    "    gold = QA.get(q)": "    q = q.split(chr(10))[0].strip()\n    gold = QA.get(q)",
}
"""Parts of the server that do not suit this set, and what replaces them."""


@contextmanager
def stand_in_server(folder: Path) -> Iterator[str]:
    """Serve a copy, corrected by `REPLACED`, and yield its address."""
    place = folder / "cases" / "paper"
    place.mkdir(parents=True)
    (folder / "data").symlink_to(SHARED / "data")
    source = SERVER.read_text(encoding="utf-8")
    for old, new in REPLACED.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    (place / "server.py").write_text(source, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(place / "server.py"), str(port)], cwd=folder)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(20)


def write_set(folder: Path, url: str, n: int) -> Path:
    """Write a configuration of all of the paper's runs, and the datasets that it names, with `n` questions each."""
    with QUESTIONS.open(newline="", encoding="utf-8") as file:
        rows = [(row["problem"], row["answer"]) for row in csv.DictReader(file)]
    parts = [rows[n * place : n * (place + 1)] for place in range(1, 5)]
    _write_rows(folder / "precise_wiki.jsonl", ({"question": q, "answer": a} for q, a in parts[0]))
    wrong = [answer for _, answer in rows[-3:]]
    counterfactual = (
        {
            "id": f"c{place}",
            "question": question,
            "context": "A text.",
            "choices": {"label": ["A", "B", "C", "D"], "text": [answer, *wrong]},
            "answerKey": "A",
        }
        for place, (question, answer) in enumerate(parts[1])
    )
    _write_rows(folder / "counterfactual.jsonl", counterfactual)
    for name, part in (("inconsistent", parts[2]), ("unanswerable", parts[3])):
        unanswerable = ({"qid": f"{name[0]}{i}", "question": q, "context": "A text."} for i, (q, _) in enumerate(part))
        _write_rows(folder / f"{name}.jsonl", unanswerable)
    config = folder / "paper.toml"
    config.write_text("\n\n".join(_tables(folder, url, n)), encoding="utf-8")
    return config


def _write_rows(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _tables(folder: Path, url: str, n: int) -> Iterator[str]:
    """Yield the tables of the configuration."""
    grader = {"grader": "gpt-4o-mini", "grader_base_url": url}
    yield _table("[defaults]", {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096, "limit": n})
    for name, model, think in MODELS:
        table: dict[str, Any] = {"name": name, "model": model, "base_url": url}
        if think:
            table["think"] = think
        if name == CALIBRATED:
            table["draws"] = 3
        yield _table("[[models]]", table if name in ON_BENCHMARKS else {**table, "datasets": ["simpleqa"]})
        drawn = {"name": f"{name}, samples", "variants": "normal", "temperature": 1, "draws": SAMPLES}
        yield _table("[[models]]", {**table, **drawn, "answered_only": True, "datasets": ["simpleqa"]})
    yield _table("[[datasets]]", {"dataset": "simpleqa", "data": str(QUESTIONS), **grader})
    for dataset, files in BENCHMARKS.items():
        data = [str(folder / file) for file in files]
        yield _table("[[datasets]]", {"dataset": dataset, "data": data, "variants": "normal", **grader})


def _table(header: str, values: dict[str, Any]) -> str:
    return "\n".join([header, *(f"{name} = {json.dumps(value)}" for name, value in values.items())])
