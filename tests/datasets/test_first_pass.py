"""First passes of others, and files that hold both passes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import Analysis
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import (
    FirstPass,
    check_order,
    from_outcomes,
    of_one_model,
    questions_to_force,
    self_contained,
    to_outcomes,
    with_forced,
)
from refusal_index.data.imports import ReadOptions, detected_format, read_first_passes
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.data.rates import contingency_table
from refusal_index.data.source_files import SourceFile
from refusal_index.findings.tallies import tallies
from refusal_index.render.summary import tally_blocks
from refusal_index.runs.reuse import import_file, import_first, import_forced
from refusal_index.stats import ContingencyTable

# --- First passes as an outcome table

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741


def first_pass(question_id: str, grade: Grade | None, **changes: object) -> FirstPass:
    first = FirstPass(Question(question_id, f"{question_id}?", "so"), "m", "d", grade, reply="said", variant="low")
    return replace(first, **changes)


PASSES = (
    first_pass("a", C),
    first_pass("b", I),
    first_pass("c", R),
    first_pass("d", U, reason="request_failed"),
    first_pass("e", None),
    first_pass("f", R, question=Question("f", "f?", None)),
)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_first_passes_round_trip_as_an_outcome_table(tmp_path, suffix):
    path = tmp_path / f"first{suffix}"
    write_outcomes(to_outcomes(PASSES), path)
    file = SourceFile.read(path)
    assert detected_format(file) == "outcomes"
    assert read_first_passes(file, "outcomes", ReadOptions()).passes == PASSES


def test_outcome_table_gives_reasons_for_missing_grades():
    table = to_outcomes(PASSES)
    assert table.select("refused", "wrong", "unscored_reason").rows() == [
        (False, False, None),
        (False, True, None),
        (True, None, "forced_not_asked"),
        (None, None, "request_failed"),
        (False, None, "first_not_graded"),
        (True, True, None),
    ]
    assert table["forced_grade"].to_list() == [None] * 5 + ["incorrect"], "no answer to it can be right"
    assert table["gold"].to_list()[-1] is None


def test_self_contained_question_text_includes_the_context():
    passes = first_pass("a", R, question=Question("a", "Who?", "I", context="It was I."))
    assert self_contained(passes).question == Question("a", "It was I.\n\nWho?", "I")
    assert self_contained(PASSES[0]) is PASSES[0]


def test_forced_answers_are_joined_without_changing_the_first_pass():
    forced = Outcome(True, False, R, C, first_reply="<answer>UNANSWERED</answer>", forced_reply="so")
    table = to_outcomes(PASSES, {"c": forced, "a": forced})
    assert table.row(2, named=True) | {"first_reply": "said", "forced_reply": "so", "wrong": False} == table.row(
        2, named=True
    )
    assert table.row(0, named=True)["forced_reply"] is None, "what was not refused needs no forcing"


def test_readings_in_an_outcome_table_survive_a_forced_pass():
    """The forced pass takes every first reply for a refusal by the tag, which says nothing about the first reply."""
    readings = ("unclear", "wording", None)
    outcomes = (Outcome(False, True, I), Outcome(True, None, R), Outcome(True, None, R))
    table = outcome_table(
        (Identification("m", "d", "v"), Question(name, f"{name}?", "so"), replace(outcome, reading=reading))
        for name, outcome, reading in zip("abc", outcomes, readings, strict=True)
    )
    forced = Outcome(True, False, R, C, forced_reply="so", reading="tag")
    again = to_outcomes(from_outcomes(table), {"b": forced, "c": forced})
    assert again["reading"].to_list() == list(readings)
    assert again["wrong"].to_list() == [True, False, False]


def test_variants_share_a_forced_question_and_draws_do_not():
    passes = [first_pass("c", R), first_pass("c", R, variant="high"), first_pass("c", R, draw=1)]
    assert [question.question_id for question in questions_to_force(passes, "x")] == ["c", "c (draw 2)"]


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ([first_pass("a", C)], "expected refused questions, got none.*refusal="),
        (
            [first_pass("a", R, question=Question("a", "", "so"))],
            "expected the question of every refused question, got 1 of",
        ),
        (
            [first_pass("a", R, question=Question("a", "a?", ""))],
            r"expected the answer.*'a'.*columns=.\"answer\": \"NAME\"",
        ),
        (
            [first_pass("a", R), first_pass("a", R, variant="x", question=Question("a", "b?", "so"))],
            "two with different texts",
        ),
    ],
)
def test_questions_that_cannot_be_forced_are_rejected(passes, message):
    with pytest.raises(DatasetError, match=message):
        questions_to_force(passes, "x.csv")


def test_one_model_is_chosen_by_its_name():
    passes = [first_pass("a", C), first_pass("a", R, model="n")]
    assert of_one_model(passes, "x", "n") == (passes[1],)
    for name, told in ((None, r"2 models \(m, n\); choose one with name=\"m\""), ("N", "got 'N'; did you mean 'n'")):
        with pytest.raises(DatasetError, match=told):
            of_one_model(passes, "x", name)
    with pytest.raises(DatasetError, match="on 2 datasets"):
        of_one_model([first_pass("a", C), first_pass("a", C, dataset="e")], "x", None)


def test_first_pass_metrics_match_hand_calculation():
    passes = (
        [first_pass(f"c{n}", C) for n in range(30)]
        + [first_pass(f"i{n}", I) for n in range(50)]
        + [first_pass("r", R)] * 20
    )
    (tally,) = tallies(passes, Analysis(weighted_score_p=0.5))
    c, r = 0.3, 0.2
    expected = (c / (1 - r), 2 * c / (2 - r), c - 0.5 * (1 - r))
    assert [metric.estimate for metric in tally.metrics] == pytest.approx(expected)
    assert (tally.rows, tally.to_force, tally.unscored) == (100, 20, 0)


def test_metrics_are_left_out_where_the_unscored_would_mislead():
    (tally,) = tallies(PASSES)
    assert tally.metrics == ()
    assert (tally.correct, tally.incorrect, tally.refused, tally.unscored, tally.to_force) == (1, 1, 2, 2, 1)
    assert tally.reasons == {"request_failed": 1, "first_not_graded": 1}


def test_a_table_of_two_columns_is_a_first_pass_without_questions(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("refused,wrong\ntrue,\nfalse,true\n")
    passes = from_outcomes(read_outcomes(path))
    assert [found.grade for found in passes] == [R, I]
    with pytest.raises(DatasetError, match="expected the question"):
        questions_to_force(passes, "two.csv")


# --- Files with both passes

COUNTS = ContingencyTable(50, 14, 60, 76)  # 64 refused


def two_pass_rows(counts: ContingencyTable = COUNTS) -> list[tuple[str, bool, bool]]:
    """Return id, refused, and correct under forced answering."""
    cells = ((True, False), (True, True), (False, False), (False, True))
    each = [cell for cell, count in zip(cells, counts.counts, strict=True) for _ in range(count)]
    return [(f"q{number}", refused, correct) for number, (refused, correct) in enumerate(each)]


def csv_of(path: Path, header: str, rows: Iterable[tuple[object, ...]]) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def read(path: Path, **options: object) -> tuple[FirstPass, ...]:
    file = SourceFile.read(path)
    return read_first_passes(file, detected_format(file), ReadOptions(**options)).passes  # type: ignore[arg-type]


def tally_text(passes: Iterable[FirstPass]) -> str:
    return " ".join(block for block in tally_blocks(tallies(passes)) if isinstance(block, str))


@pytest.mark.parametrize("header", ["id,refused,correct", "id,refused,forced_correct,correct", "id,refused,grade"])
def test_rows_with_both_passes_keep_the_forced_pass(tmp_path: Path, header: str) -> None:
    rows: list[tuple[object, ...]] = [(*row, row[-1]) if header.count(",") == 3 else row for row in two_pass_rows()]
    passes = read(csv_of(tmp_path / "m.csv", header, rows))
    assert contingency_table(to_outcomes(passes)) == COUNTS
    (tally,) = tallies(passes)
    assert (tally.refused, tally.forced, tally.to_force) == (64, 64, 0)
    assert "64 refused questions have their forced answers" in tally_text(passes)


def test_refusals_that_are_also_marked_wrong_are_reported(tmp_path: Path) -> None:
    """As in one-pass files that count refusals as wrong: these marks must not be used silently."""
    path = csv_of(tmp_path / "m.csv", "id,refused,correct", two_pass_rows(ContingencyTable(20, 0, 10, 30)))
    passes = read(path)
    assert {one.outcome().unscored_reason for one in passes if one.grade is Grade.REFUSED} == {"forced_not_asked"}
    assert "20 refused questions are also marked as wrong" in tally_text(passes)
    named = read(path, columns={"correct": "correct", "forced_correct": "correct"})
    assert contingency_table(to_outcomes(named)) == ContingencyTable(20, 0, 10, 30)
    assert "also marked as wrong" not in tally_text(named)


def test_grade_flags_do_not_mark_refusals_as_wrong(tmp_path: Path) -> None:
    rows = [("a", 0, 0, 1), ("b", 1, 0, 0), ("c", 0, 1, 0)]
    passes = read(csv_of(tmp_path / "m.csv", "id,is_correct,is_incorrect,is_not_attempted", rows))
    assert [one.grade for one in passes] == [Grade.REFUSED, Grade.CORRECT, Grade.INCORRECT]
    assert "also marked as wrong" not in tally_text(passes)


def test_unanswerable_question_is_wrong_whatever_the_forced_grade(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "m.csv", "id,refused,correct,answerable", [("a", 1, 1, 1), ("b", 1, 1, 0)])
    assert to_outcomes(read(path))["wrong"].to_list() == [False, True]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_outcome_table_with_both_passes_is_imported_unchanged(tmp_path: Path, suffix: str) -> None:
    table = to_outcomes(read(csv_of(tmp_path / "m.csv", "id,refused,correct", two_pass_rows())))
    write_outcomes(table, tmp_path / f"o{suffix}")
    again = import_file(tmp_path / f"o{suffix}", None, ReadOptions()).passes
    assert to_outcomes(again).equals(table)


def test_two_column_table_of_both_passes_keeps_wrong(tmp_path: Path) -> None:
    """Such a table does not say whether a forced answer was another refusal, and neither does the import."""
    rows = [(refused, not correct) for _, refused, correct in two_pass_rows()]
    table = to_outcomes(read(csv_of(tmp_path / "m.csv", "refused,wrong", rows)))
    assert contingency_table(table) == COUNTS
    assert table["forced_grade"].null_count() == table.height


def joined(first: Path, second: Path, options: ReadOptions | None = None) -> tuple[FirstPass, ...]:
    chosen = options or ReadOptions()
    read_first = import_file(first, None, chosen).read
    return with_forced(read_first.passes, import_forced(read_first, second, None, chosen).passes, str(second))


def two_files(tmp_path: Path, *, shuffled: bool = True) -> tuple[Path, Path]:
    rows = two_pass_rows()
    first = [(name, "C" if refused else "A" if correct else "B") for name, refused, correct in rows]
    second = [(name, "A" if correct else "B") for name, refused, correct in rows if refused]
    return (
        csv_of(tmp_path / "first.csv", "id,grade", first),
        csv_of(tmp_path / "second.csv", "id,grade", second[::-1] if shuffled else second),
    )


def test_one_file_per_pass_is_joined_by_id(tmp_path: Path) -> None:
    first, second = two_files(tmp_path)
    passes = joined(first, second)
    assert contingency_table(to_outcomes(passes)) == COUNTS
    assert {one.model for one in passes} == {"first"}


def test_questions_missing_from_the_second_file_stay_unscored(tmp_path: Path) -> None:
    first, second = two_files(tmp_path, shuffled=False)
    lines = second.read_text().splitlines()
    second.write_text("\n".join([*lines[:-1][:2], lines[2].split(",")[0] + ",", *lines[3:-1]]) + "\n")
    table = to_outcomes(joined(first, second))
    reasons = table["unscored_reason"].drop_nulls().to_list()
    assert sorted(reasons) == ["forced_not_asked", "forced_not_graded"]
    assert table.filter(pl.col("refused"))["wrong"].null_count() == 2


def test_refusal_in_the_second_file_counts_as_refused_again(tmp_path: Path) -> None:
    first = csv_of(tmp_path / "first.csv", "id,grade", [("a", "C"), ("b", "A")])
    second = csv_of(tmp_path / "second.csv", "id,grade", [("a", "C")])
    row = to_outcomes(joined(first, second)).row(0, named=True)
    assert (row["wrong"], row["forced_grade"]) == (True, "refused")


def test_shared_forced_pass_is_applied_to_every_variant(tmp_path: Path) -> None:
    first = csv_of(
        tmp_path / "first.csv", "id,variant,grade", [("a", "low", "C"), ("a", "high", "C"), ("b", "low", "A")]
    )
    second = csv_of(tmp_path / "second.csv", "id,grade", [("a", "B")])
    assert to_outcomes(joined(first, second))["wrong"].to_list() == [True, True, False]


def test_a_second_file_of_another_model_is_rejected_unless_a_name_is_given(tmp_path: Path) -> None:
    first = csv_of(tmp_path / "first.csv", "id,grade,model", [("a", "C", "gpt-4o"), ("b", "A", "gpt-4o")])
    second = csv_of(tmp_path / "second.csv", "id,grade,model", [("a", "B", "llama")])
    with pytest.raises(DatasetError, match=r"answers of gpt-4o, got those of llama: .* with name=\"gpt-4o\""):
        joined(first, second)
    named = to_outcomes(joined(first, second, ReadOptions(name="gpt-4o")))
    assert named["wrong"].to_list() == [True, False]


@pytest.mark.parametrize(("columns", "rows"), [("id,grade", [("a", "A")]), ("id,grade,model", [("a", "A", "m")])])
def test_forced_answers_of_one_model_are_not_used_for_another(tmp_path: Path, columns: str, rows: list) -> None:
    """Each model has refusals of its own, and the second file has answers of one model at most."""
    first = csv_of(tmp_path / "first.csv", "id,grade,model", [("a", "C", "m"), ("a", "C", "n")])
    second = csv_of(tmp_path / "second.csv", columns, rows)
    with pytest.raises(DatasetError, match="expected the forced answers of 'm', 'n', got those of"):
        joined(first, second)


def test_a_file_is_not_its_own_second_file(tmp_path: Path) -> None:
    first, _ = two_files(tmp_path)
    with pytest.raises(DatasetError, match=r"got .* again"):
        check_order(read(first), first, tmp_path / "." / first.name)


def test_refusals_cannot_be_recognised_without_replies(tmp_path: Path) -> None:
    """The counts would be the same as without the option, which nothing would say."""
    first, _ = two_files(tmp_path)
    with pytest.raises(DatasetError, match="refusal: expected replies"):
        import_first(first, None, ReadOptions(refusal="wording"))


def test_unrelated_pass_files_are_rejected(tmp_path: Path) -> None:
    first, second = two_files(tmp_path)
    second.write_text("id,grade\nx1,A\nx2,B\n")
    with pytest.raises(DatasetError, match=r"expected the forced answers .* got 0 of 64 .*q0.*x1.*question_id"):
        joined(first, second)
    second.write_text("id,grade\nq0,A\nq0,B\n")
    with pytest.raises(DatasetError, match=r"lines 2, 3: expected every question once, got the id 'q0' 2 times"):
        joined(first, second)


NESTED = [
    {"id": "a", "doc": {"text": "Who?", "gold": ["I"]}, "result": {"grades": [{"verdict": "Pass"}], "p": 0.25}},
    {"id": "b", "doc": {"text": "What?", "gold": ["It"]}, "result": {"grades": [{"verdict": "OK"}], "p": 0.75}},
    {"id": "c", "doc": {"text": "When?", "gold": ["Now"]}, "result": {"grades": [{"verdict": "Nope"}]}},
]
PATHS = {"grade": "result.grades.0.verdict", "question": "doc.text", "answer": "doc.gold", "confidence": "result.p"}
WORDS = {"pass": "refused", "ok": "correct", "nope": "incorrect"}


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet"])
def test_nested_paths_are_followed_and_grade_words_translated(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"m.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    elif form == "json":
        path.write_text(json.dumps({"results": NESTED}))
    elif form == "parquet":
        pl.DataFrame(NESTED).write_parquet(path)
    else:
        frame = pl.DataFrame(
            [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in NESTED]
        )
        frame.write_csv(path)
    passes = read(path, columns=PATHS, words=WORDS)
    assert [one.grade for one in passes] == [Grade.REFUSED, Grade.CORRECT, Grade.INCORRECT]
    assert (passes[0].question.text, passes[0].question.gold) == ("Who?", "I")
    assert to_outcomes(passes)["confidence"].to_list() == [0.25, 0.75, None]


def test_unknown_nested_path_raises(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    with pytest.raises(DatasetError, match=r"expected a column 'result.verdict' with the grade"):
        read(path, columns={"grade": "result.verdict"})


def test_imported_probabilities_round_trip_in_separate_columns(tmp_path: Path) -> None:
    path = csv_of(
        tmp_path / "m.csv", "id,grade,p,conf", [("a", "A", 0.9, 1), ("b", "B", "", "NaN"), ("c", "C", 0, 0.5)]
    )
    passes = read(path, columns={"p_answering": "p", "confidence": "conf"})
    table = to_outcomes(passes)
    assert table["p_answering"].to_list() == [0.9, None, 0.0]
    assert table["confidence"].to_list() == [1.0, None, 0.5]
    for suffix in ("csv", "jsonl", "parquet"):
        write_outcomes(table, tmp_path / f"o.{suffix}")
        assert read_outcomes(tmp_path / f"o.{suffix}").equals(table), suffix
    assert "confidence" not in to_outcomes(read(path)).columns, "present only if requested"


@pytest.mark.parametrize("cell", ["90", "-0.1", "high"])
def test_invalid_probability_is_named_with_its_line(tmp_path: Path, cell: str) -> None:
    path = csv_of(tmp_path / "m.csv", "id,grade,conf", [("a", "A", 0.5), ("b", "B", cell)])
    with pytest.raises(
        DatasetError, match=r"line 3, column 'conf': expected a probability in \[0, 1\], got .*percentage"
    ):
        read(path, columns={"confidence": "conf"})


def test_second_file_of_several_models_is_joined_per_model(tmp_path: Path) -> None:
    first = csv_of(tmp_path / "first.csv", "id,model,grade", [("a", "m", "C"), ("b", "m", "A")])
    second = csv_of(tmp_path / "second.csv", "id,model,grade", [("a", "n", "A"), ("a", "m", "B")])
    assert to_outcomes(joined(first, second))["wrong"].to_list() == [True, False]
