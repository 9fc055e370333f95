"""Import of Inspect logs: of any task as first passes; of ``two_pass`` or ``export --to inspect`` with both passes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalLog, EvalSample, read_eval_log
from inspect_ai.model import ChatMessage
from inspect_ai.scorer import Score

from refusal_index.data.archives import check_unpacked_size
from refusal_index.data.files import check_plain
from refusal_index.data.first_pass import (
    FIRST_EMPTY,
    NOT_KNOWN,
    FirstPass,
    FirstPassError,
    FirstPasses,
    Incomplete,
    from_outcomes,
)
from refusal_index.data.grade_flags import grade_of_flags
from refusal_index.data.grade_words import ANSWERED, Translations, read_grades, without_answered
from refusal_index.data.graded import COLUMNS, question_of
from refusal_index.data.imports import ReadOptions
from refusal_index.data.nested import with_paths
from refusal_index.data.outcome import NOT_GRADED, REQUEST_FAILED, Grade, Question
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.data.source_files import SourceFile
from refusal_index.data.tables import Row, Source, present_columns, resolve_columns
from refusal_index.data.text import is_blank
from refusal_index.errors import OutcomeTableError, shortened
from refusal_index.plugins.inspect.client import STOP_REASONS
from refusal_index.plugins.inspect.outcomes import OUTCOME
from refusal_index.protocol import StopReason

CUT = {StopReason.LENGTH: "first_truncated", StopReason.CONTENT_FILTER: "first_content_filter"}
ABSTENTION_COLUMNS = {"answer": "metadata.ref_answer", "unanswerable": "metadata.abstention_label"}
"""The scorer of AbstentionBench, which says whether a reply abstains, and where its samples hold the gold answer."""

ROLES = ("question", "answer", "aliases", "choices", "topic", "context", "answerable", "unanswerable")
"""Roles of which a log holds the values."""

MAX_ENTRY = 64 << 20
MAX_LOG = 4 << 30
"""Maximum uncompressed bytes of one entry of a log and of all entries."""


def read_log(file: SourceFile, options: ReadOptions) -> FirstPasses:
    """Read a log for `import`; raise FirstPassError if it cannot be read."""
    needs_scores = options.grader is None
    return read_foreign_log(file.path, options.scorer, options.words, options.columns, needs_scores=needs_scores)


def read_foreign_log(
    path: Path,
    scorer: str | None = None,
    words: Translations | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    needs_scores: bool = True,
) -> FirstPasses:
    """Return the first passes of a log, or both passes if its samples hold their outcomes.

    Each epoch is a draw. The grade is read from ``grade`` in the score's metadata if that is text, otherwise from the
    score's value. A truncated or filtered reply that is graded as a refusal is unscored, as are empty replies and
    samples that ended in an error or have no score.

    Parameters
    ----------
    path
        The log, in either of Inspect's formats.
    scorer
        The scorer whose score is the grade; None if the log has only one.
    words
        Translations of words in the scores.
    columns
        Where the fields of a question are in a sample, by role, such as ``metadata.ref_answer``.
    needs_scores
        Whether a log without scores is an error; otherwise its answers are unscored.

    Raises
    ------
    FirstPassError
        If the log cannot be read, a scorer has to be chosen, or a grade is unknown.
    """
    log = _read(path)
    samples = log.samples or []
    if any(_recorded(sample) is not None for sample in samples):
        return FirstPasses(_both_passes(path, log, samples), incomplete=_incomplete(log, samples))
    if not samples:
        raise FirstPassError(f"{path}: expected samples, found none; is the log complete?")
    errors = [sample.error.message for sample in samples if sample.error]
    if len(errors) == len(samples):
        raise FirstPassError(
            f"{path}: expected answers, but all {len(samples):,} samples failed ({shortened(errors[0])}); run the "
            "evaluation again, or repeat what failed with 'inspect eval-retry'"
        )
    names = list(dict.fromkeys(name for sample in samples for name in sample.scores or ()))
    if names or needs_scores:
        scorer = scorer or _only_scorer(path, names)
    if scorer is not None and scorer not in names:
        raise FirstPassError(
            f"{path}: expected scores of {scorer!r}, got {', '.join(names) or 'none'}; choose one of these"
        )
    values = [_grade_in((sample.scores or {}).get(scorer or "")) for sample in samples]
    if scorer == "abstention_bench_scorer":
        words = {"yes": "refused", "no": ANSWERED, **(words or {})}
        columns = {**ABSTENTION_COLUMNS, **(columns or {})}
    values, are_answered = without_answered(values, words or {})
    grades = _grades(path, samples, values, scorer, words or {})
    questions = _questions(path, samples, columns or {})
    passes = [_first_pass(log, *parts) for parts in zip(samples, questions, grades, strict=True)]
    return FirstPasses(
        tuple(
            replace(first, grade=None, reason=None) if is_answered and first.reason == NOT_GRADED else first
            for first, is_answered in zip(passes, are_answered, strict=True)
        ),
        other_scorers=tuple(name for name in names if name != scorer),
        incomplete=_incomplete(log, samples),
    )


def _grade_in(score: Score | None) -> Any:
    """Return the part of a score that holds the grade; None without a score."""
    if score is None:
        return None
    grade = (score.metadata or {}).get("grade")
    return grade if isinstance(grade, str) and grade.strip() else score.value


def _incomplete(log: EvalLog, samples: Sequence[EvalSample]) -> Incomplete | None:
    """Return what a log lacks; None if its evaluation succeeded on the whole dataset."""
    found = len({sample.id for sample in samples})
    expected = log.eval.dataset.samples
    if log.status == "success" and (expected is None or found >= expected):
        return None
    return Incomplete(found, expected, log.status)


def _grades(
    path: Path, samples: Sequence[EvalSample], values: Sequence[Any], scorer: str | None, words: Translations
) -> list[Grade | None]:
    """Return the grade of every sample; None for one that failed or was not graded."""

    def place(index: int) -> str:
        return f"{path}, sample {samples[index].id!r}, score {scorer!r}"

    def wrong(index: int, message: str) -> FirstPassError:
        return FirstPassError(f"{place(index)}: {message}")

    is_scored = [not sample.error for sample in samples]
    plain = [
        value if scored and not isinstance(value, Mapping) else None
        for value, scored in zip(values, is_scored, strict=True)
    ]
    grades = read_grades(plain, words, wrong, inspect_letters=True, of_scorer=True)
    for index, value in enumerate(values):
        if isinstance(value, Mapping) and is_scored[index]:
            try:
                grades[index] = grade_of_flags(value)
            except ValueError as error:
                raise wrong(index, f"{error}; choose another scorer").with_remedy("scorer", "NAME") from None
    return grades


def _read(path: Path) -> EvalLog:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(check_plain(path.resolve())) as archive:
                check_unpacked_size(archive, MAX_ENTRY, MAX_LOG)
        return read_eval_log(str(path), exclude_fields={"events", "messages", "attachments", "store", "timelines"})
    except Exception as error:  # Inspect passes on all errors of its zip and JSON readers
        raise FirstPassError(
            f"{path}: not a readable Inspect log ({type(error).__name__}: {error}); is it complete, with .eval "
            "or .json at the end of its name?"
        ) from error


def _both_passes(path: Path, log: EvalLog, samples: Sequence[EvalSample]) -> tuple[FirstPass, ...]:
    """Return both passes of a log whose samples hold their outcomes."""
    try:
        return from_outcomes(read_outcomes([_outcome(log, sample) for sample in samples]))
    except OutcomeTableError as error:
        raise FirstPassError(f"{path}: the outcomes in its samples cannot be read ({error})") from error


def _recorded(sample: EvalSample) -> Mapping[str, Any] | None:
    """Return the row of the outcome table in a sample's metadata; solvers of others may keep it as ``outcome``."""
    own = sample.metadata.get(OUTCOME)
    if isinstance(own, Mapping):
        return own
    row = sample.metadata.get("outcome")
    return row if isinstance(row, Mapping) and {"refused", "wrong"} <= row.keys() else None


