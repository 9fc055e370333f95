"""Replies of a run as answers, and as what the scores of a method rest on.

A method rests on replies of the model: forced answers, draws of a pass, replies to its own prompts. Replies of a model
that grades count only where grades enter the score: where a first pass counts as refused, or a predictor is trained.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import packages_distributions
from typing import Any

import polars as pl

from refusal_index.data.files import write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Outcome, Question
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.data.run_json import Prices
from refusal_index.findings.confidence_record import RECORD_VERSION, MethodRecord, read_record
from refusal_index.plugins.confidence.hidden_states import PACKAGES
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, Score
from refusal_index.plugins.confidence.trained import KNOWN, known_groups
from refusal_index.protocol import (
    AUXILIARY,
    FORCED,
    Completion,
    ForcedPass,
    GraderKind,
    Pass,
    Procedure,
    Reply,
    Role,
    read_logprobs,
    read_reply,
)
from refusal_index.runs.plan import versions
from refusal_index.runs.results import total
from refusal_index.runs.store import ReplyStore, StoreError

FORCED_ANSWER = f"{AUXILIARY}{FORCED}"
"""The variant of forced answers that methods asked for, since the run has none or none with log probabilities."""


@dataclass(frozen=True)
class Replies:
    """Reads answers from the replies of a run.

    Attributes
    ----------
    store
        The run's.
    grader
        Who grades the answers.
    """

    store: ReplyStore
    grader: GraderKind

    def forced(self, question: Question, variant: str = FORCED) -> dict[int, Answer]:
        """Return the forced answers to a question by draw: the run's own, unless `variant` is `FORCED_ANSWER`."""
        completions = self.store.effective_completions(question.question_id, variant)
        forced = [one for one in completions if one.reply.pass_ is Pass.FORCED]
        return self.answers(question, ForcedPass(self.grader), forced)

    def scored(self, question: Question) -> Answer | None:
        """Return the forced answer that is scored: one that methods asked for, or else the run's own."""
        return self.forced(question, FORCED_ANSWER).get(0) or self.forced(question).get(0)

    def answers(self, question: Question, procedure: Procedure, completions: Sequence[Completion]) -> dict[int, Answer]:
        """Return answers by draw, without a grade while a verdict is missing."""
        own = {one.draw: one for one in completions if one.reply.role is Role.MODEL}
        verdicts = [one for one in completions if one.reply.role is not Role.MODEL]
        judged = {one.draw for one in verdicts}
        graded: dict[Reply, int] = {}  # the same reply in several draws is graded in one of them
        for draw in sorted(own, key=lambda draw: (draw not in judged, draw)):
            graded.setdefault(own[draw].reply, draw)
        found = {}
        for draw, one in sorted(own.items()):
            on_it = [verdict.reply for verdict in verdicts if verdict.draw == graded[one.reply]]
            outcome = procedure.step(question, [one.reply, *on_it])
            found[draw] = _answer(one, outcome.wrong if isinstance(outcome, Outcome) else None)
        return found


def _answer(one: Completion, wrong: bool | None) -> Answer:
    # No method reads the log probabilities of further forced answers.
    has_logprobs = one.draw == 0 or one.reply.pass_ is not Pass.FORCED
    try:
        logprobs = read_logprobs(one.logprobs) if has_logprobs else None
    except ValueError as error:
        raise StoreError(f"question {one.question_id}: {error}; restore the store of replies from a copy") from error
    text = read_reply(one.reply.text, one.reply.stop_reason).answer
    return Answer(text, one.reply.text, wrong, logprobs, one.reply.stop_reason)


def method_records(
    scores: Mapping[Method, Sequence[Score]],
    replies: Replies,
    evidence: Evidence,
    outcomes: pl.DataFrame,
    prices: Prices,
) -> Iterator[MethodRecord]:
    """Yield what scores rest on, a record for each method, and for each variant where its scores differ.

    Parameters
    ----------
    scores
        By method.
    replies, evidence
        What they were made of.
    outcomes
        The run's outcome table.
    prices
        Of the run's models.
    """
    grouping = (by for by in KNOWN if known_groups(outcomes, evidence.questions, by) == evidence.groups)
    grouped_by = next(grouping, None) if evidence.groups else None
    for method, found in scores.items():
        for variant in dict.fromkeys(one.variant for one in found):
            own = [one for one in found if one.variant == variant]
            asked = [evidence.questions[one] for one in dict.fromkeys(score.question_id for score in own)]
            run, beside = _replies(replies.store, method, variant, asked)
            entering = [*run, *beside]
            model = [one for one in entering if one.reply.role is Role.MODEL]
            seconds = [one.seconds for one in entering if one.requests]
            yield MethodRecord(
                method=method.name,
                variant=variant,
                questions=len(own),
                generations=len(model),
                usage=total(entering, prices),
                own_requests=sum(one.requests for one in beside),
                seconds=None if None in seconds else sum(one for one in seconds if one is not None),
                draws=_most(one for one in model if one.reply.pass_ is not Pass.PROBE),
                own_replies=_most(one for one in model if one.reply.pass_ is Pass.PROBE),
                is_of_model=method.is_of_model,
                needs=tuple(sorted(method.needs)),
                versions=_versions(method, evidence),
                **_training(own, evidence, grouped_by),
                **_states(method, evidence, asked),
            )


