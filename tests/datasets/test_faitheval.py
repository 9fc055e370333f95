"""Evidence for FaithEval: files of exactly the published columns, in every format, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data import datasets
from refusal_index.data.datasets import DatasetError, load_dataset
from refusal_index.data.files import sha256_of
from tests.datasets.local_server import LocalServer

ABOUT_TEXT = [
    {"qid": "50f8", "question": "Who?", "context": "One text.", "answers": ["unknown", "no answer"]},
    {"qid": "e2c9", "question": "When?", "context": "Document: 1804. Document: 1805.", "answers": ["1804", "1805"]},
    {"qid": "50f8", "question": "Where?", "context": "Another {text}.", "answers": []},
]
TO_CHOOSE = [
    {
        "id": "Mercury_1",
        "question": "What is ice made of?",
        "answer": "granite",
        "answerKey": "B",
        "choices": {"label": ["A", "B", "C"], "text": ["water", "granite", "air"]},
        "context": "Ice is made of granite.",
        "num of options": 3,
    },
    {
        "id": "Mercury_2",
        "question": "How many legs has a spider?",
        "answer": "8",
        "answerKey": "1",
        "choices": {"label": ["1", "2"], "text": ["8", "6"]},
        "context": "Spiders have eight legs.",
        "num of options": 2,
    },
]


def write(path: Path, records: list[dict]) -> Path:
    if path.suffix == ".parquet":
        pl.DataFrame(records).write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        flat = [{name: json.dumps(v) if isinstance(v, dict | list) else v for name, v in r.items()} for r in records]
        pl.DataFrame(flat).write_csv(path)
    return path


@pytest.fixture(params=["x.parquet", "x.jsonl", "x.csv"])
def path(request, tmp_path) -> Path:
    return tmp_path / request.param


@pytest.mark.parametrize("task", ["unanswerable", "inconsistent"])
def test_questions_about_a_text_that_does_not_tell_have_no_gold_answer(path, task):
    data = load_dataset(f"faitheval_{task}", data=write(path, ABOUT_TEXT))
    assert data.name == f"faitheval_{task}"
    assert data.default_grader == "model"
    assert [q.question_id for q in data.questions] == ["50f8", "e2c9", "50f8-2"]
    assert [q.context for q in data.questions] == [record["context"] for record in ABOUT_TEXT]
    assert {(q.gold, q.aliases, q.choices) for q in data.questions} == {(None, (), ())}


def test_the_counterfactual_answer_is_the_choice_that_the_key_names(path):
    data = load_dataset("faitheval_counterfactual", data=write(path, TO_CHOOSE))
    assert data.default_grader == "choice"
    assert [(q.question_id, q.gold, q.choices, q.context) for q in data.questions] == [
        ("Mercury_1", "granite", ("water", "granite", "air"), "Ice is made of granite."),
        ("Mercury_2", "8", ("8", "6"), "Spiders have eight legs."),
    ]


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[LocalServer]:
    """A hub on loopback, and a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    with LocalServer() as served:
        monkeypatch.setattr(datasets, "HUB", served.url)
        yield served


@pytest.mark.parametrize(
    "task",
    [task for name, task in datasets.PUBLISHED.items() if name.startswith("faitheval")],
    ids=lambda task: task.name,
)
def test_the_pinned_revision_is_downloaded_once_and_its_checksum_recorded(task, hub, tmp_path):
    records = TO_CHOOSE if task.name == "faitheval_counterfactual" else ABOUT_TEXT
    content = write(tmp_path / "published.parquet", records).read_bytes()
    hub.bodies = [content]
    first = load_dataset(task.name)
    assert load_dataset(task.name) == first
    assert hub.seen == [task.address.removeprefix("{hub}")]
    assert first.sha256 == sha256_of(content)
    assert first.source == hub.url + hub.seen[0]
    assert first.questions == load_dataset(task.name, data=tmp_path / "published.parquet").questions
    assert re.search("/resolve/[0-9a-f]{40}/", task.address)


