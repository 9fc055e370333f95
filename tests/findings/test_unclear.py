"""What unclear replies could change: RI with all of them as refusals, with any of them, and when that is a caveat."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index import refusal_index, refusal_index_many, stats
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.rates import first_draws
from refusal_index.findings.summary import summarise
from refusal_index.findings.unclear import (
    SHARE_LIMIT,
    WIDTH_LIMIT,
    UnclearReplies,
    as_refusals,
    unclear_bounds,
    unclear_caveats,
    unclear_replies,
)
from refusal_index.render.sentences import sentence
from refusal_index.stats import ContingencyTable, Estimate

CELLS = {(True, True): 300, (True, False): 80, (False, True): 250, (False, False): 370}
"""Questions by whether they were refused and wrong, besides unclear replies."""


def unclear(wrong: bool | None, forced: Grade | None) -> Outcome:
    return Outcome(False, wrong, None, forced, reading="unclear")


def table_of(unclear_cells: dict[tuple[bool, Grade | None], int], cells=CELLS) -> pl.DataFrame:
    outcomes = [Outcome(*cell, reading="answer") for cell, count in cells.items() for _ in range(count)]
    outcomes += [unclear(*cell) for cell, count in unclear_cells.items() for _ in range(count)]
    asked = Identification("m", "d", "normal")
    return first_draws(
        outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))
    )


def replies_of(table: pl.DataFrame) -> UnclearReplies | None:
    return unclear_replies(table, DEFAULT_ANALYSIS)


def test_table_without_unclear_replies_has_nothing_to_say():
    table = table_of({})
    assert replies_of(table) is None
    assert unclear_bounds(table) is None
    assert list(unclear_caveats(refusal_index(ContingencyTable(*CELLS.values())), None)) == []


def test_all_as_refusals_uses_the_forced_answers_counted_by_hand():
    cells = {(True, Grade.INCORRECT): 7, (True, Grade.CORRECT): 5, (False, Grade.REFUSED): 3, (False, Grade.CORRECT): 2}
    table = table_of(cells)
    found = replies_of(table)
    expected = ContingencyTable(300 + 7 + 3, 80 + 5 + 2, 250, 370)
    assert found is not None
    assert (found.replies, found.asked, found.forced_unknown) == (17, 1017, 0)
    assert found.as_refusals.estimate == refusal_index(expected).estimate
    changed = as_refusals(table)
    assert changed.filter("refused", "wrong").height == expected.refused_wrong
    assert changed.filter(pl.col("refused"), pl.col("wrong").not_()).height == expected.refused_right


@pytest.mark.parametrize("forced", [None, Grade.UNSCORED])
def test_unclear_replies_without_a_graded_forced_answer_are_left_out_as_refusals(forced):
    table = table_of({(True, forced): 6, (False, Grade.CORRECT): 4})
    found = replies_of(table)
    assert found is not None
    assert (found.replies, found.forced_unknown) == (10, 6)
    assert found.as_refusals.estimate == refusal_index(ContingencyTable(300, 80 + 4, 250, 370)).estimate
    assert unclear_bounds(table) == stats.reading_bounds(ContingencyTable(300, 80, 256, 374), right_both=4)


def test_unclear_reply_that_a_grader_refuses_is_a_refusal():
    """The forced answer counts for it already."""
    asked = Identification("m", "d", "normal")
    refused = Outcome(True, True, Grade.REFUSED, Grade.INCORRECT, reading="unclear")
    assert replies_of(first_draws(outcome_table([(asked, Question("q", "?", "!"), refused)]))) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=7))
def test_bounds_match_every_subset_of_unclear_replies_as_refusals(pairs):
    grades = {True: Grade.INCORRECT, False: Grade.CORRECT}
    small = {(True, True): 5, (True, False): 3, (False, True): 4, (False, False): 6}
    cells: dict[tuple[bool, Grade | None], int] = {}
    for wrong, forced in pairs:
        cells[wrong, grades[forced]] = cells.get((wrong, grades[forced]), 0) + 1
    bounds = unclear_bounds(table_of(cells, small))
    tables = []
    for moved in itertools.product((False, True), repeat=len(pairs)):
        counts = dict(small)
        for is_refusal, (wrong, forced) in zip(moved, pairs, strict=True):
            cell = (True, forced) if is_refusal else (False, wrong)
            counts[cell] += 1
        tables.append(list(counts.values()))
    indices = refusal_index_many(*np.array(tables).T)
    assert bounds is not None
    assert (bounds.low, bounds.high) == pytest.approx((indices.min(), indices.max()), abs=1e-12)


# --- The caveat

INDEX = Estimate(0.5, 0.4, 0.6, name="refusal_index")


def severity(n_unclear: int, asked: int, other: Estimate, index: Estimate = INDEX) -> str:
    (statement,) = unclear_caveats(index, UnclearReplies(n_unclear, asked, other, 0))
    assert statement.code == "unclear_replies"
    assert sentence(statement)
    return statement.severity


def test_caveat_is_serious_above_three_per_cent():
    assert SHARE_LIMIT == 0.03
    assert severity(30, 1000, INDEX) == "note"
    assert severity(31, 1000, INDEX) == "serious"


@pytest.mark.parametrize("sign", [-1, 1])
def test_caveat_is_serious_if_the_index_moves_by_half_of_the_half_width(sign):
    assert WIDTH_LIMIT == 0.5
    assert severity(1, 1000, Estimate(0.5 + sign * 0.0499, 0.4, 0.6)) == "note"
    assert severity(1, 1000, Estimate(0.5 + sign * 0.0501, 0.4, 0.6)) == "serious"


@pytest.mark.parametrize(
    ("index", "other", "expected"),
    [
        (Estimate(None, status="undefined", reason="nobody_refused"), INDEX, "serious"),
        (INDEX, Estimate(None, status="undefined", reason="nobody_refused"), "serious"),
        (
            Estimate(None, status="undefined", reason="nobody_refused"),
            Estimate(None, status="undefined", reason="nobody_refused"),
            "note",
        ),
        (Estimate(0.5), Estimate(0.5), "note"),
        (Estimate(0.5), Estimate(0.51), "serious"),
    ],
)
def test_index_that_becomes_undefined_or_has_no_interval_moves(index, other, expected):
    assert severity(1, 1000, other, index) == expected


def test_summary_of_a_table_states_its_unclear_replies():
    table = table_of({(True, Grade.CORRECT): 40})
    (variant,) = summarise(table).variants
    (statement,) = [caveat for caveat in variant.caveats if caveat.code == "unclear_replies"]
    assert statement.severity == "serious"
    assert statement.values["replies"] == 40
    assert statement.values["as_refusals"] == refusal_index(ContingencyTable(300, 120, 250, 370)).estimate
    assert variant.table == ContingencyTable(300, 80, 290, 370)
    assert variant.unclear is not None


def test_share_that_fires_without_an_effect_is_rare_simulated_at_three_per_cent():
    """Unclear replies that are like the others move RI by chance alone."""
    rng = np.random.default_rng(7)
    fired = 0
    for _ in range(60):
        latent = rng.multivariate_normal((0, 0), ((1, 0.5), (0.5, 1)), 1000)
        refused, wrong = latent[:, 0] > 0.5, latent[:, 1] > 0.0
        is_unclear = (latent[:, 0] > 0.37) & ~refused & (rng.random(1000) < 0.7)
        asked = Identification("m", "d", "normal")
        rows = (
            (
                asked,
                Question(f"q{i}", "?", "!"),
                Outcome(
                    bool(refused[i]),
                    bool(wrong[i]),
                    None,
                    Grade.INCORRECT if wrong[i] else Grade.CORRECT,
                    reading="unclear" if is_unclear[i] else "answer",
                ),
            )
            for i in range(1000)
        )
        (variant,) = summarise(outcome_table(rows)).variants
        (statement,) = [caveat for caveat in variant.caveats if caveat.code == "unclear_replies"]
        moves = abs(statement.values["as_refusals"] - variant.index.estimate)
        fired += moves > WIDTH_LIMIT * (variant.index.high - variant.index.low) / 2
    assert fired <= 6
