"""The same graded answers in files of many kinds; the counts are those of the rows that each test writes."""

from __future__ import annotations

import codecs
import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.data import Grade
from refusal_index.data.cells import NUMBER
from refusal_index.data.datasets.hub_files import files_of
from refusal_index.data.first_pass import FirstPassError
from refusal_index.data.imports import ReadOptions
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.metrics import METRICS, SHOWN_AS, unknown_metric
from refusal_index.runs.reuse import import_file

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741 - short, for tables
GRADES = [C, C, I, R]
ROWS = [
    {"id": f"q{number}", "question": f"Straße {number}?", "response": "so", "grade": str(grade)}
    for number, grade in enumerate(GRADES)
]
COMMAS = pd.DataFrame(ROWS).to_csv(index=False)


def grades(path: Path, **options: Any) -> list[Grade | None]:
    return [one.grade for one in import_file(path, None, ReadOptions(**options)).passes]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(separator: str) -> str:
    return COMMAS.replace(",", separator)


JSON = json.dumps(ROWS, ensure_ascii=False)
TEXTS = {
    "semicolons": ("x.csv", lines(";")),
    "bars": ("x.csv", lines("|")),
    "tabs in a text file": ("x.txt", lines("\t")),
    "a title above": ("x.csv", "Results of run 7\n\n" + lines(";")),
    "a comment above": ("x.csv", "# made by a tool\n" + COMMAS),
    "Markdown": ("x.csv", COMMAS.replace(",", " | ").replace("\n", "\n--- | --- | --- | ---\n", 1)),
    "UTF-16 of a spreadsheet": ("x.txt", codecs.BOM_UTF16_LE + lines("\t").encode("utf-16-le")),
    "UTF-16, other order": ("x.csv", codecs.BOM_UTF16_BE + COMMAS.encode("utf-16-be")),
    "UTF-32": ("x.csv", COMMAS.encode("utf-32")),
    "compressed UTF-16": ("x.csv.gz", gzip.compress(COMMAS.encode("utf-16"))),
    "compressed under another name": ("x.csv", gzip.compress(COMMAS.encode())),
    "JSON in UTF-16": ("x.json", JSON.encode("utf-16")),
    "JSON under another name": ("x.csv", JSON),
    "a list in JSON Lines": ("x.jsonl", JSON),
    "objects by id": ("x.json", json.dumps({"results": {row["id"]: row for row in ROWS}})),
}


@pytest.mark.parametrize("case", TEXTS)
def test_theory_the_kind_of_text_does_not_change_the_grades(tmp_path, case):
    name, content = TEXTS[case]
    assert grades(written(tmp_path / name, content)) == GRADES


@pytest.mark.parametrize("orient", ["records", "split", "index", "columns", "table"])
def test_theory_every_json_of_pandas_gives_the_same_grades_and_ids(tmp_path, orient):
    pd.DataFrame(ROWS).to_json(tmp_path / "x.json", orient=orient)
    read = import_file(tmp_path / "x.json", None, ReadOptions())
    assert [(one.question.question_id, one.grade) for one in read.passes] == [
        (f"q{number}", grade) for number, grade in enumerate(GRADES)
    ]


def test_name_of_an_object_is_the_id_of_its_record_unless_it_numbers_a_row(tmp_path):
    records = [{"question": row["question"], "grade": row["grade"]} for row in ROWS]
    named = written(tmp_path / "n.json", json.dumps({f"k{number}": row for number, row in enumerate(records)}))
    numbered = written(tmp_path / "x.json", json.dumps(dict(enumerate(records))))
    ids = [
        [one.question.question_id for one in import_file(path, None, ReadOptions()).passes]
        for path in (named, numbered)
    ]
    assert ids[0] == ["k0", "k1", "k2", "k3"]
    assert not set(ids[1]) & {"0", "1", "2", "3"}


@pytest.mark.parametrize(("name", "write"), [("x.csv", pd.DataFrame.to_parquet), ("x.dat", pd.DataFrame.to_excel)])
def test_table_under_another_name_is_recognised_by_its_content(tmp_path, name, write):
    suffix = ".parquet" if write is pd.DataFrame.to_parquet else ".xlsx"
    write(pd.DataFrame(ROWS), tmp_path / f"y{suffix}")
    (tmp_path / f"y{suffix}").rename(tmp_path / name)
    assert grades(tmp_path / name) == GRADES


