"""Sheets of grades to label, and two graders on the same replies."""

from __future__ import annotations

import csv
import json
from collections import Counter

import numpy as np
import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.labels import SHEET, audit_sheet, changes_document, grade_changes, read_labels, write_sheet
from refusal_index.stats import GraderLabels

# --- Sheets of labels

N = 300


SOURCE = ("m", "d")


def table(variants=("low", "high"), model="m", seed=1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    forced = rng.random(N) < 0.7
    rows = []
    for number, variant in enumerate(variants):
        refused, wrong = rng.random(N) < 0.4 + 0.2 * number, rng.random(N) < 0.2
        for i in range(N):
            grade = Grade.INCORRECT if (forced if refused[i] else wrong)[i] else Grade.CORRECT
            outcome = Outcome(
                bool(refused[i]),
                grade is Grade.INCORRECT,
                Grade.REFUSED if refused[i] else grade,
                grade if refused[i] else None,
                first_reply="no" if refused[i] else "=1+1",
                forced_reply=f"forced {i}" if refused[i] else None,
            )
            rows.append((Identification(model, "d", variant), Question(f"q{i}", f"question {i}", "gold"), outcome))
    unscored = Outcome(None, None, Grade.UNSCORED, unscored_reason="first_empty")
    rows.append((Identification(model, "d", "low"), Question("lost", "?", "!"), unscored))
    return outcome_table(rows)


def test_a_sheet_holds_equal_numbers_of_each_pass_and_grade():
    sheet = audit_sheet(table(), 100, seed=0)
    assert tuple(sheet.columns) == SHEET
    kinds = Counter(sheet.select("pass", "grade").iter_rows())
    assert set(kinds.values()) == {25}
    assert len(kinds) == 4
    assert sheet["human_grade"].null_count() == 100


def test_shortfall_of_scarce_strata_goes_to_the_others():
    few = table().filter((pl.col("forced_grade") != "correct").fill_null(value=True) | (pl.col("question_id") == "q5"))
    sheet = audit_sheet(few, 100, seed=0)
    assert sheet.height == 100
    assert sheet.filter((pl.col("pass") == "forced") & (pl.col("grade") == "correct")).height <= 1


def test_sheet_lists_counted_answers_and_shared_forced_answers_once():
    outcomes = table()
    sheet = audit_sheet(outcomes, 10_000, seed=0)
    forced = sheet.filter(pl.col("pass") == "forced")
    assert forced["question_id"].is_unique().all()
    refused_somewhere = outcomes.filter(pl.col("refused"))["question_id"].n_unique()
    assert forced.height == refused_somewhere
    assert sheet.filter(pl.col("pass") == "first").height == outcomes.filter(~pl.col("refused")).height
    assert set(forced["reply"].str.split(" ").list.first()) == {"forced"}
    assert "lost" not in set(sheet["question_id"])


def test_same_seed_gives_the_same_sheet():
    assert audit_sheet(table(), 50, seed=3).equals(audit_sheet(table(), 50, seed=3))
    assert not audit_sheet(table(), 50, seed=3).equals(audit_sheet(table(), 50, seed=4))


def two_models() -> pl.DataFrame:
    return pl.concat([table(), table(model="other", seed=2)])


def test_sheet_of_two_models_is_balanced_and_shares_no_answers():
    outcomes = two_models()
    kinds = Counter(audit_sheet(outcomes, 80, seed=0).select("model", "pass", "grade").iter_rows())
    assert len(kinds) == 8
    assert set(kinds.values()) == {10}
    forced = audit_sheet(outcomes, 10_000, seed=0).filter(pl.col("pass") == "forced")
    refused_somewhere = outcomes.filter(pl.col("refused")).select("model", "question_id").unique()
    assert forced.height == refused_somewhere.height > refused_somewhere["question_id"].n_unique()


def labelled(tmp_path, human=lambda row: row["grade"], change=lambda rows: rows, outcomes=None):
    """Write a sheet, label it as a person would in a spreadsheet, and return its path."""
    path = tmp_path / "sheet.csv"
    write_sheet(audit_sheet(table() if outcomes is None else outcomes, 80, seed=0), path)
    with path.open(newline="") as file:
        rows = [{**row, "human_grade": human(row)} for row in csv.DictReader(file)]
    rows = change(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path, rows


def test_formula_reply_is_escaped_in_the_sheet(tmp_path):
    _, rows = labelled(tmp_path)
    assert {row["reply"] for row in rows if row["pass"] == "first"} == {"'=1+1"}


def test_labels_are_counted_by_pass_grade_and_verdict(tmp_path):
    def human(row):
        if row["question_id"].endswith("7"):
            return "refused"
        flip = row["question_id"].endswith("3")
        return {"correct": "B" if flip else "A", "incorrect": "Correct" if flip else "wrong"}[row["grade"]]

    path, rows = labelled(tmp_path, human)
    labels = read_labels(path, table())[SOURCE]
    counted = Counter(
        (row["pass"], row["grade"], row["question_id"].endswith("3")) for row in rows if row["human_grade"] != "refused"
    )
    for name, found in (("forced", labels.refused), ("first", labels.answered)):
        assert found == GraderLabels(
            graded_wrong_is_wrong=counted[name, "incorrect", False],
            graded_wrong_is_right=counted[name, "incorrect", True],
            graded_right_is_wrong=counted[name, "correct", True],
            graded_right_is_right=counted[name, "correct", False],
        )
    assert labels.neither == sum(row["human_grade"] == "refused" for row in rows) > 0
    assert labels.total + labels.neither == 80


def test_labels_are_read_per_model(tmp_path):
    other = {"correct": "incorrect", "incorrect": "correct"}
    path, rows = labelled(
        tmp_path, lambda row: other[row["grade"]] if row["model"] == "other" else row["grade"], outcomes=two_models()
    )
    labels = read_labels(path, two_models())
    assert set(labels) == {("m", "d"), ("other", "d")}
    assert labels["m", "d"].total == labels["other", "d"].total == 40
    for one, column in ((labels["m", "d"], 1), (labels["other", "d"], 0)):
        for errors in (one.refused.errors, one.answered.errors):
            assert errors[:, column].tolist() == [10, 10]
            assert errors[:, 1 - column].tolist() == [0, 0]
    assert len(rows) == 80


def without(*names):
    return lambda rows: [{name: cell for name, cell in row.items() if name not in names} for row in rows]


def test_sheet_may_omit_columns_with_a_single_value(tmp_path):
    path, _ = labelled(tmp_path)
    assert labelled(tmp_path, change=without("model", "dataset"))[1][0].keys() == set(SHEET) - {"model", "dataset"}
    assert read_labels(path, table())[SOURCE].total == 80


@pytest.mark.parametrize("name", ["model", "variant"])
def test_sheet_must_name_columns_with_several_values(tmp_path, name):
    path, _ = labelled(tmp_path, change=without(name), outcomes=two_models())
    with pytest.raises(OutcomeTableError, match=f"expected a column '{name}' since the run has several {name}s"):
        read_labels(path, two_models())


def test_labels_without_any_right_or_wrong_are_rejected(tmp_path):
    path, _ = labelled(tmp_path, lambda _row: "refused")
    with pytest.raises(OutcomeTableError, match="got 80 labels, none of them right or wrong"):
        read_labels(path, table())


def test_unlabelled_rows_are_skipped_and_no_labels_raises(tmp_path):
    path, rows = labelled(tmp_path, lambda row: row["grade"] if row["pass"] == "first" else "")
    labels = read_labels(path, table())[SOURCE]
    assert labels.total == sum(row["pass"] == "first" for row in rows)
    assert not labels.refused.errors.any()
    nothing, _ = labelled(tmp_path, lambda _row: "")
    with pytest.raises(OutcomeTableError, match="expected rows with a human_grade, got none"):
        read_labels(nothing, table())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"human_grade": "maybe"},
            r"line 2, column 'human_grade': expected correct, incorrect or refused.*got 'maybe'",
        ),
        ({"question_id": "elsewhere"}, r"line 2: expected a graded answer of this run, got question_id 'elsewhere'"),
        ({"grade": "unscored"}, r"line 2: expected the grade that the run has"),
    ],
)
def test_unusable_label_row_error_names_the_line(tmp_path, change, says):
    path, _ = labelled(tmp_path, change=lambda rows: [{**rows[0], **change}, *rows[1:]])
    with pytest.raises(OutcomeTableError, match=says):
        read_labels(path, table())


