"""Evidence for SimpleQA: against the official file where it is at hand, and for the download against a local server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from refusal_index.data.datasets import PUBLISHED, DatasetError, cache_directory, load_dataset, sample
from tests.datasets.local_server import LocalServer

SIMPLEQA = PUBLISHED["simpleqa"]
REAL = Path(__file__).parents[3] / "shared" / "data" / "simpleqa"
SMALL = b"""metadata,problem,answer
"{'topic': 'Art', 'answer_type': 'Person', 'urls': ['https://example.org/a,b']}",Who painted it?, Ann \t
"{'answer_type': 'Date'}",When?,1804
"""


def real(name: str) -> Path:
    if not (REAL / name).is_file():
        pytest.skip(f"the real {name} is not at hand")
    return REAL / name


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def server(*bodies: bytes | int) -> Iterator[tuple[str, list[str]]]:
    """Answer one request after the other with these bodies, or with an error status."""
    with LocalServer(bodies) as served:
        yield f"{served.url}/set/simple.csv", served.seen


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


def test_all_4326_official_questions_have_unique_ids_and_stripped_answers():
    data = load_dataset("simpleqa", data=real("simple_qa_test_set.csv"))
    assert len(data.questions) == len({question.question_id for question in data.questions}) == 4326
    assert all(question.gold == question.gold.strip() != "" for question in data.questions)
    assert len({question.topic for question in data.questions}) == 10
    first = data.questions[0]
    assert (first.text, first.gold) == ("Who received the IEEE Frank Rosenblatt Award in 2010?", "Michio Sugeno")
    assert first.question_id == digest(first.text.encode())[:12]
    assert (data.default_grader, data.sha256) == ("model", SIMPLEQA.sha256)


def test_a_sample_of_the_official_questions_is_pinned():
    data = load_dataset("simpleqa", data=real("simple_qa_test_set.csv"))
    drawn = [question.question_id for question in sample(data, 500, 0).questions]
    assert digest("\n".join(drawn).encode())[:12] == "1b162478a742"


def test_verified_questions_carry_the_ids_of_the_same_questions_in_simpleqa():
    verified = load_dataset("simpleqa_verified", data=real("simpleqa_verified.csv"))
    full = load_dataset("simpleqa", data=real("simple_qa_test_set.csv"))
    ids = {question.question_id for question in verified.questions}
    assert len(ids) == len(verified.questions) == 1000
    assert len(ids & {question.question_id for question in full.questions}) > 900
    assert verified.sha256 == digest((REAL / "simpleqa_verified.csv").read_bytes())


def test_verified_needs_a_file_of_its_columns(tmp_path):
    with pytest.raises(DatasetError, match=r"--data FILE.*kaggle\.com.*huggingface\.co"):
        load_dataset("simpleqa_verified")
    path = tmp_path / "x.csv"
    path.write_text("problem,answer\na,A\n")
    with pytest.raises(DatasetError, match="among them 'topic', got 'problem', 'answer'"):
        load_dataset("simpleqa_verified", data=path)


def test_a_local_file_of_another_checksum_is_refused_and_the_way_out_told(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(SMALL)
    with pytest.raises(DatasetError, match=rf"expected sha256 feee.*{digest(SMALL)}.*--dataset own --data"):
        load_dataset("simpleqa", data=path)


def test_the_download_is_made_once_and_checked_whenever_it_is_read(tmp_path):
    with server(SMALL, SMALL) as (address, seen):
        first = replace(SIMPLEQA, address=address, sha256=digest(SMALL)).load()
        assert replace(SIMPLEQA, address=address, sha256=digest(SMALL)).load() == first
        assert seen == ["/set/simple.csv"]
        (cached,) = (path for path in cache_directory().rglob("*") if path.is_file())
        cached.write_bytes(SMALL[:-5])
        assert replace(SIMPLEQA, address=address, sha256=digest(SMALL)).load() == first
        assert len(seen) == 2
    assert cached.read_bytes() == SMALL
    assert cache_directory() == tmp_path / "cache" / "refusal-index"
    assert [(q.text, q.gold, q.topic) for q in first.questions] == [
        ("Who painted it?", "Ann", "Art"),
        ("When?", "1804", None),
    ]


def test_other_content_at_the_address_is_refused_and_not_kept():
    with server(SMALL) as (address, _), pytest.raises(DatasetError, match="expected content with sha256 feee"):
        replace(SIMPLEQA, address=address).load()
    assert not cache_directory().exists()


def test_a_failing_server_and_none_at_all_are_said_plainly():
    with server(503) as (address, _), pytest.raises(DatasetError, match=r"cannot be downloaded.*503.*--data"):
        replace(SIMPLEQA, address=address).load()
    with pytest.raises(DatasetError, match="cannot be downloaded"):
        replace(SIMPLEQA, address=address).load()


def test_a_cache_that_cannot_be_written_costs_a_download_not_the_run(tmp_path):
    (tmp_path / "cache").touch()
    with server(SMALL) as (address, _):
        assert len(replace(SIMPLEQA, address=address, sha256=digest(SMALL)).load().questions) == 2


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, "home/.cache/refusal-index"),
        ("darwin", None, "home/Library/Caches/refusal-index"),
        ("win32", "local", "local/refusal-index/Cache"),
    ],
)
def test_the_cache_lies_where_the_platform_has_it(tmp_path, monkeypatch, platform, variable, expected):
    monkeypatch.setattr("refusal_index.data.datasets.sys.platform", platform)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if variable:
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / variable))
    assert cache_directory() == tmp_path / expected


@pytest.mark.parametrize("metadata", ["not a dictionary", "__import__('os').getcwd()", "(" * 1000, "7"])
def test_malformed_metadata_is_refused_and_never_run(tmp_path, metadata):
    content = f"metadata,problem,answer\n{metadata},Who?,Ann\n".encode()
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="line 2, column 'metadata': expected a dictionary"):
        replace(SIMPLEQA, sha256=digest(content)).load(path)