WORDS = [("True", "False"), ("1.0", "0.0"), ("1,0", "0,0"), ("ja", "nein"), ("WAHR", "FALSCH"), ("oui", "non")]
WORDS += [("Sí", "No"), ("VERO", "FALSO"), ("sim", "não"), ("да", "нет"), ("是", "否"), ("はい", "いいえ"), ("✓", "✗")]


@pytest.mark.parametrize(("yes", "no"), WORDS)
def test_theory_flags_are_read_in_other_languages(tmp_path, yes, no):
    flag = {True: yes, False: no}
    rows = [
        {"question": row["question"], "correct": flag[grade is C], "refused": flag[grade is R]}
        for row, grade in zip(ROWS, GRADES, strict=True)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "x.csv", index=False, sep=";")
    assert grades(tmp_path / "x.csv") == GRADES


@pytest.mark.parametrize("nothing", ["", "NaN", "None", "null", "N/A", "#N/A", "<NA>"])
def test_theory_a_word_for_nothing_is_no_grade(tmp_path, nothing):
    assert grades(written(tmp_path / "x.csv", f"{COMMAS}q9,Why?,so,{nothing}\n")) == [*GRADES, U]


def test_a_dash_is_no_word_for_nothing_since_it_may_be_a_minus(tmp_path):
    with pytest.raises(FirstPassError, match="got '-'"):
        grades(written(tmp_path / "x.csv", f"{COMMAS}q9,Why?,so,-\n"))


def test_theory_a_decimal_comma_in_a_probability_is_read(tmp_path):
    path = written(tmp_path / "x.csv", "question;response;grade;p\nWho?;so;correct;0,75\n")
    (one,) = import_file(path, None, ReadOptions(columns={"confidence": "p"})).passes
    assert one.confidence == 0.75
    with pytest.raises(ValueError, match=r"as in 2\.5"):
        NUMBER("1,234")  # which may be a thousand
    with pytest.raises(FirstPassError, match="probability"):
        import_file(written(path, "question;grade;p\nWho?;correct;1,234\n"), None, ReadOptions({"confidence": "p"}))


def workbook(path: Path, **sheets: list[list[Any]]) -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return book


TABLE = [list(ROWS[0]), *(list(row.values()) for row in ROWS)]


def test_theory_the_only_visible_sheet_with_rows_is_read_below_its_title(tmp_path):
    path = tmp_path / "x.xlsx"
    book = workbook(
        path, old=TABLE[:2], notes=[["Please read"]], now=[["Week 7"], [], *TABLE, ["q9", "Why?", "so", "#N/A"]]
    )
    book["old"].sheet_state = "hidden"
    book.save(path)
    assert grades(path) == [*GRADES, U]


def test_one_of_several_sheets_is_chosen(tmp_path):
    workbook(tmp_path / "x.xlsx", one=TABLE[:3], two=TABLE)
    with pytest.raises(FirstPassError, match="sheets 'one', 'two'; hide all but one, or choose one") as caught:
        grades(tmp_path / "x.xlsx")
    assert caught.value.remedy == ("rows", ("two",))
    assert grades(tmp_path / "x.xlsx", rows="one") == GRADES[:2]
    with pytest.raises(FirstPassError, match="expected a visible sheet out of 'one', 'two', got 'three'"):
        grades(tmp_path / "x.xlsx", rows="three")


def test_formula_whose_value_was_not_saved_is_not_taken_for_an_empty_cell(tmp_path):
    workbook(tmp_path / "x.xlsx", one=[["question", "refused"], ["Who?", '=IF(A2="x",1,0)']])
    with pytest.raises(FirstPassError, match="row 2 holds a formula without its value"):
        grades(tmp_path / "x.xlsx")


SECOND = [{"id": number, "question": f"Straße {number}?", "response": "so", "grade": "correct"} for number in (3,)]


@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0], ["0 ", "1", "2", "3"]])
def test_theory_whole_numbers_are_the_same_ids_with_and_without_a_point(tmp_path, ids):
    pd.DataFrame([{**row, "id": id_} for row, id_ in zip(ROWS, ids, strict=True)]).to_csv(
        tmp_path / "a.csv", index=False
    )
    pd.DataFrame(SECOND).to_parquet(tmp_path / "b.parquet")
    scored = ri.score(tmp_path / "a.csv", forced=tmp_path / "b.parquet")
    assert scored.outcomes["wrong"].to_list() == [False, False, True, False]


