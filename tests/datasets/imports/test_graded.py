"""Rows of graded answers: the words of others for grades, their columns, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data import Grade
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import FirstPass
from refusal_index.data.imports import ReadOptions
from refusal_index.errors import RefusalIndexError
from refusal_index.runs.reuse import import_file

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741


def read(path: Path, **options: object) -> tuple[FirstPass, ...]:
    return import_file(path, None, ReadOptions(**options)).passes


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "gpt-4.1.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def grades(path: Path, **options: object) -> list[Grade | None]:
    return [one.grade for one in read(path, **options)]


SIMPLEQA = "problem,target,predicted_answer,grade\nWho?,I,me,A\nWhat?,It,that,B\nWhen?,Now,no idea,C\n"


def test_simpleqa_rows_are_read_under_their_usual_names(written):
    first, second, third = read(written(SIMPLEQA))
    assert (first.grade, second.grade, third.grade) == (C, I, R)
    assert (third.question.text, third.question.gold, third.reply) == ("When?", "Now", "no idea")
    assert {one.model for one in (first, second, third)} == {"gpt-4.1"}, "the file's name where no column says it"
    assert third.needs_forcing
    assert not second.needs_forcing


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *((word, C) for word in ("A", "a", "CORRECT", "Correct", "1", "1.0", "true")),
        *((word, I) for word in ("B", "INCORRECT", "incorrect", "0", "0.0", "False")),
        *((word, R) for word in ("C", "NOT_ATTEMPTED", "Not attempted", "not-attempted", "refused")),
        *((word, U) for word in ("", "unscored")),
    ],
)
def test_the_words_for_grades(written, cell, expected):
    assert grades(written(f"question,target,grade\nWho?,I,{cell}\n")) == [expected]


def test_a_row_without_a_grade_is_unscored_with_a_reason_and_no_refusal(written):
    (one,) = read(written("question,target,grade\nWho?,I,\n"))
    assert one.outcome().refused is None
    assert one.outcome().unscored_reason == "first_not_graded"


def test_flags_say_the_grade_together_and_all_false_is_ungraded(written):
    text = "question,target,is_correct,is_incorrect,is_not_attempted\n"
    rows = "a,1,True,False,False\nb,1,False,True,False\nc,1,False,False,True\nd,1,False,False,False\n"
    found = read(written(text + rows))
    assert [one.grade for one in found] == [C, I, R, None]
    assert found[3].outcome().refused is False, "it was not a refusal, and nobody said whether it is right"
    assert found[3].outcome().wrong is None


def test_a_flag_for_refusals_counts_beside_a_grade_of_right_and_wrong(written):
    text = "question,target,grade,abstained\na,1,0,true\nb,1,0,false\nc,1,1,false\n"
    assert grades(written(text)) == [R, I, C]


def test_a_question_without_an_answer_makes_every_answer_wrong_and_needs_no_forcing(written):
    text = (
        "question,gold_answers,is_answerable,abstained\na,[],False,True\nb,[],False,False\nc,\"['x', 'y']\",True,True\n"
    )
    refused, answered, answerable = read(written(text))
    assert (refused.grade, answered.grade, answerable.grade) == (R, I, R)
    assert (refused.outcome().refused, refused.outcome().wrong) == (True, True)
    assert not refused.needs_forcing
    assert answerable.needs_forcing
    assert (answerable.question.gold, answerable.question.aliases) == ("x", ("y",))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_the_same_rows_from_other_formats(written, tmp_path, suffix):
    rows = pl.read_csv(written(SIMPLEQA)).to_dicts()
    path = tmp_path / f"gpt-4.1{suffix}"
    if suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    elif suffix == ".json":
        path.write_text(json.dumps({"metrics": {"f1": 0.5}, "results": rows}))
    else:
        pl.DataFrame(rows).write_parquet(path)
    assert read(path) == read(written(SIMPLEQA))


def test_the_same_question_about_another_context_is_another_question(written):
    one, other = read(written("question,target,context,grade\nWho?,I,It was I.,C\nWho?,I,I did it.,C\n"))
    assert (one.question.text, one.question.context) == ("Who?", "It was I.")
    assert one.question.question_id != other.question.question_id


def test_ids_do_not_depend_on_the_order_even_where_questions_repeat_with_other_answers(written):
    head = "problem,target,predicted_answer,grade\n"
    rows = ["Who?,I,x,A", "Who?,you,x,B", "What?,It,x,C"]
    one = read(written(head + "\n".join(rows)))
    other = read(written(head + "\n".join(reversed(rows))))
    assert {p.question.question_id: p.question.gold for p in one} == {
        p.question.question_id: p.question.gold for p in other
    }
    assert len({p.question.question_id for p in one}) == 3


def test_several_models_in_one_file_share_the_ids_of_their_questions(written):
    found = read(written("model,question,target,grade\nm1,Who?,I,A\nm2,Who?,I,C\n"))
    assert [one.model for one in found] == ["m1", "m2"]
    assert len({one.question.question_id for one in found}) == 1


def test_a_pattern_makes_refusals_of_wrong_answers_but_not_of_right_ones(written):
    text = "question,target,response,grade\na,1,I cannot say,0\nb,1,I cannot say but 1,1\nc,1,2,0\nd,1,I CANNOT SAY,\n"
    assert grades(written(text), refusal="cannot say") == [R, C, I, R]


BAD = {
    "unknown grade": (SIMPLEQA + "Why?,Because,so,D\n", {}, ["line 5", "'grade'", "'D'", "A, B, C", "NOT_ATTEMPTED"]),
    "Inspect's letter": (SIMPLEQA + "Why?,Because,so,I\n", {}, ["line 5", "'I'"]),
    "no grade": ("problem,target\nWho?,I\n", {}, ["column 'grade'", "'problem', 'target'", "--column grade="]),
    "misspelt column": (SIMPLEQA, {"columns": {"grade": "grad"}}, ["'grad'", "'grade'"]),
    "unknown role": (SIMPLEQA, {"columns": {"grades": "grade"}}, ["--column", "'grades'", "'grade'"]),
    "flag": ("question,target,abstained\nWho?,I,perhaps\n", {}, ["line 2", "'abstained'", "'perhaps'"]),
    "contradiction": (
        "question,target,grade,refused\nWho?,I,C,false\n",
        {},
        ["line 2", "'grade'", "'refused'", "correct the row"],
    ),
    "empty id": ("id,question,target,grade\n,Who?,I,A\n", {}, ["line 2", "'id'"]),
    "draw": ("draw,question,target,grade\nx,Who?,I,A\n", {}, ["line 2", "'draw'", "'x'"]),
    "nothing": ("problem,grade\n", {}, ["gpt-4.1.csv"]),
    "semicolons": ("problem;grade\nWho?;A\n", {}, ["';'", "commas"]),
    "pattern": (SIMPLEQA, {"refusal": "("}, ["refusal", "regular expression"]),
    "slow pattern": (
        f"question,target,response,grade\na,1,{'a' * 40},0\n",
        {"refusal": "(a|aa)+$b"},
        ["--refusal", "takes more than", "nested repetitions"],
    ),
    "scorer": (SIMPLEQA, {"scorer": "match"}, ["--scorer", "graded"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_used_is_told_in_one_line(written, case, monkeypatch):
    for module in ("data.imports", "protocol.replies"):
        monkeypatch.setattr(f"refusal_index.{module}.SECONDS", 0.05)
    text, options, expected = BAD[case]
    with pytest.raises(RefusalIndexError) as caught:
        read(written(text), **options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in expected), message


def test_a_grade_in_a_json_document_is_named_by_its_item(written):
    path = written(json.dumps([{"question": "Who?", "grade": "A"}, {"question": "What?", "grade": "E"}]), "x.json")
    with pytest.raises(DatasetError, match=r"x\.json, item 2, column 'grade': expected a grade"):
        read(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": [{"grade": "A"}], "b": [{"grade": "A"}]}', "with 2 of them"),
        ('{"a": 1}', "with 0 of them"),
        ("[1]", "item 1"),
        ('[{"grade": "A"', "cut off"),
    ],
)
def test_a_json_document_without_one_list_of_answers_is_told(written, text, told):
    with pytest.raises(DatasetError, match=told):
        read(written(text, "x.json"))


def test_a_broken_parquet_file_is_told(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DatasetError, match=r"x\.parquet cannot be read as Parquet"):
        read(path)