def _outcome(log: EvalLog, sample: EvalSample) -> dict[str, Any]:
    """Return the row of a sample. What its outcome lacks is in the sample; a sample without an outcome is unscored."""
    row = _recorded(sample)
    if row is not None and "schema_version" in row:  # a whole row, which `export` wrote
        return dict(row)
    known = {
        "model": log.eval.model,
        "dataset": log.eval.dataset.name or log.eval.task,
        "question_id": str(sample.id),
        "draw": sample.epoch - 1,
        "question": _text(sample.input),
        "gold": (sample.target if isinstance(sample.target, str) else ", ".join(sample.target)) or None,
        "first_reply": sample.output.completion or None,
    }
    if sample.error or row is None:
        return {
            **known,
            "refused": None,
            "wrong": None,
            "unscored_reason": REQUEST_FAILED if sample.error else NOT_GRADED,
        }
    return {**known, **row}


def _only_scorer(path: Path, scorers: Sequence[str]) -> str:
    if len(scorers) == 1:
        return scorers[0]
    if not scorers:
        message = f"{path}: expected scores, found none; score the log with 'inspect score', or here"
        raise FirstPassError(message).with_remedy("grader", "exact")
    message = f"{path}: scored by {', '.join(scorers)}; choose one"
    raise FirstPassError(message).with_remedy("scorer", scorers[0])


