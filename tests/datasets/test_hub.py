"""Datasets of the Hugging Face Hub by name, from a Hub on loopback with the Hub's own client."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.datasets import DatasetError, hub, load_dataset
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.data.datasets.hub_files import default_split, files_of
from tests.datasets.local_hub import TOKEN, HubDataset, LocalHub

huggingface_hub = pytest.importorskip("huggingface_hub")

ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(6)]
NESTED = [
    {"id": "q1", "query": "Who built it?", "answers": {"text": ["Ann", "Anne"], "start": [1, 1]}, "context": "By Ann."},
    {"id": "q2", "query": "When?", "answers": {"text": [], "start": []}, "context": "By Ann."},
]


def parquet(rows: list[dict]) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(rows).write_parquet(buffer)
    return buffer.getvalue()


def lines(rows: list[dict]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


SHARDED = HubDataset(
    {
        "README.md": b"# Sums",
        "data/test-00000-of-00002.parquet": parquet(ROWS[:2]),
        "data/test-00001-of-00002.parquet": parquet(ROWS[2:]),
        "data/train-00000-of-00001.parquet": parquet(ROWS[:1]),
    },
    revisions=("main", "v1", "refs/convert/parquet"),
)
SCRIPTS = HubDataset({"README.md": b"", "load.py": b"raise SystemExit", "data.zip": b"PK"})


@pytest.fixture
def served(local_hub) -> LocalHub:
    local_hub.datasets |= {
        "org/sums": SHARDED,
        "org/nested": HubDataset({"validation.parquet": parquet(NESTED)}, {"license": ["cc-by-4.0", "mit"]}),
        "org/scripts": SCRIPTS,
        "org/gated": HubDataset({"test.jsonl": lines(ROWS)}, is_gated=True),
    }
    return local_hub


def one(files: dict[str, bytes], **described: object) -> HubDataset:
    return HubDataset(files, **described)  # type: ignore[arg-type]


def test_end_to_end_shards_are_one_dataset_at_the_commit_of_the_hub(served):
    dataset = load_dataset("hf:org/sums")
    assert dataset.questions == questions_from(ROWS).questions
    assert dataset.name == "hf:org/sums:test"
    assert dataset.source == f"hf:org/sums:test at commit {'a' * 40}"
    assert dataset.licence == "mit"
    assert dataset.notes[0] == f"commit {'a' * 12}, 2 files, licence mit"
    assert load_dataset("hf:org/sums:train").questions == dataset.questions[:1]
    assert load_dataset("hf:org/sums", limit=3).sha256 == dataset.sha256


def test_end_to_end_nested_columns_and_an_empty_list_of_answers(served):
    columns = {"question": "query", "answer": "answers.text", "answerable": "answers.text"}
    first, second = load_dataset("hf:org/nested", columns=columns).questions
    assert (first.question_id, first.gold, first.aliases, first.context) == ("q1", "Ann", ("Anne",), "By Ann.")
    assert second.gold is None
    assert load_dataset("hf:org/nested", columns=columns).licence == "cc-by-4.0, mit"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("test.csv", b"question,answer\nWho?,Ann\nWhen?,1804\n"),
        ("test.tsv", b"question\tanswer\nWho?\tAnn\nWhen?\t1804\n"),
        ("test.jsonl", b'{"question": "Who?", "answer": "Ann"}\n{"question": "When?", "answer": 1804}\n'),
        ("test.json", b'[{"question": "Who?", "answer": "Ann"}, {"question": "When?", "answer": 1804}]'),
        (
            "test.json",
            b'{"version": 1, "data": [{"question": "Who?", "answer": "Ann"}, {"question": "When?", "answer": 1804}]}',
        ),
        ("test.json", b'{"question": "Who?", "answer": "Ann"}\n{"question": "When?", "answer": 1804}\n'),
    ],
)
def test_end_to_end_each_format_holds_the_same_questions(served, name, content):
    served.datasets["org/sums"] = one({name: content})
    dataset = load_dataset("hf:org/sums")
    assert [(q.text, q.gold) for q in dataset.questions] == [("Who?", "Ann"), ("When?", "1804")]


def test_a_dataset_that_was_read_needs_no_hub_again(served):
    first = load_dataset("hf:org/sums")
    before = len(served.seen)
    assert load_dataset(f"hf:org/sums@{'a' * 40}").questions == first.questions
    pinned = len(served.seen)
    assert load_dataset(f"hf:org/sums@{'a' * 40}") == first
    assert len(served.seen) == pinned > before  # a commit that was read is not asked for again
    served.failing = 503
    assert load_dataset("hf:org/sums") == first
    served.failing = 404
    with pytest.raises(DatasetError, match="answered with status 404"):
        load_dataset("hf:org/sums")


def test_without_the_hub_a_dataset_that_was_read_is_read_from_the_cache(served, monkeypatch):
    first = load_dataset("hf:org/sums")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", served.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    huggingface_hub.close_session()
    assert load_dataset("hf:org/sums") == first
    with pytest.raises(DatasetError, match="cannot be downloaded"):
        load_dataset("hf:org/nested")


@pytest.mark.parametrize("name", ["hf:org/sums", f"hf:org/sums@{'a' * 40}", "faitheval_unanswerable"])
def test_without_a_network_the_error_names_the_setting_and_the_option(local_hub, monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DatasetError, match=r"cannot be downloaded \(.*refused.*HF_ENDPOINT.*--data FILE"):
        load_dataset(name)


def test_a_newer_commit_with_the_same_files_is_the_same_dataset_for_a_run(served):
    first = load_dataset("hf:org/sums")
    served.datasets["org/sums"] = HubDataset(SHARDED.files, commit="b" * 40)
    again = load_dataset("hf:org/sums")
    assert (again.sha256, again.questions_sha256, again.name) == (first.sha256, first.questions_sha256, first.name)
    assert again.source.endswith("b" * 40)


ERRORS = {
    "no name": ("hf:sums", r"expected hf:ORG/NAME, hf:ORG/NAME:SPLIT .* got 'hf:sums'"),
    "no dataset": ("hf:org/none", "no dataset 'org/none' on the Hub, or it is private.*HF_TOKEN"),
    "gated": ("hf:org/gated", r"gated; accept its terms at http://127.0.0.1:\d+/datasets/org/gated and set HF_TOKEN"),
    "no revision": ("hf:org/sums@v9", "no revision 'v9'"),
    "no split": ("hf:org/sums:tset", r"expected a split out of 'test', 'train', got 'tset'; did you mean 'test'\?"),
    "no configuration": ("hf:org/sums/easy", "expected a configuration out of 'default', got 'easy'"),
    "only scripts": ("hf:org/scripts", r"got 'README.md', 'load.py', 'data.zip'; scripts are not run.*convert/parquet"),
    "not a name": ("hf:org--/sums", "cannot be downloaded|no dataset"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_used_is_said_in_one_line(served, case):
    name, message = ERRORS[case]
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(name)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(("dataset: ", name))


def test_missing_columns_are_listed_with_the_option_that_names_one(served):
    with pytest.raises(DatasetError) as caught:
        load_dataset("hf:org/nested")
    assert "got 'id', 'query', 'context', 'answers.text', 'answers.start'" in str(caught.value)
    assert str(caught.value).endswith('columns={"answer": "answers.text"}')
    with pytest.raises(DatasetError, match=r"row 2, column 'answers.text'.*empty cell"):
        load_dataset("hf:org/nested", columns={"question": "query", "answer": "answers.text"})


def test_rows_are_counted_over_the_files_of_a_split(served):
    files = {
        "test-00000-of-00002.jsonl": lines(ROWS[:2]),
        "test-00001-of-00002.jsonl": lines([ROWS[2], {"answer": "7"}]),
    }
    served.datasets["org/sums"] = one(files)
    with pytest.raises(DatasetError, match="hf:org/sums:test, row 4, column 'question': expected the question"):
        load_dataset("hf:org/sums")
    for name in files:
        files[name] = lines([{"id": "same", **ROWS[0]}])
    served.datasets["org/sums"] = one(files, commit="c" * 40)
    with pytest.raises(DatasetError, match="expected every question_id once, got 'same' 2 times"):
        load_dataset("hf:org/sums")


def test_the_token_is_sent_to_the_hub_and_written_nowhere(served, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with caplog.at_level(logging.DEBUG):
        assert len(load_dataset("hf:org/gated").questions) == 6
        monkeypatch.setenv("HF_TOKEN", f"{TOKEN}wrong")
        with pytest.raises(DatasetError, match="answered with status 401; check HF_TOKEN") as caught:
            load_dataset("hf:org/sums")
    assert TOKEN in served.tokens
    assert TOKEN not in str(caught.value) + caplog.text
    written = [path for folder in ("cache", "hub") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_a_password_in_the_address_of_the_hub_is_in_no_error(local_hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://me:swordfish1@127.0.0.1:9")
    with pytest.raises(DatasetError, match="cannot be downloaded") as caught:
        load_dataset("hf:org/gated")
    assert "swordfish1" not in str(caught.value)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: local_hub.gated_error())
    with pytest.raises(DatasetError, match=r"accept its terms at http://\[key\]@127.0.0.1:9/datasets/org/gated"):
        load_dataset("hf:org/gated")


def test_a_split_that_is_too_large_is_refused_before_it_is_downloaded(served):
    served.datasets["org/sums"] = one({"test.jsonl": lines(ROWS)}, sizes={"test.jsonl": hub.LARGEST + 1})
    with pytest.raises(DatasetError, match=r"expected at most 1,073,741,824 bytes in a split, got 1,073,741,825 in 1"):
        load_dataset("hf:org/sums")
    assert not [request for request in served.seen if "/resolve/" in request]


def test_names_of_files_do_not_leave_the_cache(served, tmp_path):
    names = ("../../escaped.jsonl", "/escaped.jsonl", "a//b.jsonl", "C:\\escaped.jsonl", ".hidden/x.jsonl", "a\n.jsonl")
    served.datasets["org/sums"] = one(dict.fromkeys(names, lines(ROWS)))
    with pytest.raises(DatasetError, match="expected files that end in"):
        load_dataset("hf:org/sums")
    assert not list(tmp_path.rglob("*escaped*"))


def test_an_answer_that_is_no_dataset_is_said_in_one_line(served):
    served.datasets["org/sums"] = one({"test.parquet": b"PAR1 nothing PAR1"})
    with pytest.raises(DatasetError, match=r"hf:org/sums:test, test.parquet cannot be read as Parquet"):
        load_dataset("hf:org/sums")
    served.datasets["org/sums"] = one({"test.json": b"7"}, commit="d" * 40)
    with pytest.raises(DatasetError, match=r"test.json: expected one list of questions"):
        load_dataset("hf:org/sums")


def test_a_card_declares_configurations_and_splits_by_patterns():
    card = [
        {"config_name": "easy", "data_files": [{"split": "test", "path": ["easy/*.csv", "more/**/e.csv"]}]},
        {"config_name": "hard", "data_files": "hard.csv"},
    ]
    paths = ["easy/a.csv", "easy/deep/b.csv", "more/e.csv", "more/x/e.csv", "hard.csv", "other.csv"]
    assert files_of(paths, card) == {
        "easy": {"test": ["easy/a.csv", "more/e.csv", "more/x/e.csv"]},
        "hard": {"train": ["hard.csv"]},
    }


@pytest.mark.parametrize("card", [7, "x", [7], [{"data_files": 7}], [{"data_files": [{"path": {}}]}], [None], {}])
def test_a_card_of_another_form_is_ignored(card):
    assert files_of(["data/test-00000-of-00001.parquet"], card) == {
        "default": {"test": ["data/test-00000-of-00001.parquet"]}
    }


def test_configurations_and_splits_follow_from_names():
    paths = ["geo/dev-v2.0.json", "geo/test/0000.parquet", "temp/train.csv", "a/aux_train-00000-of-00001.parquet"]
    assert files_of([*paths, "knowns_unknowns.jsonl", "dataset_infos.json", "load.py"]) == {
        "geo": {"validation": [paths[0]], "test": [paths[1]]},
        "temp": {"train": [paths[2]]},
        "a": {"aux_train": [paths[3]]},
        "default": {"knowns_unknowns": ["knowns_unknowns.jsonl"]},
    }
    assert [default_split(names) for names in (["train", "test"], ["a"], ["a", "b"], ["train", "x"])] == [
        "test",
        "a",
        None,
        "train",
    ]


def test_a_mix_takes_datasets_of_the_hub(served, tmp_path: Path):
    own = tmp_path / "own.jsonl"
    own.write_bytes(lines(ROWS))
    mixed = load_dataset("hf:org/sums:train+own", data=own)
    assert [question.topic for question in mixed.questions] == ["hf:org/sums:train", "own/own"]
