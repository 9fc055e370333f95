"""Imports lose nothing silently: empty replies, unread columns, inverse flags, words for grades, incomplete files.

Expected values follow from the rows themselves, or from the rules in docs/import.md.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import FirstPassError, FirstPasses, to_outcomes, with_forced
from refusal_index.data.grade_words import RIGHT_OR_WRONG, WORDS, read_grades
from refusal_index.data.graded import COLUMNS, INVERSES
from refusal_index.data.imports import ReadOptions
from refusal_index.data.outcome_table import read_outcomes, write_outcomes
from refusal_index.data.text import is_blank
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.imported import reading_statements
from refusal_index.findings.tallies import tallies
from refusal_index.render.imported import reading_lines
from refusal_index.runs.reuse import import_file, import_forced

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741 - one letter a grade keeps the tables readable
CASES = Path(__file__).parents[3] / "shared" / "cases" / "reading"
REPLIES = Path(__file__).parents[3] / "shared" / "data" / "replies"


@pytest.fixture
def written(tmp_path: Path):
    """Return a function that writes rows as a file and reads it as first passes."""

    def write(*rows: dict[str, object], form: str = "jsonl", **options: object) -> FirstPasses:
        path = tmp_path / f"m.{form}"
        if form == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif form == "json":
            path.write_text(json.dumps(list(rows)))
        elif form == "csv":
            text = io.StringIO()
            table = csv.DictWriter(text, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
            path.write_text(text.getvalue())
        else:
            pl.DataFrame(rows).write_parquet(path)
        return import_file(path, None, ReadOptions(**options)).read

    return write


def grades(read: FirstPasses) -> list[Grade | None]:
    return [one.grade for one in read.passes]


def codes(read: FirstPasses) -> list[str]:
    return [statement.code for statement in reading_statements(read)]


# --- Empty replies

EMPTY = ["", " \n\t", "\u200b\u200d", "\ufeff", "\u2060\u00ad", "\u3164", "\u2800", "\x00\x1b", "\ufe0f"]


@pytest.mark.parametrize("text", EMPTY)
def test_text_that_shows_nothing_is_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["0", "?", "\u200bno", "無", "🙂", "-", "a\u0301"])
def test_text_that_shows_something_is_not_blank(text):
    assert not is_blank(text)


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet"])
@pytest.mark.parametrize("grade", ["NOT_ATTEMPTED", "CORRECT", "INCORRECT", "", None])
def test_empty_reply_is_unscored_whatever_its_grade(written, form, grade):
    rows = [{"id": str(n), "reply": reply, "grade": grade} for n, reply in enumerate(["", " ", "\u200b", None])]
    read = written(*rows, {"id": "x", "reply": "no idea", "grade": "C"}, form=form)
    assert grades(read) == [U, U, U, U, R]
    assert {one.outcome().unscored_reason for one in read.passes[:4]} == {"first_empty"}
    (tally,) = tallies(read.passes)
    assert (tally.refused, tally.unscored, tally.unused_grades) == (1, 4, 4 if grade else 0)
    assert ("empty_replies" in [statement.code for statement in tally.statements]) is bool(grade)


def test_file_without_replies_keeps_its_grades(written):
    assert grades(written({"id": "a", "grade": "C"}, {"id": "b", "grade": "A"})) == [R, C]


def test_empty_reply_is_no_refusal_of_a_flag_or_a_pattern(written):
    rows = [{"id": "a", "reply": "", "abstained": True}, {"id": "b", "reply": "no", "abstained": True}]
    assert grades(written(*rows)) == [U, R]
    graded = [{"id": "a", "reply": "", "grade": "B"}, {"id": "b", "reply": "no", "grade": "B"}]
    assert grades(written(*graded, refusal=r"+no|\s*")) == [U, R]


def test_empty_reply_graded_right_does_not_show_that_a_file_has_both_passes(written):
    """The other refusal is marked wrong, which may be for the refusal: it must stay to be forced."""
    rows = [
        {"id": "a", "reply": "", "refused": 1, "correct": 1},
        {"id": "b", "reply": "no", "refused": 1, "correct": 0},
    ]
    empty, refused = written(*rows).passes
    assert (empty.grade, refused.needs_forcing, refused.set_aside) == (U, True, I)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_empty_forced_reply_is_unscored_whatever_its_grade(written, form):
    row = {"reply": "no", "grade": "C", "forced_grade": "A"}
    read = written({"id": "a", "forced_reply": " ", **row}, {"id": "b", "forced_reply": "so", **row}, form=form)
    assert [(one.outcome().wrong, one.outcome().unscored_reason) for one in read.passes] == [
        (None, "forced_empty"),
        (False, None),
    ]
    assert [one.unused_grades for one in read.passes] == [1, 0]


def test_forced_reply_and_grade_that_are_both_empty_were_not_asked(written):
    (one,) = written({"id": "a", "reply": "no", "grade": "C", "forced_grade": "", "forced_reply": ""}).passes
    assert one.needs_forcing


def test_empty_forced_reply_in_a_second_file_is_unscored(written, tmp_path):
    first = written({"id": "a", "reply": "no", "grade": "C"}, {"id": "b", "reply": "no", "grade": "C"})
    path = tmp_path / "second.csv"
    path.write_text("id,reply,grade\na,,B\nb,so,A\n")
    joined = with_forced(first.passes, import_forced(first, path, None, ReadOptions()).passes, "second.csv")
    assert [one.outcome().unscored_reason for one in joined] == ["forced_empty", None]
    (tally,) = tallies(joined)
    assert (tally.forced, tally.unused_grades) == (2, 1)


def test_public_file_of_empty_replies_has_two_refusals():
    path = case("empty_replies.csv")
    (tally,) = tallies(import_file(path, None, ReadOptions()).passes)
    assert (tally.correct, tally.incorrect, tally.refused, tally.unscored, tally.unused_grades) == (6, 6, 2, 6, 6)


def case(name: str) -> Path:
    path = CASES / name
    if not path.is_file():
        pytest.skip("needs the cases in ../shared")
    return path


# --- Columns that are not used

JUDGED = [
    {"id": "1", "instruction": "When?", "judge_label": "not_attempted", "is_correct": False},
    {"id": "2", "instruction": "How long?", "judge_label": "incorrect", "is_correct": False},
    {"id": "3", "instruction": "Who?", "judge_label": "correct", "is_correct": True},
]


@pytest.mark.parametrize("name", ["judge_label", "judge_pred", "Judge Label", "judge-label", "judgement", "label"])
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_usual_column_of_grades_is_read_before_a_flag(written, name, form):
    rows = [{name if key == "judge_label" else key: value for key, value in row.items()} for row in JUDGED]
    read = written(*rows, form=form)
    assert grades(read) == [R, I, C]
    assert read.columns["grade"] == name
    assert read.not_used == ("is_correct",)
    assert "grades_differ" not in codes(read), "a refusal is not correct"


def test_column_named_like_grades_is_read_only_if_all_its_words_are_grades(written):
    rows = [{**row, "judge_label": label} for row, label in zip(JUDGED, ["correct", "blue", "red"], strict=True)]
    read = written(*rows)
    assert grades(read) == [I, I, C]
    assert read.not_used == ("judge_label",)


def test_other_column_of_grades_that_disagrees_is_named_with_its_number_of_rows(written):
    read = written(*({**row, "grade": "01"[row["is_correct"]]} for row in JUDGED))
    assert grades(read) == [I, I, C]
    (conflict,) = read.conflicts
    assert (conflict.used, conflict.other, conflict.different, conflict.compared) == ("grade", "judge_label", 1, 3)
    assert "--column grade=judge_label" in " ".join(reading_lines([("m", read)]))


@pytest.mark.parametrize(
    ("name", "flags", "different"),
    [
        ("is_correct", [False, False, False], 1),
        ("is_correct", [True, False, True], 1),
        ("is_wrong", [True, True, False], 0),
        ("is_wrong", [False, False, True], 2),
    ],
)
def test_flag_that_contradicts_the_grades_is_named(written, name, flags, different):
    rows = [
        {"id": str(n), "grade": grade, name: flag} for n, (grade, flag) in enumerate(zip("CBA", flags, strict=True))
    ]
    conflicts = written(*rows).conflicts
    assert [conflict.different for conflict in conflicts] == [different] * bool(different)


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet"])
def test_unread_columns_are_named_and_nested_ones_that_are_read_are_not(written, form):
    rows = [{"id": str(n), "grade": "A", "result": json.dumps({"p": 0.5}), "model_version": "v1"} for n in range(2)]
    read = written(*rows, form=form, columns={"confidence": "result.p"})
    assert read.not_used == ("model_version",)
    assert read.passes[0].confidence == 0.5


@given(st.lists(st.text("abcdefgh_", min_size=1, max_size=30), min_size=1, max_size=30, unique=True))
def test_line_of_unused_columns_fits_80_columns_and_counts_all_of_them(names):
    read = FirstPasses((), columns={"grade": "g"}, not_used=tuple(names))
    (line,) = [line for line in reading_lines([("m", read)]) if line.startswith("Not used")]
    assert len(line) <= 80
    shown, _, rest = line.removeprefix("Not used: ").partition(";")[0].partition(" and ")
    assert len(shown.split(", ")) + int(rest.split()[0] if rest else 0) == len(names)


def test_lines_about_all_files_are_printed_once_and_others_name_their_file():
    one = FirstPasses((), columns={"grade": "g"})
    other = FirstPasses((), columns={"grade": "g"}, not_used=("x",))
    first, second = reading_lines([("a.csv", one), ("b.csv", other)])
    assert first.startswith("Read: grades from g, no replies")
    assert second.startswith("b.csv: Not used: x;")


def test_unused_columns_of_an_outcome_table_are_named(tmp_path):
    (tmp_path / "o.csv").write_text("refused,wrong,judge_label\n1,1,x\n")
    read = import_file(tmp_path / "o.csv", None, ReadOptions()).read
    assert read.not_used == ("judge_label",)
    assert list(reading_lines([("o.csv", read)])) == ["Not used: judge_label"]
    write_outcomes(read_outcomes(tmp_path / "o.csv"), tmp_path / "own.csv")
    assert import_file(tmp_path / "own.csv", None, ReadOptions()).read.not_used == ()


def test_missing_grade_names_the_column_that_holds_grades(written):
    with pytest.raises(DatasetError, match="my_marks"):
        written({"id": "a", "my_marks": "correct"}, {"id": "b", "my_marks": "abstained"})


def test_public_file_with_a_judge_column_has_one_refusal():
    assert grades(import_file(case("judged_2.csv"), None, ReadOptions()).read) == [R, I, C]


def test_replies_of_eight_models_have_the_refusals_of_their_judge():
    path = REPLIES / "simpleqa_eight_models.jsonl"
    if not path.is_file():
        pytest.skip("needs the real replies in ../shared")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    plain = Counter(row["judge_pred"] for row in rows)
    # The file does not say which model answered.
    with pytest.raises(FirstPassError, match=r'columns=\{"model": "NAME"\}'):
        import_file(path, None, ReadOptions())
    read = import_file(path, None, ReadOptions(columns={"question_id": "finished_at"})).read
    counts = Counter(grades(read))
    assert counts == {C: plain["correct"], I: plain["incorrect"], R: plain["not_attempted"]}
    assert read.conflicts == ()


# --- Flags and their inverses


@pytest.mark.parametrize("inverse", INVERSES)
def test_flag_and_its_inverse_are_read_alike(written, inverse):
    role = INVERSES[inverse]
    base = {"question": "Who?", "gold": "", "reply": "no", "grade": "C"}
    if role == "refused":
        base = {"question": "Who?", "gold": "I", "reply": "no", "grade": ""}
    for name in COLUMNS[inverse].names:
        for flag in (True, False):
            plain = written({"id": "a", **base, COLUMNS[role].names[0]: flag})
            assert written({"id": "a", **base, name: not flag}).passes == plain.passes
            assert written({"id": "a", **base, name.upper(): not flag}).passes == plain.passes
            assert written({"id": "a", **base, "mine": not flag}, columns={inverse: "mine"}).passes == plain.passes


def test_inverse_flags_are_pairs_of_flags_and_no_name_has_two_roles():
    names = [name for column in COLUMNS.values() for name in column.names]
    assert {name for name in names if names.count(name) > 1} == {"answer"}, "the reply of some tools, else the gold one"
    for inverse, role in INVERSES.items():
        assert COLUMNS[inverse].read is COLUMNS[role].read


def test_flag_and_inverse_that_contradict_each_other_are_named_with_their_line(written):
    rows = [{"id": "a", "refused": True, "answered": False}, {"id": "b", "refused": True, "answered": True}]
    with pytest.raises(
        DatasetError, match=r"line 2: columns 'refused' and 'answered' contradict each other: both are true"
    ):
        written(*rows)


def test_wrong_flag_alone_gives_right_and_wrong_and_no_right_refusal(written):
    rows = [("a", 0, 1), ("b", 0, 0), ("c", 1, 1), ("d", 1, 0)]
    read = written(*({"id": id_, "abstained": refused, "is_wrong": wrong} for id_, refused, wrong in rows))
    assert grades(read) == [I, C, R, R]
    assert all(one.needs_forcing for one in read.passes[2:]), "a refusal that is not marked as wrong is not right"


def test_column_that_only_has_the_name_of_a_flag_is_not_used(written):
    read = written({"id": "a", "grade": "A", "answered": "in May"}, {"id": "b", "grade": "C", "answered": "never"})
    assert grades(read) == [C, R]
    assert read.not_used == ("answered",)


def test_flag_with_one_invalid_cell_is_an_error(written):
    with pytest.raises(DatasetError, match=r"line 2, column 'answered': expected true, false.*'never'"):
        written({"id": "a", "grade": "A", "answered": "yes"}, {"id": "b", "grade": "C", "answered": "never"})


def test_map_changes_grades_and_never_flags(written):
    rows = [{"id": "a", "grade": "Pass", "abstained": True}, {"id": "b", "grade": "true", "abstained": False}]
    words = {"pass": "refused", "true": "incorrect", "false": "correct"}
    assert grades(written(*rows, words=words)) == [R, I]


def test_refusal_of_an_unanswerable_question_graded_right_does_not_show_that_a_file_has_both_passes(written):
    """Tasks such as SQuAD 2 grade it so; the mark of the other refusal is not that of a forced answer."""
    rows = [("a", 1, 1, 1), ("b", 1, 0, 0), ("c", 0, 1, 0)]
    names = ("id", "abstained", "correct", "is_impossible")
    read = written(*(dict(zip(names, row, strict=True)) for row in rows))
    assert grades(read) == [R, R, C]
    (tally,) = tallies(read.passes)
    assert (tally.forced, tally.to_force, tally.set_aside) == (0, 1, 1)


def test_right_answer_to_an_unanswerable_question_is_named(written):
    read = written({"id": "a", "grade": "A", "unanswerable": True}, {"id": "b", "grade": "A", "unanswerable": False})
    (tally,) = tallies(read.passes)
    assert tally.right_without_answer == 1
    assert "right_without_answer" in [statement.code for statement in tally.statements]


def test_empty_column_of_grades_gives_way_to_others(written):
    flags = written({"id": "a", "grade": "", "is_correct": 1}, {"id": "b", "grade": None, "is_correct": 0})
    assert (grades(flags), flags.not_used) == ([C, I], ("grade",))
    judged = written({"id": "a", "grade": "", "judge_label": "refused"}, {"id": "b", "judge_label": "correct"})
    assert (grades(judged), judged.not_used) == ([R, C], ("grade",))
    assert grades(written({"id": "a", "grade": ""}, {"id": "b", "grade": None})) == [U, U]
    named = [{"id": "a", "mine": "", "judge_label": "refused"}]
    assert grades(written(*named, columns={"grade": "mine"})) == [U], "as it was named"


def test_public_file_of_unanswerable_questions_needs_no_forced_pass():
    (tally,) = tallies(import_file(case("unanswerable.csv"), None, ReadOptions()).passes)
    assert (tally.refused, tally.to_force) == (1, 0)


# --- Words for grades


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["right", "Wrong", "abstained", "Abstain", "declined", "REFUSED"], [C, I, R, R, R, R]),
        (["Pass", "fail", "passed", "FAILED"], [C, I, C, I]),
        (["yes", "no"], [C, I]),
        ([True, False], [C, I]),
        ([1, 0, 1.0, 0.0], [C, I, C, I]),
        (["C", "I", "N"], [C, I, R]),
        (["C", "I"], [C, I]),
        (["A", "B", "C"], [C, I, R]),
        (["A", "C"], [C, R]),
        ([" C\n", "b ", "\tA"], [R, I, C]),
        ([["C"], [["B"]], '["A", "A"]', []], [R, I, C, None]),
        ([None, "", "nan", float("nan"), "null"], [None] * 5),
        (["not attempted", "Not-Attempted", "NOT_ATTEMPTED"], [R, R, R]),
    ],
)
def test_words_that_need_no_map(words, expected):
    assert read_grades(words, {}, lambda _index, message: ValueError(message)) == expected


def test_both_columns_of_grades_use_the_same_letters(written):
    """The forced grades alone could be those of SimpleQA, where C is a refusal."""
    rows = [("a", "N", "C"), ("b", "I", ""), ("c", "N", "C")]
    read = written(*({"id": id_, "grade": first, "forced_grade": forced} for id_, first, forced in rows))
    assert [one.outcome().wrong for one in read.passes] == [False, True, False]


def test_every_unknown_word_is_named_once_with_the_line_of_the_first(written):
    rows = [{"id": str(n), "grade": word} for n, word in enumerate(["A", "Fine", "so so", "fine", "so so"])]
    with pytest.raises(FirstPassError, match=r"line 2, column 'grade': .*got 'Fine'; also unknown: 'so so'") as caught:
        written(*rows)
    assert caught.value.remedy == ("map", ("Fine=GRADE", "so so=GRADE"))
    assert grades(written(*rows, words={"fine": "correct", "so so": "unscored"})) == [C, C, U, C, U]


def test_column_of_many_unknown_values_gives_no_list_of_words(written):
    rows = [{"id": str(n), "grade": f"remark {n}"} for n in range(11)]
    with pytest.raises(FirstPassError, match="has 11 such values") as caught:
        written(*rows)
    assert caught.value.remedy == ("column", ("grade=NAME",))


def test_list_of_different_grades_asks_for_a_path(written):
    with pytest.raises(FirstPassError, match=r"got \['A', 'B'\]; name one value by its path.*NAME\.0"):
        written({"id": "a", "grade": ["A", "B"]})
    assert grades(written({"id": "a", "grade": ["A", "B"]}, columns={"grade": "grade.1"})) == [I]


@given(st.sampled_from(sorted({**WORDS, **RIGHT_OR_WRONG})), st.sampled_from([str.upper, str.title, str.lower]))
def test_known_words_are_read_in_any_case_and_with_white_space(word, change):
    cell = f"  {change(word).replace('_', ' ')}\n"
    (grade,) = read_grades([cell], {}, lambda _index, message: ValueError(message))
    assert grade == {**WORDS, **RIGHT_OR_WRONG}[word]


# --- What the forced pass needs


def test_aliases_and_choices_of_a_row_are_kept_for_the_forced_pass(written):
    row = {
        "id": "a",
        "question": "Which?",
        "answer": "B",
        "aliases": ["azure"],
        "choices": ["red", "blue"],
        "grade": "C",
    }
    (one,) = written(row).passes
    assert (one.question.gold, one.question.aliases, one.question.choices) == ("blue", ("azure",), ("red", "blue"))


def test_choices_that_the_question_names_are_not_shown_again(written):
    row = {"id": "a", "question": "red or blue?", "answer": "blue", "choices": ["red", "blue"], "grade": "C"}
    assert written(row).passes[0].question.choices == ()


def test_column_of_choices_that_cannot_be_read_is_not_used(written):
    read = written({"id": "a", "grade": "C", "choices": {"message": "hello"}})
    assert (grades(read), read.not_used) == ([R], ("choices",))


def test_table_that_lacks_aliases_says_so(written):
    assert "not_in_table" in codes(written({"id": "a", "gold": ["x", "y"], "grade": "C"}))
    assert "not_in_table" not in codes(written({"id": "a", "gold": ["x", "y"], "grade": "A"}))


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "\u200b", "no", "it is so"]), st.sampled_from(["A", "B", "C", ""])),
        min_size=1,
        max_size=20,
    )
)
def test_every_row_is_counted_once_and_no_empty_reply_is_scored(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "m.jsonl"
    lines = [json.dumps({"id": str(n), "reply": reply, "grade": grade}) for n, (reply, grade) in enumerate(rows)]
    path.write_text("\n".join(lines))
    passes = import_file(path, None, ReadOptions()).passes
    (tally,) = tallies(passes)
    assert tally.rows == len(rows) == len(to_outcomes(passes))
    scored = [grade for reply, grade in rows if reply in ("no", "it is so") and grade]
    assert (tally.correct, tally.incorrect, tally.refused) == tuple(scored.count(letter) for letter in "ABC")
    assert tally.unused_grades == sum(bool(grade) for reply, grade in rows if reply in ("", "\u200b"))


def test_errors_are_of_this_package(written):
    with pytest.raises(RefusalIndexError):
        written({"id": "a", "grade": "E"})