def _first_pass(log: EvalLog, sample: EvalSample, question: Question, grade: Grade | None) -> FirstPass:
    """Return the first pass of a sample; a failed sample has no grade."""
    reason = REQUEST_FAILED if sample.error else NOT_GRADED
    stop = sample.output.stop_reason if sample.output.choices else "stop"
    cut = CUT.get(STOP_REASONS.get(stop, StopReason.STOP))
    if grade is Grade.REFUSED and cut:
        grade = None
        reason = cut
    first_pass = FirstPass(
        question=question,
        model=log.eval.model,
        dataset=log.eval.dataset.name or log.eval.task,
        grade=grade or Grade.UNSCORED,
        reply=sample.output.completion or None,
        draw=sample.epoch - 1,
        reason=reason if grade in (None, Grade.UNSCORED) else None,
    )
    if sample.error or not is_blank(first_pass.reply):
        return first_pass
    return first_pass.without_reply(cut or FIRST_EMPTY)


def _questions(path: Path, samples: Sequence[EvalSample], columns: Mapping[str, str]) -> list[Question]:
    """Return the question of every sample.

    - `columns`: paths in a sample by role, instead of the usual ones.
    """
    source = Source(str(path), "log", "sample", FirstPassError)
    rows = [
        Row(source, number, with_paths(_cells(sample), columns.values())) for number, sample in enumerate(samples, 1)
    ]
    known = {role: COLUMNS[role] for role in ROLES}
    names = resolve_columns(source, present_columns(rows), columns, known)
    questions = []
    for row, sample in zip(rows, samples, strict=True):
        values = {role: COLUMNS[role].value(row, names[role]) if role in names else None for role in ROLES}
        if values["unanswerable"] is not None:
            values["answerable"] = not values["unanswerable"]
        questions.append(question_of(values, str(sample.id)))
    return questions


def _cells(sample: EvalSample) -> dict[str, Any]:
    """Return what a sample holds about its question, by usual names; several right choices are one answer."""
    targets = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    metadata = sample.metadata or {}
    topic = metadata.get("topic")
    several = sample.choices and len(targets) > 1
    return {
        "question": _text(sample.input),
        "target": ", ".join(targets) if several else targets,
        "choices": None if several else sample.choices,
        "topic": topic if isinstance(topic, str) else None,
        "metadata": metadata,
    }


def _text(prompt: str | list[ChatMessage]) -> str:
    """Return the text of the question, which in a conversation is the last user message."""
    if isinstance(prompt, str):
        return prompt.strip()
    return next((message.text.strip() for message in reversed(prompt) if message.role == "user"), NOT_KNOWN)
