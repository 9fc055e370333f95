"""What the scores of methods rest on, and what that took: measured from the replies, once they are there.

A method rests on replies of the model: forced answers, draws of a pass, replies to prompts of its own. Those of a model
that grades belong to them only where grades enter the score, as they do where a first pass counts as refused, or where
a predictor is trained on right and wrong answers.

Scores beside results that are made anew: grades follow the run, and scores that rested on others are taken out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from typing import Any

import polars as pl

from refusal_index.confidence.method import Evidence, Method, Need
from refusal_index.confidence.registry import METHODS
from refusal_index.engines.settings import SettingError
from refusal_index.engines.store import ReplyStore
from refusal_index.evaluation.confidence_evidence import DRAWN_AGAIN, KNOWN, OWN, Sources, groups_of
from refusal_index.evaluation.reopened import versions
from refusal_index.evaluation.results import procedure_of, total
from refusal_index.outcomes.confidence import ConfidenceError, Score, join_outcomes, write_confidence
from refusal_index.outcomes.confidence_record import MethodRecord, write_record
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.outcome import Question
from refusal_index.outcomes.settings import Prices
from refusal_index.protocol import FORCED, Asked, Completion, Pass

GRADED = frozenset({Need.FIRST_DRAWS, Need.TRAINING})
"""Needs into which grades enter."""


@dataclass(frozen=True)
class Measured:
    """What records are made of.

    Attributes
    ----------
    sources, evidence
        Replies, and what the scores were made of.
    outcomes
        The run's outcome table.
    prices
        Of the run's models.
    """

    sources: Sources
    evidence: Evidence
    outcomes: pl.DataFrame
    prices: Prices


def record_scores(folder: RunFolder, found: Measured, scores: Mapping[Method, Sequence[Score]]) -> None:
    """Write what scores rest on beside them, in the place of what is there of the same methods.

    Parameters
    ----------
    folder
        The run's; call it inside its lock.
    found
        Replies and evidence.
    scores
        Those that were made now, by method.
    """
    made = {method: given for method, given in scores.items() if given}
    records = [one for method, given in made.items() for one in method_records(found, method, given)]
    write_record(folder, records, {method.name for method in made})


def method_records(found: Measured, method: Method, scores: Sequence[Score]) -> Iterator[MethodRecord]:
    """Yield what the scores of a method rest on, a record for each variant where they differ between variants.

    Parameters
    ----------
    found
        Replies and evidence.
    method, scores
        The method, and the scores that it gave.
    """
    by_variant: dict[str | None, list[Score]] = {}
    for one in scores:
        by_variant.setdefault(one.variant, []).append(one)
    for variant, own in by_variant.items():
        yield _record(found, method, variant, own)


def _record(found: Measured, method: Method, variant: str | None, scores: Sequence[Score]) -> MethodRecord:
    asked = [found.evidence.questions[one] for one in dict.fromkeys(score.question_id for score in scores)]
    run = [one for question in asked for one in of_the_run(found.sources, method, variant, question)]
    beside = [one for question in asked for one in asked_beside(found.sources, method, question)]
    replies = [*run, *beside]
    own = [one for one in replies if one.reply.asked is Asked.MODEL]
    seconds = [one.seconds for one in replies if one.requests]
    return MethodRecord(
        method=method.name,
        variant=variant,
        questions=len(scores),
        generations=len(own),
        usage=total(replies, found.prices),
        own_requests=sum(one.requests for one in beside),
        seconds=None if None in seconds else sum(one for one in seconds if one is not None),
        draws=_most([one for one in own if one.reply.of is not Pass.PROBE]),
        own_replies=_most([one for one in own if one.reply.of is Pass.PROBE]),
        is_of_model=method.is_of_model,
        needs=tuple(sorted(method.needs)),
        versions=_versions(found, method),
        **_training(found, scores),
        **_states(found, method, asked),
    )


def of_the_run(sources: Sources, method: Method, variant: str | None, question: Question) -> Iterator[Completion]:
    """Yield the replies of the run that a method's score of a question rests on."""
    if Need.FIRST_DRAWS in method.needs and variant is not None:
        yield from _entering(method, sources.run.standing(question.question_id, variant), Pass.FIRST)
    forced = _entering(method, sources.run.standing(question.question_id, FORCED), Pass.FORCED)
    if Need.FORCED_DRAWS in method.needs:
        yield from forced
    elif _is_about_answers(method) and not _answered_beside(sources, question):
        yield from (one for one in forced if one.draw == 0)


def asked_beside(sources: Sources, method: Method, question: Question) -> Iterator[Completion]:
    """Yield the replies that a method's score of a question rests on, and that were asked for beside the run."""
    if _is_about_answers(method):
        yield from _entering(method, sources.own.standing(question.question_id, FORCED), Pass.FORCED)
    for prompt in method.prompts:
        yield from _entering(method, sources.own.said(question.question_id, prompt.name), Pass.PROBE)


def _is_about_answers(method: Method) -> bool:
    """Whether the score is made of the forced answer, and not of first passes or of an answer of its own."""
    answers_itself = bool(method.prompts) and all(prompt.is_graded for prompt in method.prompts)
    return Need.FIRST_DRAWS not in method.needs and not answers_itself


def _answered_beside(sources: Sources, question: Question) -> bool:
    return any(one.reply.of is Pass.FORCED for one in sources.own.standing(question.question_id, FORCED))


def _entering(method: Method, said: Sequence[Completion], of: Pass) -> list[Completion]:
    """Keep the replies of one pass that enter a method's scores: those of graders only where grades do."""
    with_graders = bool(GRADED & method.needs)
    return [one for one in said if one.reply.of is of and (with_graders or one.reply.asked is Asked.MODEL)]


def _most(replies: Sequence[Completion]) -> int:
    """Return how many replies there are to one question at most."""
    places: dict[str, set[tuple[str, int]]] = {}
    for one in replies:
        places.setdefault(one.question_id, set()).add((one.variant, one.draw))
    return max(map(len, places.values()), default=0)


def _training(found: Measured, scores: Sequence[Score]) -> dict[str, Any]:
    folds = {one.fold for one in scores} - {None}
    if not folds:
        return {}
    groups = found.evidence.groups
    return {
        "training_examples": sum(one.wrong is not None and one.confidence is not None for one in scores),
        "n_folds": len(folds),
        "seed": found.evidence.seed,
        "grouped_by": _grouped_by(found),
        "groups": len({groups.get(one.question_id, f"\0{one.question_id}") for one in scores}),
    }


def _grouped_by(found: Measured) -> str | None:
    """Name what the questions' groups are; None where every question is one by itself."""
    groups = found.evidence.groups
    for by in KNOWN if groups else ():
        with suppress(SettingError):
            if groups_of(found.outcomes, found.evidence.questions, by) == groups:
                return by
    return None


def _states(found: Measured, method: Method, asked: Sequence[Question]) -> dict[str, Any]:
    if Need.STATES not in method.needs or found.evidence.states is None or not asked:
        return {}
    size = found.evidence.states([asked[0].question_id]).shape[2]
    return {"states": len(asked), "state_size": size, "layer": found.evidence.layer}


def _versions(found: Measured, method: Method) -> dict[str, str]:
    """Return the versions of this package and of those that the method imports."""
    runs_weights = Need.STATES in method.needs and found.evidence.model.startswith("hf/")
    imported = {*method.packages, *(("torch", "transformers") if runs_weights else ())}
    brought_by = packages_distributions() if imported else {}
    return versions(["refusal-index", *sorted({one for name in imported for one in brought_by.get(name, ())})])


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
