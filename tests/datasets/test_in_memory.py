"""Evidence for questions in memory: those of a file of the same rows, and the same words for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.datasets import Dataset, DatasetError, load_dataset
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.errors import OutcomeTableError

RECORDS = [
    {"id": 7, "Problem": " Who? ", "gold": "B", "choices": ["Ann", "Bob"], "context": "Bob was it.", "ok": True},
    {"id": 8, "Problem": "When?", "gold": "A", "choices": ["1804", "1805"], "context": None, "ok": True},
    {"id": 9, "Problem": "Where,\nthen?", "gold": None, "choices": ["Rome", "Ulm"], "context": "", "ok": False},
]
COLUMNS = {"answerable": "ok"}


def dictionaries(records: list[dict]) -> object:
    return records


def generator(records: list[dict]) -> object:
    return (record for record in records)


def of_polars(records: list[dict]) -> object:
    return pl.DataFrame(records)


def of_pandas(records: list[dict]) -> object:
    return pytest.importorskip("pandas").DataFrame(records)


def arrays_of_pandas(records: list[dict]) -> object:
    """A list is an array in a frame that pandas has read from Parquet."""
    numpy = pytest.importorskip("numpy")
    arrays = [{**record, "choices": numpy.array(record["choices"])} for record in records]
    return pytest.importorskip("pandas").DataFrame(arrays)


def of_arrow(records: list[dict]) -> object:
    return pytest.importorskip("pyarrow").Table.from_pylist(records)


FORMS = [dictionaries, generator, of_polars, of_pandas, arrays_of_pandas, of_arrow]


def from_file(tmp_path: Path, records: list[dict]) -> Dataset:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return load_dataset("own", data=path, columns=COLUMNS)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_questions_of_a_file_of_the_same_rows(tmp_path, form):
    data = questions_from(form(RECORDS), COLUMNS, name="mine")
    expected = from_file(tmp_path, RECORDS)
    assert data.questions == expected.questions
    assert data.questions_sha256 == data.sha256 == expected.questions_sha256
    assert (data.name, data.default_grader) == ("mine", expected.default_grader)


@pytest.mark.parametrize("form", FORMS)
def test_own_takes_them_as_data_too(form):
    data = load_dataset("own", data=form(RECORDS), columns=COLUMNS)
    assert data == questions_from(form(RECORDS), COLUMNS)
    assert data.name == "own"


def test_gaps_of_pandas_and_numbers_of_numpy_are_those_of_python():
    pandas, numpy = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    frame = pandas.DataFrame({"question": ["a", "b"], "answer": [1, "x"], "topic": ["t", numpy.nan]}, index=[5, 5])
    first, second = questions_from(frame).questions
    assert (first.gold, first.topic, second.gold, second.topic) == ("1", "t", "x", None)
    typed = pandas.DataFrame({"question": ["a"], "answer": pandas.array([7], dtype="Int64")})
    assert questions_from(typed).questions[0].gold == "7"
    assert questions_from([{"question": "a", "answer": numpy.int64(7), "aliases": ("b", "c")}]).questions[0].gold == "7"


BAD = {
    "empty answer": (
        [{"question": "a", "answer": "A"}, {"question": "b", "answer": ""}],
        "mine, row 2, column 'answer'",
    ),
    "two problems": ([{"question": "a", "answer": ""}, {"question": "", "answer": "B"}], "; and 1 more problem$"),
    "misspelt column": (
        [{"qestion": "a", "answer": "A"}],
        "'question'.*got 'qestion', 'answer'; did you mean 'qestion'",
    ),
    "no row": ([], "at least one question, got none"),
    "a list in a list": (
        [["a", "A"]],
        r"mine, row 1: expected an object .a dictionary. from columns to cells, got \['a', 'A'\]",
    ),
    "one dictionary": ({"question": ["a"]}, "list of dictionaries, one a question, got {'question'"),
    "a number": (3, "expected a data frame, or a list of dictionaries, .*got 3"),
    "nested": ([{"question": {"a": 1}, "answer": "A"}], "mine, row 1, column 'question': expected a single value"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_named_with_its_row(case):
    data, message = BAD[case]
    with pytest.raises(DatasetError, match=message):
        questions_from(data, name="mine")


def test_in_a_mix_memory_and_file_stand_side_by_side(tmp_path):
    path = tmp_path / "wiki.jsonl"
    path.write_text('{"question": "Who?", "answer": "Ann"}\n')
    mixed = load_dataset("precise_wiki+own", data=[path, pl.DataFrame(RECORDS)], columns=COLUMNS)
    assert [question.topic for question in mixed.questions] == ["precise_wiki", "own"]


def test_a_published_dataset_is_read_from_a_file_only():
    with pytest.raises(DatasetError, match=r"'simpleqa' is read from a file, got .*; choose 'own'"):
        load_dataset("simpleqa", data=[{"question": "a", "answer": "A"}])


ROWS = [{"refused": True, "wrong": 0, "gold": "=1"}, {"refused": None, "wrong": 1, "gold": None}]


@pytest.mark.parametrize("form", [dictionaries, of_polars, of_pandas, of_arrow])
def test_an_outcome_table_in_memory_is_understood_as_one_of_a_file_is(tmp_path, form):
    pl.DataFrame(ROWS).write_ndjson(tmp_path / "table.jsonl")
    expected = read_outcomes(tmp_path / "table.jsonl").drop("question_id")
    assert read_outcomes(form(ROWS)).drop("question_id").equals(expected)


@pytest.mark.parametrize("form", [dictionaries, of_polars, of_pandas, of_arrow])
def test_bad_outcomes_in_memory_are_named_with_their_row(form):
    with pytest.raises(OutcomeTableError, match=r"the table, row 2, column 'wrong': expected true.*got 'x'"):
        read_outcomes(form([{"refused": True, "wrong": "no"}, {"refused": True, "wrong": "x"}]))
    with pytest.raises(OutcomeTableError, match=r"column 'wrong': expected (a single value|single values), got"):
        read_outcomes(form([{"refused": True, "wrong": ["no"]}]))


def test_whole_numbers_of_a_pandas_column_with_gaps_stay_whole():
    """1911 became 1911.0."""
    pd = pytest.importorskip("pandas")
    for topics in ([1911, None, 1913], pd.array([1911, None, 1913], dtype="Int64")):
        frame = pd.DataFrame({"question": ["a", "b", "c"], "answer": ["A", "B", "C"], "topic": topics})
        assert [question.topic for question in questions_from(frame).questions] == ["1911", None, "1913"]
    fractions = pd.DataFrame({"question": ["a", "b"], "answer": [1.5, 2.0], "topic": [0.5, None]})
    assert [(one.gold, one.topic) for one in questions_from(fractions).questions] == [("1.5", "0.5"), ("2.0", None)]


def test_two_columns_of_one_name_in_a_frame_are_an_error():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    names, cells = ["question", "answer", "answer"], ["Who?", "Ann", "Bob"]
    for frame in (pd.DataFrame([cells], columns=names), pa.table([pa.array([cell]) for cell in cells], names)):
        with pytest.raises(DatasetError, match="answer"):
            questions_from(frame)


def test_what_can_be_read_only_once_is_read_once():
    rows = iter([{"question": "a", "answer": "A"}, {"question": "b", "answer": "B", "topic": "t"}])
    assert [question.topic for question in questions_from(rows).questions] == [None, "t"]
