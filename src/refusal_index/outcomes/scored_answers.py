"""The answers of a run that one method has scored: a row a question, with the score and whether the answer is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from refusal_index.outcomes.confidence import ConfidenceError, is_trained
from refusal_index.outcomes.confidence_join import scores_of_outcomes
from refusal_index.outcomes.confidence_summary import scores_by_method
from refusal_index.outcomes.errors import OutcomeTableError, RunFolderError, shortened, suggestion
from refusal_index.outcomes.runs import ComparedRun

COLUMNS = ("question_id", "confidence", "wrong", "pass", "draw")


@dataclass(frozen=True, eq=False)
class ScoredAnswers:
    """What a method says of the answers of a run.

    Attributes
    ----------
    method, variant
        Whose scores; the variant is None where they belong to all.
    rows
        One a question, with `COLUMNS`; `confidence` is null where the method gave none, `wrong` where nobody graded.
    is_trained
        Whether the method was trained on answers of the same run, and scored each out of fold.
    """

    method: str
    variant: str | None
    rows: pl.DataFrame
    is_trained: bool

    @property
    def name(self) -> str:
        """The method, with the variant where its scores differ between them."""
        return self.method if self.variant is None else f"{self.method} ({self.variant})"

    @property
    def usable(self) -> pl.DataFrame:
        """The rows with a score and a grade."""
        return self.rows.drop_nulls(["confidence", "wrong"])


def scored_answers(run: ComparedRun, method: str | None = None, variant: str | None = None) -> ScoredAnswers:
    """Take the scores of one method.

    Of repeated draws the first counts.

    Parameters
    ----------
    run
        With the scores in its folder, or an outcome table with a column of its own.
    method, variant
        Which; may be left out where there is only one.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If there are no scores, none of this method or variant, several to choose from, or they are of other questions.
    """
    scores = _scores_of(run)
    name = _method(method, scores["method"].unique(maintain_order=True).to_list())
    found = scores.filter(pl.col("method") == name)
    whose = _variant(variant, found["variant"].unique(maintain_order=True).to_list(), name)
    by_pass = scores_by_method(found.filter(pl.col("variant").eq_missing(whose)))
    _refuse_several_passes(name, [of for _, _, of in by_pass])
    (first,) = by_pass.values()
    _refuse_others(first, run)
    return ScoredAnswers(name, whose, first.select(COLUMNS), is_trained(first))


def _scores_of(run: ComparedRun) -> pl.DataFrame:
    if not run.source.is_dir():
        scores = scores_of_outcomes(pl.concat(list(run.variants.values()), how="diagonal"))
        if scores.is_empty():
            raise OutcomeTableError(
                f"{run.source}: expected a column 'confidence', filled, and 'schema_version' beside it, got none; add "
                "them, or put scores of others beside a run with 'refusal-index confidence RUN --add FILE'"
            )
        return scores
    if run.confidence is None or run.confidence.is_empty():
        raise RunFolderError(
            f"{run.source} holds no scores yet; 'refusal-index confidence {run.source} --method likelihood' makes them"
        )
    return run.confidence


def _method(given: str | None, known: Sequence[str]) -> str:
    if given is None and len(known) == 1:
        return known[0]
    if given is None or given not in known:
        guess = "" if given is None else suggestion(given, known)
        raise ConfidenceError(f"method: expected one of {', '.join(known)}, got {given!r}{guess}")
    return given


def _variant(given: str | None, known: Sequence[str | None], method: str) -> str | None:
    if given in known and (given is not None or len(known) == 1):
        return given
    if given is None and len(known) == 1:
        return known[0]
    if known == [None]:
        raise ConfidenceError(
            f"variant: scores of {method} belong to all variants, got {given!r}; leave the variant out"
        )
    names = [str(one) for one in known]
    guess = "" if given is None else suggestion(given, names)
    raise ConfidenceError(
        f"variant: scores of {method} differ between variants; expected one of {', '.join(names)}, got {given!r}{guess}"
    )


def _refuse_several_passes(method: str, passes: Sequence[str | None]) -> None:
    if len(passes) > 1:
        named = ", ".join(of or "the one that counts" for of in passes)
        raise ConfidenceError(f"{method}: expected scores of the answers of one pass, got those of {named}; keep one")


def _refuse_others(rows: pl.DataFrame, run: ComparedRun) -> None:
    known = pl.concat([table.select("question_id") for table in run.variants.values()]).unique()
    others = rows.join(known, on="question_id", how="anti", maintain_order="left")
    if others.height:
        raise ConfidenceError(
            f"{run.source}: scores of {others.height:,} questions are of none in its outcomes, the first of "
            f"{shortened(others['question_id'][0])}; have the method score again"
        )
