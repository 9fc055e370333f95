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

from refusal_index.data import Question
from refusal_index.data.datasets import PUBLISHED, DatasetError, downloads, load_dataset, sample
from refusal_index.data.datasets.downloads import cache_directory, fetched
from refusal_index.data.files import sha256_of
from tests.datasets.local_hub import HubDataset
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
    monkeypatch.setattr("refusal_index.data.datasets.downloads.sys.platform", platform)
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


PINNED = re.compile(r"https://huggingface.co/datasets/(?P<repo>.+)/resolve/(?P<commit>[0-9a-f]{40})/(?P<path>.+)")
ON_THE_HUB = [published for published in PUBLISHED.values() if PINNED.fullmatch(published.address or "")]


def publish(local_hub, name: str, content: bytes) -> str:
    """Serve a published dataset's file at its commit; return the file's path."""
    address = PINNED.fullmatch(PUBLISHED[name].address)
    local_hub.datasets[address["repo"]] = HubDataset({address["path"]: content}, commit=address["commit"])
    return f"/datasets/{address['repo']}/resolve/{address['commit']}/{address['path']}"


@pytest.mark.parametrize("task", [task for task in ON_THE_HUB if task.name.startswith("faitheval")])
def test_the_pinned_revision_is_downloaded_once(task, local_hub, tmp_path):
    records = TO_CHOOSE if task.name == "faitheval_counterfactual" else ABOUT_TEXT
    content = write(tmp_path / "published.parquet", records).read_bytes()
    file = publish(local_hub, task.name, content)
    first = load_dataset(task.name)
    assert local_hub.seen.count(f"GET {file}") == 1
    before = len(local_hub.seen)
    assert load_dataset(task.name) == first
    assert len(local_hub.seen) == before
    assert first.sha256 == sha256_of(content)
    assert first.source == task.address
    assert first.questions == load_dataset(task.name, data=tmp_path / "published.parquet").questions


@pytest.mark.parametrize("task", ON_THE_HUB, ids=lambda task: task.name)
def test_hub_failure_names_the_file_and_where_to_put_a_copy(task, local_hub):
    local_hub.failing = 503
    with pytest.raises(DatasetError, match="answered with status 503; try again later") as caught:
        load_dataset(task.name)
    assert str(caught.value).startswith(task.address)


def test_single_file_in_a_mix_goes_to_the_dataset_that_needs_one(local_hub, tmp_path):
    publish(local_hub, "faitheval_unanswerable", write(tmp_path / "published.parquet", ABOUT_TEXT).read_bytes())
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


# --- AbstentionBench; the columns are those that inspect_evals 0.28.0 reads

SQUAD2 = [
    {
        "id": "56be",
        "title": "Orla",
        "context": "The bridge opened in 1911.",
        "question": "When?",
        "answers": {"text": ["1911", "in 1911", "1911"], "answer_start": [21, 18, 21]},
    },
    {
        "id": "56bf",
        "title": "Orla",
        "context": "The bridge opened in 1911.",
        "question": "Who built it?",
        "answers": {"text": [], "answer_start": []},
    },
]
ABSTENTION = {
    "kuq": [
        {"question": "When?", "answer": ["1911"], "unknown": False, "source": "squad", "category": None},
        {
            "question": "Who wins next?",
            "answer": ["future"],
            "unknown": True,
            "source": "t",
            "category": "future unknown",
        },
    ],
    "selfaware": {
        "dataset_name": "SelfAware",
        "keywords": ["k"],
        "example": [
            {"question_id": 1, "question": "When?", "answer": ["1911"], "answerable": True, "source": "squad"},
            {"question_id": 2, "question": "Who wins next?", "answer": None, "answerable": False, "source": "quora"},
        ],
    },
    "umwp": [
        {"id": 1, "question": "When?", "answer": [1911.0], "answerable": True, "category": None, "source": "SVAMP"},
        {"id": 2, "question": "How many?", "answer": None, "answerable": False, "category": 1, "source": "SVAMP"},
    ],
    "musique": [
        {"question": "When?", "context": "In 1911.", "answer": "1911", "answerable": "yes", "additional_data": "{}"},
        {"question": "Who?", "context": "In 1911.", "answer": "Ann", "answerable": "no", "additional_data": "{}"},
    ],
}


def test_squad_2_is_answerable_where_it_has_answers(local_hub, tmp_path):
    content = write(tmp_path / "published.parquet", SQUAD2).read_bytes()
    publish(local_hub, "abstentionbench_squad2", content)
    first, second = load_dataset("abstentionbench_squad2").questions
    assert (first.question_id, first.gold, first.aliases) == ("56be", "1911", ("in 1911",))
    assert (second.gold, second.context) == (None, "The bridge opened in 1911.")


@pytest.mark.parametrize("part", ABSTENTION)
def test_parts_of_abstentionbench_mark_what_nobody_can_answer(part, tmp_path, monkeypatch):
    document = ABSTENTION[part]
    as_lines = part in {"kuq", "umwp"}
    path = tmp_path / ("x.jsonl" if as_lines else "x.json")
    path.write_text("\n".join(map(json.dumps, document)) if as_lines else json.dumps(document))
    published = PUBLISHED[f"abstentionbench_{part}"]
    monkeypatch.setitem(published.__dict__, "sha256", published.sha256 and sha256_of(path.read_bytes()))
    first, second = published.load(path).questions
    assert first.gold == ("1911.0" if part == "umwp" else "1911")
    assert second.gold is None


def test_every_part_of_abstentionbench_has_a_checksum_or_a_commit():
    parts = [published for name, published in PUBLISHED.items() if name.startswith("abstentionbench_")]
    assert len(parts) == 5
    for part in parts:
        assert part.address is None or part.sha256 is not None or part in ON_THE_HUB


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
    "nothing": ("wiki.json", "", "expected one JSON document"),
    "an empty list": ("wiki.json", "[]", "expected at least one question, got none"),
    "an empty object": ("wiki.json", "{}", "expected one list of questions"),
    "no answers": ("wiki.json", '{"Who?": "Ann"}', "expected one list of questions"),
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
def test_incomplete_download_raises_and_is_not_kept(tmp_path, answer, message):
    with (
        LocalServer([answer] * 12) as served,
        pytest.raises(
            DatasetError, match=rf"x\.csv cannot be downloaded \(.*{message}.*; try again, or download it yourself"
        ),
    ):
        fetched(f"{served.url}/x.csv", SHA256)
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
    monkeypatch.setattr(downloads, limit, 10 if limit == "LARGEST" else -1.0)
    with LocalServer([CONTENT]) as served, pytest.raises(DatasetError, match=message):
        fetched(f"{served.url}/x.csv", SHA256)
    assert file_names(tmp_path) == []
