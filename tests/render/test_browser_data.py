"""What the page holds of the questions: recomputed row by row in plain Python."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.render.report.runs import Cut, embed_questions, payload, questions_of, safe_json, sampled
from refusal_index.stats import CELL_NAMES
from tests.render.making import HOSTILE, VARIANTS, counts_table, report_run, rows


def _cell(row: dict[str, Any]) -> str:
    if row["refused"] is None or row["wrong"] is None:
        return "unscored"
    return f"{'refused' if row['refused'] else 'answered'}_{'wrong' if row['wrong'] else 'right'}"


def _with_gaps(table: pl.DataFrame) -> pl.DataFrame:
    gap = pl.Series(np.random.default_rng(3).random(table.height) < 0.05)
    gone = [pl.when(~gap).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "first_grade")]
    return table.with_columns(gone).with_columns(unscored_reason=pl.when(gap).then(pl.lit("first_truncated")))


@pytest.mark.parametrize("draws", [1, 3])
def test_flags_order_and_rows_recomputed(draws: int) -> None:
    table = _with_gaps(rows(60, draws=draws))
    run = report_run(table)
    page = payload(questions_of([run]), Cut(4000))
    by_question: dict[str, list[dict[str, Any]]] = {}
    for row in table.rows(named=True):
        by_question.setdefault(row["question_id"], []).append(row)
    rates = [v.metric("refusal_rate").estimate or 0 for v in run.variants]
    cautious = VARIANTS[rates.index(max(rates))]

    expected = []
    for number, (question_id, found) in enumerate(by_question.items()):
        cells = [_cell(row) for row in found]
        confident = all(_cell(row) == "answered_wrong" for row in found if row["variant"] == cautious)
        firsts = {_cell(row) for row in found if row["draw"] == 0}
        flags = ("refused_right" in cells) + 2 * confident + 4 * ("unscored" in cells) + 8 * (len(firsts) > 1)
        shares = [cells.count("refused_right") / len(cells), confident * cells.count("answered_wrong") / len(cells)]
        expected.append((-max(shares), "unscored" not in cells, number, question_id, flags))
    expected.sort()
    assert page["questions"]["id"] == [question_id for *_, question_id, _ in expected]
    assert page["questions"]["flags"] == [flags for *_, flags in expected]

    starts, texts, held = page["questions"]["start"], page["texts"], page["rows"]
    assert starts[-1] == table.height
    for place, question_id in enumerate(page["questions"]["id"]):
        found = sorted(by_question[question_id], key=lambda row: (VARIANTS.index(row["variant"]), row["draw"]))
        for r, row in zip(range(starts[place], starts[place + 1]), found, strict=True):
            assert VARIANTS[held["variant"][r]] == row["variant"]
            assert (*CELL_NAMES, "unscored")[held["cell"][r]] == _cell(row)
            assert texts[held["firstReply"][r]] == row["first_reply"]
            assert texts[held["forcedReply"][r]] == row["forced_reply"]
        assert texts[page["questions"]["text"][place]] == found[0]["question"]


def test_two_columns_are_enough_and_grades_are_told_from_them() -> None:
    page = payload(questions_of([report_run(counts_table(2, 1, 1, 3))]), Cut(4000))
    grades = [("correct", "incorrect", "refused", "unscored", "not asked")[code] for code in page["rows"]["first"]]
    assert sorted(grades) == ["correct"] * 3 + ["incorrect"] + ["refused"] * 3
    assert set(page["rows"]["forced"]) == {4}
    assert page["questions"]["text"] == [-1] * 7


def test_every_text_stands_once_and_long_ones_lose_their_middle() -> None:
    table = rows(4, variants=("low", "high")).with_columns(
        first_reply=pl.lit("a" * 700 + "b" * 9_000 + "c" * 300), forced_reply=pl.lit("short")
    )
    page = payload(questions_of([report_run(table)]), Cut(1000))
    assert len(page["texts"]) == len(set(page["texts"])) == 4 + 4 + 2
    (number,) = page["cuts"]
    assert page["texts"][int(number)] == "a" * 700 + "c" * 300
    assert page["cuts"][number] == [10_000, 700]


def _unpacked(text: str, packed: bool) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)) if packed else text)


@pytest.mark.parametrize("length", [10, 3_000])
def test_plain_and_packed_hold_the_same(length: int) -> None:
    found = questions_of([report_run(rows(200, length=length))])
    embedded = embed_questions(found)
    assert embedded.packed == (length > 1_000)
    assert _unpacked(embedded.text, embedded.packed) == json.loads(json.dumps(payload(found, embedded.cut)))


def test_replies_give_way_step_by_step_where_room_is_short() -> None:
    found = questions_of([report_run(rows(60, length=1_500, draws=2))])
    sizes = []
    for room in (12_000_000, 400_000, 180_000, 100_000, 1):
        embedded = embed_questions(found, room)
        sizes.append((embedded.cut.limit, embedded.cut.all_draws))
        assert len(embedded.text) <= room or embedded.cut.limit == 0
        assert len(_unpacked(embedded.text, embedded.packed)["questions"]["id"]) == 60
    assert sizes == sorted(sizes, key=lambda cut: (not cut[1], -cut[0]))
    assert sizes[0] == (4000, True)
    assert sizes[-1] == (0, False)


def test_the_same_table_gives_the_same_bytes() -> None:
    found = questions_of([report_run(rows(200, length=2_000))])
    assert embed_questions(found) == embed_questions(found)


@given(st.lists(st.one_of(st.text(), st.sampled_from(HOSTILE))))
def test_property_json_in_the_page_cannot_end_its_element(texts: list[str]) -> None:
    text = str(safe_json(json.dumps(texts, ensure_ascii=False)))
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == texts


def test_of_more_outcomes_than_a_page_holds_it_shows_a_random_sample_of_the_questions() -> None:
    table = rows(300, draws=2)
    shown, left_out = sampled(table.lazy(), 10 * 4 * 2)
    ids = shown["question_id"].unique()
    assert (len(ids), left_out) == (10, 290)
    assert shown.equals(table.filter(pl.col("question_id").is_in(ids.implode())))
    assert sampled(table.lazy(), 80)[0].equals(shown)
    assert ids.str.slice(1).cast(pl.Int64).max() > 150
    everything, none = sampled(table.lazy(), table.height)
    assert everything.equals(table)
    assert none == 0
    assert sampled(table.lazy(), 3)[1] == 299