def test_missing_label_column_error_names_the_column(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("question_id,verdict\nq1,A\n")
    with pytest.raises(OutcomeTableError, match="expected a column 'human_grade', got 'question_id', 'verdict'"):
        read_labels(path, table())


# --- Agreement of graders

RIGHT, WRONG, REFUSED, UNKNOWN = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED


def graded_table(*rows: tuple[str, str, Grade, Grade | None]):
    """Build an outcome table from variant, question, first grade and forced grade."""
    return outcome_table(
        (Identification("m", "d", variant), Question(name, f"{name}?", "!"), outcome(first, forced))
        for variant, name, first, forced in rows
    )


def outcome(first: Grade, forced: Grade | None) -> Outcome:
    counts = forced if first is REFUSED else first
    return Outcome(
        refused=None if first is UNKNOWN else first is REFUSED,
        wrong=None if counts in {None, UNKNOWN} else counts is not RIGHT,
        first_grade=first,
        forced_grade=forced,
        unscored_reason="x" if counts in {None, UNKNOWN} else None,
        forced_reply="it" if forced else None,
    )


BEFORE = graded_table(
    ("low", "a", RIGHT, None), ("low", "b", WRONG, None), ("low", "c", REFUSED, WRONG), ("low", "d", WRONG, None)
)
NOW = graded_table(
    ("low", "a", RIGHT, None), ("low", "b", RIGHT, None), ("low", "c", REFUSED, RIGHT), ("low", "d", REFUSED, None)
)


def test_grades_and_cells_are_counted():
    changes = grade_changes(BEFORE, NOW)
    assert changes.first.counts == {
        ("correct", "correct"): 1,
        ("incorrect", "correct"): 1,
        ("incorrect", "refused"): 1,
        ("refused", "refused"): 1,
    }
    assert changes.first.kappa.agreement == 0.5
    assert changes.forced.counts == {("incorrect", "correct"): 1}
    assert changes.cells == {
        ("answered_wrong", "answered_right"): 1,
        ("answered_wrong", "unscored"): 1,
        ("refused_wrong", "refused_right"): 1,
    }
    assert changes.n == 4
    assert changes.first.grades == ("correct", "incorrect", "refused")


def test_forced_answer_shared_by_variants_counts_once():
    both = graded_table(("low", "c", REFUSED, WRONG), ("high", "c", REFUSED, WRONG))
    changes = grade_changes(both, both)
    assert (changes.first.kappa.n, changes.forced.kappa.n, changes.cells) == (2, 1, {})


def test_rows_in_only_one_table_are_excluded():
    assert grade_changes(BEFORE, NOW.filter(question_id="a")).n == 1


def test_agreement_is_undefined_without_forced_answers():
    kappa = grade_changes(BEFORE.head(2), NOW.head(2)).forced.kappa
    assert (kappa.n, kappa.agreement, kappa.status) == (0, None, "undefined")


def test_changes_document_is_json_with_every_count():
    document = changes_document(grade_changes(BEFORE, NOW))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["cells"][0] == {"before": "answered_wrong", "now": "answered_right", "count": 1}
    assert document["first"]["estimate"] == pytest.approx(1 / 3)
