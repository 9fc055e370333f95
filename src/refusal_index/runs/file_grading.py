"""Answers without a grade in other tools' files, graded by models or functions in the folder of a run.

Each reply to a question is graded once, however often it occurs. The folder depends on the replies and the grader only,
so every command that reads the same answers uses the same grades.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from refusal_index.data.datasets import Dataset
from refusal_index.data.first_pass import NOT_KNOWN, FirstPass, FirstPassError
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import NOT_GRADED, Grade, Outcome, Question
from refusal_index.data.run_json import default_run_name
from refusal_index.data.text import is_blank
from refusal_index.findings.run_results import RunResults
from refusal_index.protocol import Completion, Pass, Regrading, Reply, Role, check_gradable
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.gold_answers import without_declining_gold
from refusal_index.runs.graders import grader_of, grader_prompt_of, refusals_of, resolved_refusal
from refusal_index.runs.identity import described_graders, function_sources, grader_identity
from refusal_index.runs.plan import RUNS, Plan, checked
from refusal_index.runs.settings import COMPARABILITY_VERSION, Settings
from refusal_index.runs.store import open_store

VARIANT = "imported"
"""The variant of the replies in the folder."""


def _lacks_grade(first_pass: FirstPass) -> bool:
    return first_pass.grade is None or first_pass.reason == NOT_GRADED


def is_gradable(first_pass: FirstPass) -> bool:
    """Whether a reply without a grade can be graded: it is not empty, and the gold answer is known."""
    return _lacks_grade(first_pass) and first_pass.question.gold != NOT_KNOWN and not is_blank(first_pass.reply)


def check_gold_answers(passes: Iterable[FirstPass]) -> None:
    """Raise FirstPassError if there are neither grades nor replies, or answers without a grade or any gold answer."""
    every = tuple(passes)
    ungraded = [first_pass for first_pass in every if _lacks_grade(first_pass)]
    if len(ungraded) == len(every) and all(first_pass.reply is None for first_pass in ungraded):
        message = "expected replies to grade, got none; name their column"
        raise FirstPassError(message).about("grader").with_remedy("column", "reply=NAME")
    if ungraded and all(first_pass.question.gold == NOT_KNOWN for first_pass in ungraded):
        message = "expected gold answers (with choices: the text or letter of one), got none; name their column"
        raise FirstPassError(message).about("grader").with_remedy("column", "answer=NAME")


def _to_grade(first_pass: FirstPass) -> Question:
    """Return the question of a first pass; its id is a hash of everything that the grade depends on."""
    question = without_declining_gold(first_pass.question)
    parts = [question.text, question.gold, question.aliases, question.context, question.choices, first_pass.reply]
    return replace(question, question_id=hashlib.sha256(json.dumps(parts).encode()).hexdigest(), topic=None)


def prepare_file_grading(passes: Sequence[FirstPass], file: Path, settings: Settings) -> Plan | None:
    """Plan to grade the answers without a grade; None if there are none.

    Executing the plan sends requests to graders only.

    Parameters
    ----------
    passes, file
        The first passes, and the file that they come from.
    settings
        The grader, and how to ask it.

    Raises
    ------
    RefusalIndexError
        If the grader or the folder cannot be used, or no question has a gold answer.
    """
    check_gold_answers(passes)
    replies = {_to_grade(first_pass): first_pass.reply or "" for first_pass in passes if is_gradable(first_pass)}
    if not replies:
        return None
    kind, graders = grader_of(str(settings.grader), at_server=settings.servers.grader_base_url is not None)
    grader_prompt = grader_prompt_of(settings.grader_prompt, graders)
    models = {first_pass.model or file.name for first_pass in passes}
    model = models.pop() if len(models) == 1 else file.name
    settings = replace(settings, model=model, refusal=resolved_refusal(None, graders))
    check_gradable(replies, kind)
    digest = hashlib.sha256("\n".join(sorted(question.question_id for question in replies)).encode()).hexdigest()
    dataset = Dataset(file.name, tuple(replies), digest, f"the answers in {file.name}", "model", "that of the file")
    sources = {name: source for name, source in function_sources(settings, graders, {}).items() if name in graders}
    run_identity = {
        "model": model,
        "dataset": {"name": file.name, "sha256": digest, "questions": len(replies)},
        "grader": grader_identity(graders, grader_prompt, replies, settings),
        "prompts": {"name": VARIANT, "variants": [VARIANT]},
        "seed": settings.seed,
        "answered_only": True,
        "comparability_version": COMPARABILITY_VERSION,
        **({"functions": sources} if sources else {}),
    }
    folder = RunFolder(RUNS / default_run_name(file.name, "answers", run_identity))

    def begin() -> None:
        """Store the replies."""
        with open_store(folder) as store:
            store.put(
                [
                    Completion(question.question_id, VARIANT, 0, Reply(Pass.FIRST, Role.MODEL, reply), requests=0)
                    for question, reply in replies.items()
                ]
            )

    regrading = Regrading(kind, refusals=refusals_of(settings), grader_prompt=grader_prompt, answered_only=True)
    plan = Plan(
        settings,
        dataset,
        graders,
        folder,
        run_identity,
        described_graders(graders, grader_prompt),
        {VARIANT: regrading},
        {VARIANT: dict.fromkeys(replies, 1)},
        title=(model, file.name),
        begin=begin,
    )
    return checked(plan)


def all_graded(run: RunResults) -> RunResults:
    """Return the results of grading the answers of a file; raises RunFailedError if some are not graded."""
    if run.ended is not None or run.missing:
        why = run.ended or run.missing[0].error
        raise RunFailedError(
            f"{len(run.missing):,} of {run.outcomes.height:,} answers are not graded ({why[:200]}); repeat this to "
            "complete them: grades are kept"
        )
    return run


def grades_in(run: RunResults) -> dict[str, Outcome]:
    """Return the outcomes of the replies that were graded in a folder, for `with_grades`."""
    columns = ("question_id", "refused", "wrong", "unscored_reason")
    rows = run.rows.select(columns).collect().iter_rows()
    return {name: Outcome(refused, wrong, unscored_reason=reason) for name, refused, wrong, reason in rows}


def with_grades(first_pass: FirstPass, grades: Mapping[str, Outcome]) -> FirstPass:
    """Return a first pass with the grade of its reply.

    If the file says that the model answered, a reply that the grader takes for a refusal is wrong.
    """
    outcome = grades.get(_to_grade(first_pass).question_id) if is_gradable(first_pass) else None
    if outcome is None:
        return first_pass
    if outcome.refused and first_pass.grade is None:
        return replace(first_pass, grade=Grade.INCORRECT)
    if outcome.refused:
        return replace(first_pass, grade=Grade.REFUSED, reason=None)
    if outcome.wrong is None:
        return replace(first_pass, grade=Grade.UNSCORED, reason=outcome.unscored_reason)
    return replace(first_pass, grade=Grade.INCORRECT if outcome.wrong else Grade.CORRECT, reason=None)
