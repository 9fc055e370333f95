"""Which first passes of a file are forced, and the questions that this takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from refusal_index.datasets.imports.first_pass import NOT_KNOWN, FirstPass, FirstPassError
from refusal_index.outcomes.errors import suggestion
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question


def of_one_model(passes: Sequence[FirstPass], source: str, name: str | None) -> tuple[FirstPass, ...]:
    """Return the first passes of one model on one dataset.

    Raises FirstPassError if the file holds no such model, or several and none was named, or several datasets.

    - `passes`: all that the file holds.
    - `source`: the file, for messages.
    - `name`: the model's name in the file; None where it holds but one.
    """
    models = list(dict.fromkeys(one.model or "(not named)" for one in passes))
    if name is None and len(models) > 1:
        raise FirstPassError(f"{source} holds {len(models)} models; choose one with --name: {', '.join(models)}")
    if name is not None and name not in models:
        raise FirstPassError(
            f"{source}: expected --name to be one of {', '.join(models)}, got {name!r}{suggestion(name, models)}"
        )
    found = tuple(one for one in passes if (one.model or "(not named)") == (name or models[0]))
    datasets = list(dict.fromkeys(one.dataset or "(not named)" for one in found))
    if len(datasets) > 1:
        raise FirstPassError(
            f"{source} holds {models[0] if name is None else name} on {len(datasets)} datasets "
            f"({', '.join(datasets)}); keep the rows of one in a file of its own"
        )
    return found


def questions_to_force(passes: Iterable[FirstPass], source: str) -> tuple[Question, ...]:
    """Return every refused question once a draw, by the id that `FirstPass.forced_id` gives it.

    Raises FirstPassError if nothing was refused, the file lacks what it takes to ask and to grade, or two prompt
    variants have different questions under one id.
    """
    passes = tuple(passes)
    refused = [one for one in passes if one.needs_forcing]
    without = sum(one.grade is Grade.REFUSED for one in passes)
    if without and not refused:
        raise FirstPassError(
            f"{source}: expected refused questions that have a right answer, got {without:,} without one: a forced "
            "answer would be wrong whatever it is; 'refusal-index import' and 'score' take the file as it is"
        )
    if not refused:
        raise FirstPassError(
            f"{source}: expected refused questions, got none; if its grades know right and wrong only, say with "
            "--refusal REGEX how a refusal is worded"
        )
    _check_known(refused, source)
    questions: dict[str, Question] = {}
    for one in refused:
        question = replace(one.question, question_id=one.forced_id)
        if questions.setdefault(one.forced_id, question).text != question.text:
            raise FirstPassError(
                f"{source}: expected one question of the id {one.question.question_id!r}, got two with different "
                "texts; give each an id of its own"
            )
    return tuple(questions.values())


def _check_known(refused: Sequence[FirstPass], source: str) -> None:
    for role, lacking in (
        ("question", [one for one in refused if one.question.text == NOT_KNOWN]),
        ("answer", [one for one in refused if one.question.gold == NOT_KNOWN]),
    ):
        if lacking:
            raise FirstPassError(
                f"{source}: expected the {role} of every refused question, got {len(lacking):,} of {len(refused):,} "
                f"without one (first: question_id {lacking[0].question.question_id!r}); add a column for it, or name "
                f"the column that holds it with --column {role}=NAME"
            )