def test_ids_that_number_other_questions_are_not_joined(tmp_path):
    first = [{**row, "id": number} for number, row in enumerate(ROWS)]
    pd.DataFrame(first).to_csv(tmp_path / "a.csv", index=False)
    second = [{"id": 3, "question": "Quite another?", "grade": "correct"}, {**first[3], "id": 0, "grade": "correct"}]
    pd.DataFrame(second).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(FirstPassError, match=r"got 0 of 1 by their ids .* 1 have the same text") as caught:
        ri.score(tmp_path / "a.csv", forced=tmp_path / "b.csv")
    assert caught.value.remedy == ("column", ("question_id=question",))
    scored = ri.score(tmp_path / "a.csv", forced=tmp_path / "b.csv", columns={"question_id": "question"})
    assert scored.outcomes["wrong"].to_list() == [False, False, True, False]


REMEDIES = {
    "Latin-1": ("x.csv", COMMAS.encode("latin-1")),
    "UTF-16 without a mark": ("x.csv", COMMAS.encode("utf-16-le")),
    "Latin-1 in JSON": ("x.json", JSON.encode("latin-1")),
    "grades in a cell": (
        "x.jsonl",
        "\n".join(json.dumps({"id": row["id"], "it": {"mark": row["grade"]}}) for row in ROWS),
    ),
    "two lists": ("x.json", json.dumps({"a": ROWS, "b": ROWS})),
    "another column": ("x.csv", COMMAS.replace("grade", "Bewertung", 1)),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_end_to_end_the_command_in_an_error_reads_the_file(tmp_path, monkeypatch, case):
    name, content = REMEDIES[case]
    arguments = ["score", str(written(tmp_path / name, content)), "--json"]
    monkeypatch.setattr("sys.argv", ["refusal-index", *arguments])
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
    _, _, command = refused.stderr.partition(": refusal-index ")
    done = CliRunner().invoke(app, shlex.split(command))
    (tally,) = json.loads(done.stdout)["first_passes"]
    assert [tally[name] for name in ("correct", "incorrect", "refused", "unscored")] == [2, 1, 1, 0]


IN_PYTHON = {
    "encoding": (COMMAS.encode("latin-1"), {}, 'with encoding="latin-1"'),
    "column": (COMMAS.replace("grade", "Bewertung", 1), {}, 'with columns={"grade": "Bewertung"}'),
    "words": (COMMAS.replace("refused", "pass"), {"words": {"incorrect": "correct"}, "scorer": "m"}, "scorer: "),
    "unknown words": (COMMAS.replace("refused", "blue"), {}, 'with words={"blue": "GRADE"}'),
    "format": (COMMAS, {"kind": "grade"}, "kind: expected one of"),
    "rows": (COMMAS, {"rows": "a.b"}, "rows: "),
}


@pytest.mark.parametrize("case", IN_PYTHON)
def test_errors_in_python_name_arguments_rather_than_options(tmp_path, case):
    content, options, expected = IN_PYTHON[case]
    with pytest.raises(RefusalIndexError) as caught:
        ri.score(written(tmp_path / "x.csv", content), **options)
    assert expected in str(caught.value)
    assert "--" not in str(caught.value)


def test_totals_of_lm_eval_are_named_as_such(tmp_path):
    path = written(tmp_path / "results.json", json.dumps({"results": {"t": {"em,none": 0.5}}, "configs": {"t": {}}}))
    with pytest.raises(FirstPassError, match=r"totals of lm-evaluation-harness: give the samples_\*\.jsonl"):
        grades(path)


def test_theory_a_file_that_two_patterns_of_a_card_match_is_read_once():
    declared = [{"data_files": [{"split": "test", "path": "data/*.csv"}, {"split": "test", "path": ["data/a*", "**"]}]}]
    assert files_of(["data/a.csv", "data/b.csv"], declared) == {"default": {"test": ["data/a.csv", "data/b.csv"]}}


def test_every_name_of_a_rate_on_a_screen_leads_to_its_metric():
    assert set(SHOWN_AS.values()) == set(METRICS)
    for shown, name in SHOWN_AS.items():
        assert f"did you mean {name!r}?" in unknown_metric(shown), shown
    assert unknown_metric("wrong").endswith("at most 0.2 wrong is at least 0.8 of it")


def test_a_grader_of_a_file_without_replies_names_their_column(tmp_path):
    file = tmp_path / "file.csv"
    file.write_text("question,answer,reference\nWho?,Ann,Ann\nWhat?,Bob,Bo\n")
    with pytest.raises(ri.RefusalIndexError, match=r'columns=\{"reply": "NAME"\}'):
        ri.score(file, grader="exact")