def test_a_download_that_was_altered_on_the_disk_is_fetched_anew(hub, tmp_path):
    content = write(tmp_path / "published.parquet", ABOUT_TEXT).read_bytes()
    hub.bodies = [content] * 3
    first = load_dataset("faitheval_unanswerable")
    (cached,) = (tmp_path / "cache").rglob("*.parquet")
    (record,) = (tmp_path / "cache").rglob("*.sha256")
    cached.write_bytes(content[:-5])
    assert load_dataset("faitheval_unanswerable") == first
    assert cached.read_bytes() == content
    record.unlink()
    assert load_dataset("faitheval_unanswerable") == first
    assert record.read_text() == sha256_of(content)
    assert len(hub.seen) == 3


@pytest.mark.parametrize(
    "task",
    [task for name, task in datasets.PUBLISHED.items() if name.startswith("faitheval")],
    ids=lambda task: task.name,
)
def test_without_the_hub_it_is_said_what_to_download_and_where_to_put_it(task, hub):
    hub.bodies = [404]
    with pytest.raises(DatasetError, match=r"cannot be downloaded.*404.*download it yourself.*\(--data\)") as caught:
        load_dataset(task.name)
    assert task.address.format(hub=hub.url) in str(caught.value)


def test_in_a_mix_a_single_file_goes_to_the_dataset_that_needs_one(hub, tmp_path):
    hub.bodies = [write(tmp_path / "published.parquet", ABOUT_TEXT).read_bytes()]
    wiki = tmp_path / "wiki.jsonl"
    wiki.write_text('{"question": "Who?", "answer": "Ann"}\n{"question": "When?", "answer": "1804"}\n')
    for files in ([wiki], [tmp_path / "published.parquet", wiki]):
        mixed = load_dataset("faitheval_unanswerable+own", data=files)
        assert [question.gold is None for question in mixed.questions] == [True, False] * 2
    with pytest.raises(
        DatasetError,
        match=r"expected 2 files \(faitheval_unanswerable, own\) or 1 file \(own\), in this order, got 3 files",
    ):
        load_dataset("faitheval_unanswerable+own", data=[wiki] * 3)


def test_another_tasks_file_is_told_by_its_columns(path):
    with pytest.raises(
        DatasetError, match=r"columns of faitheval_unanswerable, among them 'qid', got 'id'.*another file"
    ):
        load_dataset("faitheval_unanswerable", data=write(path, TO_CHOOSE))
    with pytest.raises(DatasetError, match="columns of faitheval_counterfactual, among them 'id', got 'qid'"):
        load_dataset("faitheval_counterfactual", data=write(path, ABOUT_TEXT))


def test_a_key_that_names_no_choice_is_refused_with_its_line(tmp_path):
    records = [TO_CHOOSE[0], {**TO_CHOOSE[1], "answerKey": "C"}]
    with pytest.raises(DatasetError, match=r"x\.jsonl, line 2, column 'answerKey': .* got 'C'; the choices are '1, 2'"):
        load_dataset("faitheval_counterfactual", data=write(tmp_path / "x.jsonl", records))
    with pytest.raises(DatasetError, match=r"x\.parquet, row 2, column 'answerKey'"):
        load_dataset("faitheval_counterfactual", data=write(tmp_path / "x.parquet", records))


def test_labels_without_texts_are_refused(tmp_path):
    records = [{**TO_CHOOSE[0], "choices": {"label": ["A", "B"], "text": ["water"]}}]
    with pytest.raises(DatasetError, match=r"line 1, column 'choices': expected a JSON list"):
        load_dataset("faitheval_counterfactual", data=write(tmp_path / "x.jsonl", records))


def test_columns_go_with_own_files_only(path):
    with pytest.raises(DatasetError, match="has columns of its own"):
        load_dataset("faitheval_unanswerable", data=write(path, ABOUT_TEXT), columns={"question": "q"})


def test_a_broken_parquet_file_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(DatasetError, match=r"x\.parquet cannot be read as Parquet \(.*\); check that it is complete"):
        load_dataset("faitheval_unanswerable", data=path)