def write_record(folder: RunFolder, records: Iterable[MethodRecord], methods: Collection[str]) -> None:
    """Put records into a run's folder, in the place of what it has of these methods; call it inside its lock.

    A record that cannot be read gives way: methods measure anew whenever they score.

    Parameters
    ----------
    folder
        The run's.
    records
        Of scores that were made now.
    methods
        Whose earlier records no longer hold: those of the records, and those whose scores came from elsewhere.
    """
    path, kept = folder.confidence_record, []
    if path.exists():
        with suppress(ConfidenceError):
            kept = [one for one in read_record(path) if one.method not in methods]
    held: dict[str, list[dict[str, Any]]] = {}
    for one in map(asdict, (*kept, *records)):
        held.setdefault(one.pop("method"), []).append(one)
    if held or path.exists():
        document = {"record_version": RECORD_VERSION, "methods": held}
        write_atomically(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def _replies(
    store: ReplyStore, method: Method, variant: str | None, questions: Sequence[Question]
) -> tuple[list[Completion], list[Completion]]:
    """Return the replies that a method's scores rest on: those of the run, and those that methods asked for."""
    run, beside, needs = list[Completion](), list[Completion](), method.needs
    is_graded = bool(needs & {Need.FIRST_DRAWS, Need.TRAINING})
    is_about_answers = Need.FIRST_DRAWS not in needs and (
        not method.prompts or not all(prompt.is_graded for prompt in method.prompts)
    )

    def entering(completions: Sequence[Completion], of: Pass) -> list[Completion]:
        return [one for one in completions if one.reply.pass_ is of and (is_graded or one.reply.role is Role.MODEL)]

    for question in (one.question_id for one in questions):
        if Need.FIRST_DRAWS in needs and variant is not None:
            run += entering(store.effective_completions(question, variant), Pass.FIRST)
        forced, asked = (store.effective_completions(question, name) for name in (FORCED, FORCED_ANSWER))
        if Need.FORCED_DRAWS in needs:
            run += entering(forced, Pass.FORCED)
        elif is_about_answers and not asked:
            run += [one for one in entering(forced, Pass.FORCED) if one.draw == 0]
        if is_about_answers:
            beside += entering(asked, Pass.FORCED)
        for prompt in method.prompts:
            beside += entering(store.completions(question, prompt.variant), Pass.PROBE)
    return run, beside


def _most(completions: Iterator[Completion]) -> int:
    """Return the largest number of replies to one question."""
    places = {(one.question_id, one.reply.pass_, one.draw) for one in completions}
    return max(Counter(question for question, *_ in places).values(), default=0)


def _training(scores: Sequence[Score], evidence: Evidence, grouped_by: str | None) -> dict[str, Any]:
    folds = {one.fold for one in scores} - {None}
    if not folds:
        return {}
    return {
        "training_examples": sum(one.wrong is not None and one.confidence is not None for one in scores),
        "n_folds": len(folds),
        "seed": evidence.seed,
        "grouped_by": grouped_by,
        "groups": len({evidence.groups.get(one.question_id, f"\0{one.question_id}") for one in scores}),
    }


def _states(method: Method, evidence: Evidence, asked: Sequence[Question]) -> dict[str, Any]:
    if Need.STATES not in method.needs or evidence.states is None or not asked:
        return {}
    size = evidence.states([asked[0].question_id]).shape[2]
    return {"states": len(asked), "state_size": size, "layer": evidence.layer}


def _versions(method: Method, evidence: Evidence) -> dict[str, str]:
    """Return the versions of this package and of those that the method imports."""
    runs_weights = Need.STATES in method.needs and evidence.model.startswith("hf/")
    imported = {*method.packages, *(PACKAGES if runs_weights else ())}
    brought_by = packages_distributions() if imported else {}
    return versions(["refusal-index", *sorted({one for name in imported for one in brought_by.get(name, ())})])
