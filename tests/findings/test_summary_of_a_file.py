"""A table in a file gives the same summary, to the bit, as in memory, though most of it is never read at once."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.render.making import rows
from tests.tiers import one_fast

from refusal_index.data.outcome_table import SCHEMA
from refusal_index.data.rates import each_group, variant_groups
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.labels import grade_changes
from refusal_index.findings.summary import summarise
from refusal_index.render.sections import with_sections
from refusal_index.render.summary import summary_document
from refusal_index.runs.writing import as_json

NUMBER = pl.col("question_id").str.slice(1).cast(pl.Int64)


def unscored(table: pl.DataFrame) -> pl.DataFrame:
    gone = NUMBER % 9 == 4
    return table.with_columns(
        *(pl.when(~gone).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "first_grade")),
        unscored_reason=pl.when(gone).then(pl.lit("first_truncated")),
    )


def never_forced(table: pl.DataFrame) -> pl.DataFrame:
    refused = pl.col("refused")
    return table.with_columns(
        *(pl.when(~refused).then(pl.col(name)).alias(name) for name in ("wrong", "forced_grade", "forced_reply")),
        unscored_reason=pl.when(refused).then(pl.lit("forced_not_asked")),
    )


TABLES = {
    "one draw": rows(150),
    "repeated draws": rows(120, draws=3),
    "some repeated draws": rows(120, draws=2).filter((pl.col("draw") == 0) | (NUMBER < 70)),
    "unscored": unscored(rows(150)),
    "never forced": never_forced(rows(150)),
    "no variant": rows(100, variants=("low",)).with_columns(variant=pl.lit(None, pl.String)),
    "clusters and weights": rows(150).with_columns(cluster=pl.col("topic"), weight=1.0 + NUMBER % 3),
    "probabilities": rows(150).with_columns(p_answering=NUMBER / 200, confidence=NUMBER % 7 / 7),
    "variants in turn": rows(60).sort("question_id", maintain_order=True),
    "no texts": rows(80).with_columns(question=None, gold=None, first_reply=None, forced_reply=None).cast(dict(SCHEMA)),
    "a text that one variant lacks": rows(80).with_columns(
        question=pl.when(pl.col("variant") != "low").then(pl.col("question"))
    ),
    "several models": pl.concat([rows(50), rows(40, model="other"), rows(40, dataset="another", variants=("low",))]),
    "nothing": rows(1).clear(),
}


@one_fast("table", TABLES.values(), ids=TABLES)
def test_a_table_in_a_file_gives_the_same_summary(table, tmp_path):
    table.write_parquet(tmp_path / "table.parquet", row_group_size=37)
    tables = table, pl.scan_parquet(tmp_path / "table.parquet")
    in_memory, in_file = (as_json(summary_document(with_sections(summarise(one, penalty=0.3), one))) for one in tables)
    assert in_memory == in_file


def test_groups_of_a_file_are_those_of_the_table_with_the_columns_that_were_asked_for():
    table, names = TABLES["several models"], ("question_id", "draw", "refused", "forced_reply")
    groups, lazily = variant_groups(table), list(each_group(table.lazy(), names))
    assert [(one.model, one.dataset, one.variant) for one in lazily] == [
        (one.model, one.dataset, one.variant) for one in groups
    ]
    for one, other in zip(groups, lazily, strict=True):
        assert_frame_equal(one.outcomes.select(names[:3]), other.outcomes.select(names[:3]))
        assert set(other.outcomes.columns) == {*names, "model", "dataset", "variant"}
        assert other.outcomes["forced_reply"].unique().to_list() == [""]


def test_two_questions_under_one_id_are_refused_in_a_file_too():
    other = (pl.col("variant") == "low") & (pl.col("question_id") == "q3")
    table = rows(40).with_columns(question=pl.when(other).then(pl.lit("Who?")).otherwise("question"))
    with pytest.raises(OutcomeTableError, match="'q3' stands for 'What is the name of thing number 3"):
        summarise(table)
    with pytest.raises(OutcomeTableError, match="question_id 'q3' stands for"):
        summarise(table.lazy())


def test_grades_are_held_against_those_of_a_file(tmp_path: Path):
    before, now = rows(60, draws=2), rows(60, draws=2, seed=1, rho=0.2)
    now.write_parquet(tmp_path / "now.parquet", row_group_size=11)
    found = grade_changes(before, pl.scan_parquet(tmp_path / "now.parquet"))
    assert found == grade_changes(before, now)
    assert found.n == before.height
    assert found.cells
