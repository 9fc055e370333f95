"""SimpleQA, FaithEval and PreciseWikiQA, and how their files are downloaded."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data import Question, datasets
from refusal_index.data.datasets import PUBLISHED, DatasetError, cache_directory, fetched, load_dataset, sample
from refusal_index.data.files import sha256_of
from tests.datasets.local_server import Answer, LocalServer

# --- SimpleQA

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


def test_simpleqa_verified_needs_a_file_with_its_columns(tmp_path):
    with pytest.raises(DatasetError, match=r"--data FILE.*kaggle\.com.*huggingface\.co"):
        load_dataset("simpleqa_verified")
    path = tmp_path / "x.csv"
    path.write_text("problem,answer\na,A\n")
    with pytest.raises(DatasetError, match="among them 'topic', got 'problem', 'answer'"):
        load_dataset("simpleqa_verified", data=path)


def test_local_file_with_another_checksum_is_rejected_with_advice(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(SMALL)
    with pytest.raises(DatasetError, match=rf"expected sha256 feee.*{digest(SMALL)}.*--dataset own --data"):
        load_dataset("simpleqa", data=path)


def test_download_happens_once_and_is_checked_on_every_read(tmp_path):
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


def test_changed_content_at_the_address_is_rejected_and_not_kept():
    with server(SMALL) as (address, _), pytest.raises(DatasetError, match="expected content with sha256 feee"):
        replace(SIMPLEQA, address=address).load()
    assert not cache_directory().exists()


def test_failing_or_absent_server_gives_a_plain_error():
    with server(503) as (address, _), pytest.raises(DatasetError, match=r"cannot be downloaded.*503.*--data"):
        replace(SIMPLEQA, address=address).load()
    with pytest.raises(DatasetError, match="cannot be downloaded"):
        replace(SIMPLEQA, address=address).load()


def test_unwritable_cache_does_not_stop_the_run(tmp_path):
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
def test_cache_directory_follows_the_platform(tmp_path, monkeypatch, platform, variable, expected):
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


# --- FaithEval

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
def test_questions_not_answered_by_their_text_have_no_gold_answer(path, task):
    data = load_dataset(f"faitheval_{task}", data=write(path, ABOUT_TEXT))
    assert data.name == f"faitheval_{task}"
    assert data.default_grader == "model"
    assert [q.question_id for q in data.questions] == ["50f8", "e2c9", "50f8-2"]
    assert [q.context for q in data.questions] == [record["context"] for record in ABOUT_TEXT]
    assert {(q.gold, q.aliases, q.choices) for q in data.questions} == {(None, (), ())}


def test_counterfactual_answer_is_the_choice_named_by_the_key(path):
    data = load_dataset("faitheval_counterfactual", data=write(path, TO_CHOOSE))
    assert data.default_grader == "choice"
    assert [(q.question_id, q.gold, q.choices, q.context) for q in data.questions] == [
        ("Mercury_1", "granite", ("water", "granite", "air"), "Ice is made of granite."),
        ("Mercury_2", "8", ("8", "6"), "Spiders have eight legs."),
    ]


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[LocalServer]:
    """A hub on loopback, and a separate cache."""
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


def test_modified_cached_download_is_fetched_again(hub, tmp_path):
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
def test_hub_failure_says_what_to_download_and_where_to_put_it(task, hub):
    hub.bodies = [404]
    with pytest.raises(DatasetError, match=r"cannot be downloaded.*404.*download it yourself.*\(--data\)") as caught:
        load_dataset(task.name)
    assert task.address.format(hub=hub.url) in str(caught.value)


def test_single_file_in_a_mix_goes_to_the_dataset_that_needs_one(hub, tmp_path):
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


def test_file_of_another_task_is_recognised_by_its_columns(path):
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


def test_columns_option_is_accepted_only_for_own_files(path):
    with pytest.raises(DatasetError, match="has columns of its own"):
        load_dataset("faitheval_unanswerable", data=write(path, ABOUT_TEXT), columns={"question": "q"})


def test_a_broken_parquet_file_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(DatasetError, match=r"x\.parquet cannot be read as Parquet \(.*\); check that it is complete"):
        load_dataset("faitheval_unanswerable", data=path)


# --- PreciseWikiQA

REAL_WIKI = Path(__file__).parents[3] / "shared" / "data" / "precise_wiki" / "precisewiki_negative_answers.json"
FROZEN = [
    {
        "question_id": "w1",
        "question": "Who built it?",
        "answer": "Ann",
        "aliases": ["Anne"],
        "title": "Tower",
        "section": "History",
        "difficulty": 3,
        "topic": "Towers",
    },
    {"question_id": "w2", "question": "When?", "answer": "1804", "title": "Tower", "section": "", "difficulty": None},
]


def write_text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_frozen_set_is_read_and_build_details_are_ignored(tmp_path):
    path = write_text(tmp_path / "wiki.jsonl", "\n".join(map(json.dumps, FROZEN)))
    data = load_dataset("precise_wiki", data=path)
    assert data.questions == (
        Question("w1", "Who built it?", "Ann", ("Anne",), "Towers"),
        Question("w2", "When?", "1804"),
    )
    assert (data.name, data.default_grader) == ("precise_wiki", "model")
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_json_object_of_questions_is_read_with_text_ids(tmp_path):
    pairs = {"Who?": {"incorrect_answer": "Bob", "correct_answer": "Ann"}, "When?": {"correct_answer": 1804}}
    questions = load_dataset("precise_wiki", data=write_text(tmp_path / "wiki.json", json.dumps(pairs))).questions
    assert [(q.question_id, q.text, q.gold) for q in questions] == [
        ("d991a24e8e04", "Who?", "Ann"),
        (questions[1].question_id, "When?", "1804"),
    ]


def test_the_real_set_of_9999_questions_loads():
    if not REAL_WIKI.is_file():
        pytest.skip("needs the real data set in ../shared")
    questions = load_dataset("precise_wiki", data=REAL_WIKI).questions
    assert len(questions) == len({question.question_id for question in questions}) == 9_999
    pairs = json.loads(REAL_WIKI.read_text(encoding="utf-8"))
    assert {question.text: question.gold for question in questions} == {
        text.strip(): pair["correct_answer"].strip() for text, pair in pairs.items()
    }


BAD = {
    "nothing": ("wiki.json", "", "expected one JSON object"),
    "a list": ("wiki.json", "[]", "expected an object from questions"),
    "an empty object": ("wiki.json", "{}", "expected an object from questions"),
    "no answers": ("wiki.json", '{"Who?": "Ann"}', "question 'Who\\?': expected an object with 'correct_answer'"),
    "an empty answer": ("wiki.json", '{"Who?": {"correct_answer": " "}}', "item 1, column 'answer': .* empty cell"),
    "other fields": (
        "wiki.jsonl",
        '{"question": "Who?", "gold": "Ann"}',
        "among them 'answer', got 'question', 'gold'; is it another file",
    ),
    "a torn line": ("wiki.jsonl", '{"question": "Who?", "answer": "Ann"}\n{"quest', "line 2: expected one JSON object"),
}


@pytest.mark.parametrize("case", BAD)
def test_unusable_precise_wiki_set_is_explained(tmp_path, case):
    name, text, message = BAD[case]
    with pytest.raises(DatasetError, match=rf"{name}.*{message}"):
        load_dataset("precise_wiki", data=write_text(tmp_path / name, text))


def test_missing_precise_wiki_file_error_says_how_to_build_one():
    with pytest.raises(DatasetError, match="build precise-wiki"):
        load_dataset("precise_wiki")


# --- Verification of downloads

CONTENT = b"question,answer\nWho?,Ann\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("sha256", [SHA256, None])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(body=CONTENT[:9], headers={"Content-Length": str(len(CONTENT))}), "cut short: 9 of 25 bytes"),
        (Answer(body=b"", headers={"Content-Length": "25"}), "cut short: 0 of 25 bytes"),
        (Answer(302, {"Location": "ftp://127.0.0.1/other"}), "redirects to ftp://127.0.0.1/other, which is not http"),
        (Answer(302, {"Location": "/x.csv"}), "infinite loop"),
        (503, "503"),
        (404, "404"),
    ],
    ids=["cut short", "nothing", "another protocol", "a circle", "unavailable", "not there"],
)
def test_incomplete_download_raises_and_is_not_kept(tmp_path, answer, message, sha256):
    """Earlier, without a checksum, a truncated download was kept and used as the dataset."""
    with (
        LocalServer([answer] * 12) as served,
        pytest.raises(
            DatasetError, match=rf"x\.csv cannot be downloaded \(.*{message}.*; try again, or download it yourself"
        ),
    ):
        fetched(f"{served.url}/x.csv", sha256)
    assert file_names(tmp_path) == []


def test_unexpected_content_raises_with_both_checksums_and_is_not_kept(tmp_path):
    with (
        LocalServer([b"other"]) as served,
        pytest.raises(DatasetError, match=f"expected content with sha256 {SHA256}, got"),
    ):
        fetched(f"{served.url}/x.csv", SHA256)
    assert file_names(tmp_path) == []


def test_redirect_is_followed(tmp_path):
    with LocalServer([Answer(302, {"Location": "/moved.csv"}), CONTENT]) as served:
        assert fetched(f"{served.url}/x.csv", SHA256) == CONTENT
        assert fetched(f"{served.url}/x.csv", SHA256) == CONTENT
        assert served.seen == ["/x.csv", "/moved.csv"]
    assert file_names(tmp_path) == ["x.csv"]


def test_stalled_server_times_out(tmp_path):
    done = threading.Event()
    with LocalServer([Answer(body=CONTENT, until=done)]) as served:
        with pytest.raises(DatasetError, match=r"cannot be downloaded \(timed out\)"):
            fetched(f"{served.url}/x.csv", SHA256, timeout=0.2)
        done.set()
    assert file_names(tmp_path) == []


@pytest.mark.parametrize(("limit", "message"), [("LARGEST", "larger than 10 bytes"), ("LONGEST", "incomplete after")])
def test_endless_download_is_aborted(tmp_path, monkeypatch, limit, message):
    """Earlier, a larger download was truncated and, without a checksum, kept."""
    monkeypatch.setattr(datasets, limit, 10 if limit == "LARGEST" else -1.0)
    with LocalServer([CONTENT]) as served, pytest.raises(DatasetError, match=message):
        fetched(f"{served.url}/x.csv")
    assert file_names(tmp_path) == []
