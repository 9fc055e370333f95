"""The outcome table: written tables are read back exactly, and errors name their place."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.tiers import reduced_examples

from refusal_index.data import Grade, Outcome, Question, files
from refusal_index.data.outcome_table import (
    SCHEMA,
    SCHEMA_VERSION,
    Identification,
    outcome_table,
    read_outcomes,
    read_tables,
    write_outcomes,
)
from refusal_index.data.written_tables import csv_text, undo_safe
from refusal_index.errors import NotWrittenError, OutcomeTableError

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".ndjson")
HOSTILE = (
    *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "'", "''", "'=1", "''=1", "'a", "", " "),
    *('"', '""', ",", "a\r\nb", "a\rb", "\0", "\ufeff", "\u2028", "\x85", "\\", '{"a": 1}', "NaN", "null", "true"),
)
texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
maybe = st.none() | texts


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    first = draw(st.sampled_from([None, *Grade]))
    forced = draw(st.sampled_from([None, *Grade]))
    refused = {None: draw(st.sampled_from([True, False, None])), Grade.UNSCORED: None}.get(
        first, first == Grade.REFUSED
    )
    counts = forced if refused else first
    wrong = {None: draw(st.sampled_from([True, False, None])), Grade.UNSCORED: None}.get(
        counts, counts != Grade.CORRECT
    )
    reason = draw(maybe) if refused is None or wrong is None else None
    return Outcome(refused, wrong, first, forced, reason, draw(maybe), draw(maybe))


questions = st.builds(Question, texts, texts, texts, st.just(()), maybe)
identifications = st.builds(Identification, maybe, maybe, maybe, st.integers(0, 3))
rows = st.lists(
    st.tuples(identifications, questions, outcomes()),
    min_size=1,
    max_size=6,
    unique_by=lambda row: (row[0], row[1].question_id),
)


def table_of(outcome: Outcome | None = None, gold: str = "This") -> pl.DataFrame:
    asked = Identification("m", "d", "normal")
    return outcome_table([(asked, Question("q1", "Which?", gold), outcome or Outcome(refused=True, wrong=True))])


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@reduced_examples(0.4, suppress_health_check=[HealthCheck.function_scoped_fixture])  # in each of the formats
@given(rows=rows)
def test_property_every_outcome_format_round_trips_exactly(tmp_path, suffix, rows):
    table = outcome_table(rows)
    path = tmp_path / f"outcomes{suffix}"
    write_outcomes(table, path)
    back = read_outcomes(path)
    assert back.schema == table.schema
    assert back.equals(table, null_equal=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_csv_cell_starts_like_a_spreadsheet_formula(tmp_path, text):
    path = tmp_path / "outcomes.csv"
    write_outcomes(table_of(Outcome(True, True, first_reply=text, unscored_reason=None), gold=text), path)
    with path.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b"))]


def test_outcome_columns_have_the_documented_order():
    assert list(SCHEMA) == [
        *("model", "dataset", "variant", "question_id", "draw", "refused", "wrong", "first_grade", "forced_grade"),
        *("unscored_reason", "topic", "cluster", "weight", "question", "gold", "answerable", "reading"),
        *("first_reply", "forced_reply", "schema_version"),
    ]
    assert table_of().schema == pl.Schema(dict(SCHEMA))
    assert table_of()["schema_version"].to_list() == [SCHEMA_VERSION]


def test_a_table_without_rows_has_all_columns():
    assert outcome_table([]).schema == pl.Schema(dict(SCHEMA))


def test_lone_surrogate_in_a_truncated_reply_is_replaced(tmp_path):
    table = table_of(Outcome(True, True, first_reply="cut \ud83d"))
    write_outcomes(table, tmp_path / "outcomes.parquet")
    assert table["first_reply"].to_list() == ["cut \ufffd"]
    lines = written(tmp_path / "outcomes.jsonl", '{"refused": true, "wrong": true, "first_reply": "cut \\ud83d"}')
    assert read_outcomes(lines)["first_reply"].to_list() == ["cut \ufffd"]


def test_two_columns_are_enough_and_the_rest_is_filled(tmp_path):
    table = read_outcomes(written(tmp_path / "few.csv", "refused,wrong\n1,0\n0,1\n\n"))
    assert table.select("question_id", "draw", "refused", "wrong").rows() == [
        ("few.csv row 1", 0, True, False),
        ("few.csv row 2", 0, False, True),
    ]
    assert table.schema == pl.Schema(dict(SCHEMA))
    assert table["model"].is_null().all()


def test_empty_row_is_an_ungraded_question_if_there_are_only_grades(tmp_path):
    table = read_outcomes(written(tmp_path / "few.csv", "refused,wrong\n1,0\n,\n\n0,1\n"))
    assert table.select("refused", "wrong").rows() == [(True, False), (None, None), (False, True)]
    table = read_outcomes(written(tmp_path / "more.csv", "refused,wrong,question_id\n1,0,a\n,,\n0,1,b\n"))
    assert table["question_id"].to_list() == ["a", "b"]


@pytest.mark.parametrize("yes", ["true", "True", "TRUE", "T", "t", "1", "yes", "Yes", " yes ", "1.0"])
@pytest.mark.parametrize("no", ["false", "False", "0", "no", "NO", "0.0"])
def test_booleans_are_read_in_any_usual_spelling(tmp_path, yes, no):
    path = written(tmp_path / "x.csv", f"refused,wrong,question_id\n{yes},{no},a\n{no},,b\n")
    assert read_outcomes(path).select("refused", "wrong").rows() == [(True, False), (False, None)]


def test_json_lines_accept_booleans_numbers_words_and_gaps(tmp_path):
    lines = [{"refused": True, "wrong": 0}, {"refused": "no", "wrong": 1.0}, {"wrong": None}, {"refused": float("nan")}]
    path = written(tmp_path / "x.jsonl", "\n\n".join(map(json.dumps, lines)))
    assert read_outcomes(path).select("refused", "wrong").rows() == [
        (True, False),
        (False, True),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"refused": [1, 0], "wrong": [0, 1]},
        {"refused": [1.0, 0.0], "wrong": ["no", "Yes"]},
        {"refused": [True, False], "wrong": pl.Series(["0", "1"], dtype=pl.Categorical)},
    ],
)
def test_parquet_accepts_booleans_of_any_type(tmp_path, columns):
    pl.DataFrame(columns).write_parquet(tmp_path / "x.parquet")
    assert read_outcomes(tmp_path / "x.parquet").select("refused", "wrong").rows() == [(True, False), (False, True)]


def test_nan_gaps_from_pandas_are_null(tmp_path):
    pl.DataFrame({"refused": [1.0, float("nan")], "wrong": [0, 1], "draw": [0.0, 1.0]}).write_parquet(
        tmp_path / "x.parquet"
    )
    table = read_outcomes(tmp_path / "x.parquet")
    assert table.select("refused", "draw").rows() == [(True, 0), (None, 1)]


def test_apostrophes_of_other_tools_files_are_left_alone(tmp_path):
    path = written(tmp_path / "x.csv", "refused,wrong,gold\n1,1,'=1\n")
    assert read_outcomes(path)["gold"].to_list() == ["'=1"]


def test_byte_order_mark_and_crlf_are_accepted(tmp_path):
    path = written(tmp_path / "x.csv", "\ufeffrefused,wrong\r\n1,0\r\n")
    assert read_outcomes(path).select("refused", "wrong").rows() == [(True, False)]


def test_unquoted_carriage_return_is_text_unless_it_ends_the_header(tmp_path):
    path = written(tmp_path / "x.csv", "refused,wrong,gold\n1,0,a\rb\n")
    assert read_outcomes(path)["gold"].to_list() == ["a\rb"]
    path = written(tmp_path / "x.csv", 'refused,wrong,gold\r1,0,"a\rb"\r0,1,c\r')
    assert read_outcomes(path)["gold"].to_list() == ["a\rb", "c"]


def test_cell_may_exceed_the_default_csv_field_limit(tmp_path):
    path = written(tmp_path / "x.csv", f"refused,wrong,gold\n1,0,{'x' * 200_000}\n")
    assert len(read_outcomes(path)["gold"][0]) == 200_000


@given(st.lists(st.text(st.sampled_from("\\x1bu20e2f\x1b\u202e\r\n'=\x00"))))
def test_escapes_and_backslashes_in_csv_are_read_back_exactly(texts):
    """Text that looks like an escape is distinguished from a written escape."""
    table = pl.DataFrame({"reply": texts}, schema={"reply": pl.String})
    text = csv_text(table)
    assert not re.search(r"[\x00\x1b\u202e]|\r(?!\n)", text)
    cells = [row[0] for row in csv.reader(io.StringIO(text, newline=""))]
    assert undo_safe(pl.DataFrame({"reply": cells[1:]}, schema=table.schema)).equals(table)


def test_the_same_table_gives_the_same_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_outcomes(table_of(), tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_failed_write_keeps_the_old_file_and_no_temporary_files(tmp_path, monkeypatch):
    path = tmp_path / "outcomes.parquet"
    write_outcomes(table_of(), path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(NotWrittenError, match=r"outcomes\.parquet cannot be written \(No space left on device\)"):
        write_outcomes(table_of(Outcome(False, False)), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_rejects_a_table_with_other_columns(tmp_path):
    with pytest.raises(OutcomeTableError, match=r"columns of SCHEMA.*read_outcomes"):
        write_outcomes(table_of().drop("topic"), tmp_path / "x.parquet")


BAD = {
    "missing column names the nearest": ("x.csv", "refusd,wrong\n1,0\n", ["'refused'", "rename 'refusd'"]),
    "missing column of any other name": ("x.csv", "a,b\n1,0\n", ["'refused'", "'a', 'b'", "add a column"]),
    "misspelt variant would merge prompts": ("x.csv", "refused,wrong,Varient\n1,0,low\n", ["'Varient'", "'variant'"]),
    "not a boolean": ("x.csv", "refused,wrong\n1,0\n\nmaybe,0\n", ["line 4", "'refused'", "yes", "'maybe'"]),
    "line counts breaks in cells": ("x.csv", 'refused,wrong,gold\n1,0,"a\nb"\n1,x,c\n', ["line 4", "'wrong'", "'x'"]),
    "not a boolean in JSON": ("x.jsonl", '{"refused": 1, "wrong": 1}\n\n{"refused": 2, "wrong": 1}', ["line 3", "'2'"]),
    "not a whole number": ("x.csv", "refused,wrong,draw\n1,0,first\n", ["line 2", "'draw'", "'first'"]),
    "negative draw": ("x.csv", "refused,wrong,draw\n1,0,-1\n", ["line 2", "'draw'", "-1"]),
    "unknown grade": (
        "x.csv",
        "refused,wrong,first_grade\n1,0,NOT_ATTEMPTED\n",
        ["line 2", "'first_grade'", "refused"],
    ),
    "id missing": ("x.csv", "refused,wrong,question_id\n1,0,a\n1,0,\n", ["line 3", "'question_id'", "an empty cell"]),
    "duplicate": ("x.csv", "refused,wrong,question_id\n1,0,a\n0,1,b\n0,0,a\n", ["line 4", "line 2", "'a'", "'draw'"]),
    "no rows": ("x.csv", "refused,wrong\n", ["at least one row"]),
    "empty": ("x.csv", "", ["at least one row"]),
    "empty JSON": ("x.jsonl", "\n", ["at least one row"]),
    "JSON without columns": ("x.jsonl", "{}\n", ["'refused'"]),
    "malformed JSON": ("x.jsonl", '{"refused": 1, "wrong": 1}\n{"refused": 1,', ["line 2", "JSON object"]),
    "JSON of another kind": ("x.jsonl", "[1, 2]", ["line 1", "JSON object", "[1, 2]"]),
    "JSON nested": ("x.jsonl", '{"refused": [true], "wrong": 1}', ["line 1", "'refused'", "single value"]),
    "ragged": ("x.csv", "refused,wrong\n1,0,1\n", ["line 2", "expected 2 cells", "got 3", "quotes"]),
    "quote left open": ("x.csv", 'refused,wrong\n"1,0\n', ["line 2", "malformed CSV"]),
    "column twice": ("x.csv", "refused,wrong,wrong\n1,0,1\n", ["'wrong' twice"]),
    "wrong suffix": ("x.ods", "refused,wrong\n1,0\n", [".parquet, .csv", "'.ods'"]),
    "no suffix": ("outcomes", "refused,wrong\n1,0\n", [".parquet, .csv", "''"]),
    "not Parquet": ("x.parquet", "refused,wrong\n1,0\n", ["cannot be read as Parquet"]),
    "not gzip": ("x.csv.gz", "refused,wrong\n1,0\n", ["cannot be unpacked"]),
    "another version": (
        "x.csv",
        "refused,wrong,schema_version\n1,0,2\n",
        ["schema_version 1", "got 2", "the release that"],
    ),
    "earlier version": ("x.csv", "refused,wrong,schema_version\n1,0,1\n1,0,0\n", ["schema_version 1", "got 0"]),
    "another version with other columns": ("x.csv", "refusal,schema_version\n1,7\n", ["got 7", "the release that"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_refused_with_place_and_advice(tmp_path, case):
    name, text, parts = BAD[case]
    with pytest.raises(OutcomeTableError) as caught:
        read_outcomes(written(tmp_path / name, text))
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert "\n" not in message
    assert [part for part in parts if part not in message] == []


def test_missing_or_non_utf8_outcome_file_is_rejected(tmp_path):
    with pytest.raises(OutcomeTableError, match="cannot be read"):
        read_outcomes(tmp_path / "none.csv")
    with pytest.raises(OutcomeTableError, match="UTF-8"):
        read_outcomes(written(tmp_path / "x.csv", "refused,wrong,gold\n1,0,é\n", "latin-1"))
    with pytest.raises(OutcomeTableError, match="UTF-8"):
        read_outcomes(written(tmp_path / "x.jsonl", '{"refused": 1, "wrong": 0, "gold": "é"}', "latin-1"))


def test_truncated_outcome_file_is_rejected(tmp_path):
    whole = gzip.compress(b"refused,wrong\n" + b"1,0\n" * 1000)
    (tmp_path / "x.csv.gz").write_bytes(whole[:-12])
    write_outcomes(table_of(), tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-30])
    for name in ("x.csv.gz", "x.parquet"):
        with pytest.raises(OutcomeTableError, match="is complete"):
            read_outcomes(tmp_path / name)


CONTRADICTIONS = {
    "refused but graded correct": Outcome(True, True, Grade.CORRECT),
    "answered but graded refused": Outcome(False, True, Grade.REFUSED),
    "known but graded unscored": Outcome(True, True, Grade.UNSCORED),
    "unknown but graded": Outcome(None, None, Grade.INCORRECT),
    "right but graded incorrect": Outcome(False, False, Grade.INCORRECT),
    "wrong but graded correct": Outcome(False, True, Grade.CORRECT),
    "unknown though graded correct": Outcome(False, None, Grade.CORRECT),
    "right though the forced answer is incorrect": Outcome(True, False, Grade.REFUSED, Grade.INCORRECT),
    "right though the forced pass refused": Outcome(True, False, None, Grade.REFUSED),
    "wrong though the forced answer is correct": Outcome(True, True, Grade.REFUSED, Grade.CORRECT),
    "known though the forced answer is unscored": Outcome(True, True, Grade.REFUSED, Grade.UNSCORED),
    "a reason though nothing is missing": Outcome(True, True, unscored_reason="first_truncated"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_row_that_contradicts_itself_is_refused(case):
    with pytest.raises(OutcomeTableError, match=r"^row 1 contradicts itself \(.*\): expected that .*; correct the row"):
        table_of(CONTRADICTIONS[case])


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(False, False, Grade.CORRECT, Grade.UNSCORED),
        Outcome(False, True, Grade.INCORRECT, Grade.CORRECT),
        Outcome(None, True, Grade.UNSCORED, Grade.INCORRECT, "first_truncated"),
        Outcome(True, None, Grade.REFUSED, Grade.UNSCORED, "forced_grade_unreadable"),
        Outcome(True, None),
    ],
)
def test_forced_answer_to_an_answered_question_is_accepted(outcome):
    assert table_of(outcome).height == 1


def test_package_import_loads_no_polars():
    code = "import refusal_index, refusal_index.data, sys; assert 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("nothing", ["", "NaN", "nan", "NA", "null", "None", " "])
def test_words_for_an_empty_cell_leave_it_unscored(tmp_path, nothing):
    path = written(tmp_path / "x.csv", f"refused,wrong,forced_grade\nT,F,{nothing}\nF,{nothing},\n")
    table = read_outcomes(path)
    assert table["refused"].to_list() == [True, False]
    assert table["wrong"].to_list() == [False, None]
    assert table["forced_grade"].null_count() == 2


def test_probabilities_are_read_only_from_own_tables(tmp_path):
    """A column called confidence may contain anything in a table of another tool, so it is ignored there."""
    foreign = read_outcomes(written(tmp_path / "x.csv", "refused,wrong,confidence\n1,0,high\n"))
    assert "confidence" not in foreign.columns
    own = written(tmp_path / "y.csv", "refused,wrong,confidence,schema_version\n1,0,0.5,1\n0,1,,1\n")
    assert read_outcomes(own)["confidence"].to_list() == [0.5, None]
    both = read_tables([tmp_path / "x.csv", own])
    assert both["confidence"].to_list() == [None, 0.5, None]
    with pytest.raises(
        OutcomeTableError, match=r"row 1, column 'confidence': expected a probability in \[0, 1\], got 1.5"
    ):
        read_outcomes(pl.DataFrame({"refused": [True], "wrong": [True], "confidence": [1.5], "schema_version": [1]}))


def test_first_pass_is_answered_if_graders_differ_only_on_correctness():
    table = table_of(Outcome(False, None, Grade.UNSCORED, None, "first_graders_disagree"))
    assert table.row(0, named=True)["refused"] is False
    with pytest.raises(OutcomeTableError, match=r"first_grade is 'unscored' and refused false, .*, wrong is empty"):
        table_of(Outcome(False, True, Grade.UNSCORED))
    with pytest.raises(OutcomeTableError, match="refused is true exactly when first_grade is 'refused'"):
        table_of(Outcome(True, None, Grade.UNSCORED))
