"""Scores in a folder whose results are derived anew: grades follow the run, and scores that rested on others go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import polars as pl

from refusal_index.data.confidence import PLACE, ConfidenceError, join_outcomes, write_confidence
from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.folder import RunFolder
from refusal_index.plugins.confidence.method import SAMPLED_AGAIN, Need
from refusal_index.plugins.confidence.registry import method_of
from refusal_index.plugins.confidence.replies import Replies
from refusal_index.runs.results import procedure_of
from refusal_index.runs.store import ReplyStore


def refresh_scores(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], outcomes: pl.LazyFrame
) -> tuple[str, ...]:
    """Bring the grades in a folder's confidence table up to date, before its outcomes are replaced.

    The scores of this package's methods rest on answers and, where they were trained, on grades, or on repeated draws.
    Where a grade changed, or there are more draws, they are removed: the replies are stored, so that scoring again asks
    nothing. Other scores keep a grade that they came with; one that was found in the run's outcomes follows these.

    Parameters
    ----------
    folder, store, settings
        The run's.
    outcomes
        The table that is about to be written.

    Returns
    -------
    tuple of str
        The methods whose scores were removed.
    """
    table = folder.read_confidence()
    if table is None:
        return ()
    replies, questions = Replies(store, procedure_of(settings).grader), store.questions()
    answers = {one: replies.scored(questions[one]) for one in set(table["question_id"]) & questions.keys()}
    wrong = {one: answer.wrong for one, answer in answers.items() if answer is not None}
    redrawn = _is_redrawn(folder, outcomes)
    kept, outdated = [], []
    for group in table.partition_by("method", maintain_order=True):
        name = group["method"][0]
        method = method_of(name)
        if method is None or not group["pass"].is_in(["forced", "probe"]).all():
            kept.append(_regraded(folder, group, outcomes))
        elif not _agrees(group, wrong) or (redrawn and method.needs & {Need.FIRST_DRAWS, Need.FORCED_DRAWS}):
            outdated.append(name)
        else:
            kept.append(group)
    found = pl.concat(kept) if kept else table.clear()
    if not found.equals(table):
        write_confidence(found, folder.confidence)
    return tuple(outdated)


def _is_redrawn(folder: RunFolder, outcomes: pl.LazyFrame) -> bool:
    """Whether the outcomes that are about to be replaced have another number of further draws."""
    with suppress(OutcomeTableError):
        tables = folder.read_outcomes().lazy(), outcomes
        before, now = (one.select(SAMPLED_AGAIN.sum()).collect().item() for one in tables)
        return bool(before != now)
    return False


def _agrees(group: pl.DataFrame, graded: Mapping[str, bool | None]) -> bool:
    forced = group.filter((pl.col("pass") == "forced") & (pl.col("draw") == 0))
    return all(graded.get(one) is wrong for one, wrong in forced.select("question_id", "wrong").iter_rows())


def _regraded(folder: RunFolder, group: pl.DataFrame, outcomes: pl.LazyFrame) -> pl.DataFrame:
    """Return scores of others with the grades of the new outcomes, if those that they have are the earlier ones'."""
    blank = group.with_columns(wrong=pl.lit(None, pl.Boolean))
    with suppress(OutcomeTableError, ConfidenceError):  # no outcomes before, or of nobody's questions
        before, now = (join_outcomes(blank, one).scores for one in (folder.read_outcomes(), outcomes.collect()))
        if before.sort(PLACE).equals(group.sort(PLACE)) and now.height == group.height:
            return now
    return group
