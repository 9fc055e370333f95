"""Scores beside results that are made anew: grades follow the run, and scores that rested on others are taken out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import polars as pl

from refusal_index.confidence.method import Need
from refusal_index.confidence.registry import METHODS
from refusal_index.engines.store import ReplyStore
from refusal_index.evaluation.confidence_evidence import DRAWN_AGAIN, OWN, Sources
from refusal_index.evaluation.results import procedure_of
from refusal_index.outcomes.confidence import ConfidenceError, write_confidence
from refusal_index.outcomes.confidence_join import join_outcomes
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.folder import RunFolder

DRAWS = frozenset({Need.FIRST_DRAWS, Need.FORCED_DRAWS})
"""What methods need that rest on repeated draws."""

KEY = ("question_id", "method", "variant", "draw", "pass")


def refresh_scores(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], outcomes: pl.LazyFrame
) -> tuple[str, ...]:
    """Bring the grades in a folder's confidence table up to date, before its outcomes are replaced.

    A method's own scores rest on the answers and, where it was trained, on their grades, or on repeated draws. Where a
    grade is another one by now, or there are more draws, they are taken out: the replies are there, so that scoring
    again asks nothing. Scores of others keep a grade
    that they brought along; one that was found in the run's outcomes follows these.

    Parameters
    ----------
    folder, store, settings
        The run's.
    outcomes
        The table that is about to be written.

    Returns
    -------
    tuple of str
        The methods whose scores were taken out.
    """
    table = folder.read_confidence()
    if table is None:
        return ()
    graded, redrawn = _grades(folder, store, settings, table), _is_redrawn(folder, outcomes)
    kept, outdated = [], []
    for group in table.partition_by("method", maintain_order=True):
        name = group["method"][0]
        if _is_ours(group) and (not _agrees(group, graded) or (redrawn and METHODS[name].needs & DRAWS)):
            outdated.append(name)
        else:
            kept.append(group if _is_ours(group) else _regraded(folder, group, outcomes))
    found = pl.concat(kept) if kept else table.clear()
    if not found.equals(table):
        write_confidence(found, folder.confidence)
    return tuple(outdated)


def _is_redrawn(folder: RunFolder, outcomes: pl.LazyFrame) -> bool:
    """Whether questions were drawn otherwise than the outcomes have it that are about to be replaced."""
    with suppress(OutcomeTableError):
        tables = folder.read_outcomes().lazy(), outcomes
        before, now = (one.select(DRAWN_AGAIN.sum()).collect().item() for one in tables)
        return bool(before != now)
    return False


def _is_ours(group: pl.DataFrame) -> bool:
    return group["method"][0] in METHODS and group["pass"].is_in(["forced", "probe"]).all()


def _grades(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], table: pl.DataFrame
) -> dict[str, bool | None]:
    """Return whether each forced answer that is scored is wrong by now."""
    path = RunFolder(folder.path / OWN).replies
    asked, questions = set(table["question_id"]), store.questions()
    with ReplyStore(path if path.exists() else None) as own:
        sources = Sources(store, own, procedure_of(settings).grader)
        answers = ((one, sources.answer(questions[one])) for one in asked & questions.keys())
        return {one: answer.wrong for one, answer in answers if answer is not None}


def _agrees(group: pl.DataFrame, graded: Mapping[str, bool | None]) -> bool:
    forced = group.filter((pl.col("pass") == "forced") & (pl.col("draw") == 0))
    return all(graded.get(one) is wrong for one, wrong in forced.select("question_id", "wrong").iter_rows())


def _regraded(folder: RunFolder, group: pl.DataFrame, outcomes: pl.LazyFrame) -> pl.DataFrame:
    """Return scores of others with the grades of the new outcomes, if those that they have are the earlier ones'."""
    blank = group.with_columns(wrong=pl.lit(None, pl.Boolean))
    with suppress(OutcomeTableError, ConfidenceError):  # no outcomes before, or of nobody's questions
        before, now = (join_outcomes(blank, one).scores for one in (folder.read_outcomes(), outcomes.collect()))
        if before.sort(KEY).equals(group.sort(KEY)) and now.height == group.height:
            return now
    return group


def outdated_lines(methods: tuple[str, ...], folder: RunFolder) -> Iterator[str]:
    """Say which scores were taken out, and what makes them anew."""
    if methods:
        yield (
            f"scores of {', '.join(methods)} rested on grades or draws that are others now, and were taken out; "
            f"'refusal-index confidence {folder.path} --method {','.join(methods)}' makes them anew"
        )
