"""Choose the method of a threshold on one half of the questions, and train methods on that half alone.

A threshold whose method was chosen on the questions that set it holds less often than stated: with the method of
twelve that answers the most, a limit of 10% is exceeded in up to .34 of the samples, not .1. So the method is chosen on
the other half, from which the trained methods learn too. On the half that sets the threshold, every score is then a
function that its grades did not touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from refusal_index import stats
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.confidence_record import recorded_methods
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.confidence.method import Evidence, Method, Need
from refusal_index.plugins.confidence.model_scores import likelihood
from refusal_index.plugins.confidence.plan import method_of
from refusal_index.plugins.confidence.scored_answers import ScoredAnswers
from refusal_index.plugins.confidence.scores import evidence_of_run
from refusal_index.plugins.confidence.trained import CALIBRATORS, groups_of

MIN_SHARE = 0.5
"""Methods that scored fewer answers than this share of those of the method with the most are not candidates."""


@dataclass(frozen=True)
class ComparedMethod:
    """A method among which one was chosen, with its results on the half of the questions that chose.

    Attributes
    ----------
    answers
        The scores.
    questions
        Number of answers on this half with a score and a grade.
    auroc
        The AUROC on this half; None if it is undefined.
    utility
        The highest mean utility of a threshold on this half, with answers without a score refused; None if the method
        is chosen by its AUROC.
    left_out
        Why the method was not considered; None if it was.
    """

    answers: ScoredAnswers
    questions: int
    auroc: float | None
    utility: float | None
    left_out: str | None

    def to_document(self) -> dict[str, object]:
        """Return the results as a JSON-serialisable dict."""
        return {
            "method": self.answers.method,
            "variant": self.answers.variant,
            "questions": self.questions,
            "auroc": self.auroc,
            "utility": self.utility,
            "left_out": self.left_out,
        }


def compared_on(
    methods: Sequence[ScoredAnswers], half: frozenset[str], penalty: float | None
) -> tuple[ComparedMethod, ...]:
    """Return the results of each method on one half of the questions.

    - `methods`: their scores.
    - `half`: ids of the questions that choose.
    - `penalty`: cost of a wrong answer if the method with the highest utility is chosen; None for the highest AUROC.
    """
    halves = [answers.usable.filter(pl.col("question_id").is_in(list(half))) for answers in methods]
    most = max(rows.height for rows in halves)
    return tuple(_compared(answers, rows, most, penalty) for answers, rows in zip(methods, halves, strict=True))


def _compared(answers: ScoredAnswers, rows: pl.DataFrame, most: int, penalty: float | None) -> ComparedMethod:
    score = rows["confidence"].to_numpy()
    right = ~rows["wrong"].to_numpy()
    utility = None
    if penalty is not None and rows.height:
        utility = (stats.utility_threshold(score, right, penalty).utility or 0.0) * rows.height / most
    if answers.is_trained and not answers.is_trained_on_half:
        reason = f"not trained on one half: {answers.not_trained}"
    elif not rows.height or rows.height < MIN_SHARE * most:
        reason = "too few scores"
    elif rows["confidence"].n_unique() == 1:
        reason = "all scores are the same"
    else:
        reason = None
    return ComparedMethod(answers, rows.height, stats.auroc(score, right).estimate, utility, reason)


def best_candidate(found: Sequence[ComparedMethod]) -> ComparedMethod:
    """Return the candidate with the highest utility or, if that is not the criterion, the highest AUROC.

    Of several, it is the first. Raises ConfidenceError if no method can be considered.
    """
    considered = [candidate for candidate in found if candidate.left_out is None]
    if not considered:
        reasons = "; ".join(f"{candidate.answers.name}: {candidate.left_out}" for candidate in found)
        raise ConfidenceError(f"method: expected one that can be chosen on half of the questions, got none ({reasons})")
    return max(considered, key=lambda candidate: (candidate.utility or 0.0, candidate.auroc or 0.0))


def trained_on(
    run: RunResults, methods: Sequence[ScoredAnswers], half: frozenset[str], prompts: str | None
) -> Iterator[ScoredAnswers]:
    """Yield the scores of each method; those of trained methods come from predictors trained on one half only.

    The folds are as before, so that no predictor has seen a question that it scores, nor another of its group, but only
    the answers of the half are used for training. A method that cannot be trained this way keeps its scores, with the
    reason.

    - `run`: the run of the scores.
    - `half`: ids of the questions whose grades may be used.
    - `prompts`: the file of the run's prompt set, unless it is a set of this package.
    """
    if not any(answers.is_trained for answers in methods):
        yield from methods
        return
    scores: dict[str, pl.DataFrame] = {}
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(answers.method for answers in methods if answers.is_trained):
        try:
            method = _trainable(run, name)
            scores[name] = method.scores(_evidence(run, method, prompts).with_grades_of(half))
        except RefusalIndexError as error:
            reasons[name] = str(error).removeprefix(f"{name}: ")
    for answers in methods:
        if not answers.is_trained:
            yield answers
        elif answers.method in reasons:
            yield replace(answers, not_trained=reasons[answers.method])
        else:
            new = dict(scores[answers.method].select("question_id", "confidence").iter_rows())
            yield _with_scores(answers, new)


def with_one_calibration(
    run: RunResults, answers: ScoredAnswers, half: frozenset[str], prompts: str | None
) -> ScoredAnswers:
    """Return calibrated likelihoods by one function, fitted on one half; other scores unchanged.

    Out of fold, each answer has one of five functions, and a threshold of a saved rule applies to one. It is a
    non-decreasing function of the likelihood, so it changes no answer's place among the others.

    - `run`, `half`, `prompts`: as for `trained_on`.
    - `answers`: the scores.
    """
    fit = CALIBRATORS.get(answers.method) if answers.is_trained_on_half else None
    if fit is None:
        return answers
    evidence = _evidence(run, _trainable(run, answers.method), prompts).with_grades_of(half)
    rows = likelihood(evidence).drop_nulls("confidence")
    graded = rows.drop_nulls("wrong")
    calibration = fit(graded["confidence"].to_numpy(), (~graded["wrong"]).cast(pl.Float64).to_numpy())
    scores = {name: calibration(score) for name, score in rows.select("question_id", "confidence").iter_rows()}
    return replace(_with_scores(answers, scores), calibration=calibration)


def _trainable(run: RunResults, name: str) -> Method:
    """Return the method to train; raises ConfidenceError if it cannot be trained again."""
    method = method_of(name)
    if not run.source.is_dir() or method is None or Need.TRAINING not in method.needs:
        raise ConfidenceError("its scores come from elsewhere")
    if Need.WEIGHTS in method.needs:
        raise ConfidenceError("training it takes hours")
    return method


def _evidence(run: RunResults, method: Method, prompts: str | None) -> Evidence:
    """Return the data from which a method's scores were computed, with the groups and the layer of its record."""
    records = [record for (name, _), record in recorded_methods(run).items() if name == method.name]
    evidence = evidence_of_run(run.source, method, prompts)
    grouping = (records[0].grouped_by or "none") if records else "auto"
    groups = groups_of(evidence.outcomes, evidence.questions, grouping)
    return replace(evidence, groups=groups, layer=records[0].layer if records else None)


def _with_scores(answers: ScoredAnswers, scores: Mapping[str, float | None]) -> ScoredAnswers:
    confidence = pl.col("question_id").replace_strict(scores, default=None, return_dtype=pl.Float64)
    return replace(answers, rows=answers.rows.with_columns(confidence=confidence), is_trained_on_half=True)
