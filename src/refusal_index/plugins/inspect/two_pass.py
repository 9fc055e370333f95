"""``two_pass``: the solver of any Inspect task in two passes, graded by the task's own scorer.

The first pass is the task as it is, with an instruction that allows to refuse before the prompt. Its reply is read
without the gold answer, and graded if it is an answer. After a refusal, and after an unclear reply, the solver runs
again on the sample as it was at first, with an instruction that forces an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from inspect_ai.agent import Agent, as_solver, is_agent
from inspect_ai.model import ChatMessageUser, ContentText
from inspect_ai.scorer import Score, Scorer
from inspect_ai.solver import Generate, Solver, TaskState, chain, fork, generate, solver

from refusal_index.data.grade_flags import grade_of_flags
from refusal_index.data.grade_words import INSPECT_GRADE
from refusal_index.data.outcome import Grade, Outcome
from refusal_index.errors import RefusalIndexError, suggestion
from refusal_index.plugins.inspect import registry_unqualified_name, task_scorers
from refusal_index.plugins.inspect.client import text_and_reason
from refusal_index.plugins.inspect.outcomes import OUTCOME, SCORER, outcome_row, outcome_score
from refusal_index.protocol import FORCED, Pass, StopReason, load_prompt_set
from refusal_index.protocol.reading import ReadAs, RecognisedBy, read_reply
from refusal_index.protocol.refusals import RefusalRule, refusal_rule

FIRST_LIMIT = "first_limit"
"""`unscored_reason` of a sample whose first pass a limit of the evaluation ended."""

FORCED_LIMIT = "forced_limit"
"""`unscored_reason` of a refused sample whose forced pass a limit of the evaluation ended."""

VERDICT = "refusal_index_verdict"
"""The key of a state's metadata that holds the grade and the reading of its pass, until the outcome is made."""


class TwoPassError(RefusalIndexError, ValueError):
    """A task that `two_pass` cannot measure: it has no scorer, several, or one that does not grade answers."""


@solver
def two_pass(
    inner: Solver | Agent | Sequence[Solver] | None = None,
    variant: str = "normal",
    prompts: str = "instructions",
    refusal: str = "wording",
    scorer: str | None = None,
) -> Solver:
    """Run the solver of a task in two passes, and add the outcome of each sample to its metadata and its scores.

    Parameters
    ----------
    inner
        The task's solver, a list of solvers or an agent; by default ``generate()``.
    variant, prompts
        First-pass variant, and name or path of the prompt set, whose text is put before the prompt.
    refusal
        How a refusal without the tag is recognised, as for the setting ``refusal``, but by no model or function.
    scorer
        Name of the scorer that grades, if the task has several.

    Raises
    ------
    PromptSetError
        If there is no such prompt set or variant.
    PatternError
        If `refusal` is not one of its forms.
    """
    texts = load_prompt_set(prompts)
    asked = _solver(inner)
    first_pass = one_pass(Pass.FIRST, texts.render(variant, "")[0], asked, refusal, scorer)
    forced_pass = one_pass(Pass.FORCED, texts.preambles[FORCED], asked, refusal, scorer)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        start = deepcopy(state)
        _record(state, Outcome(None, None, unscored_reason=FIRST_LIMIT), variant)
        first = await first_pass(state, generate)
        outcome = _first_outcome(first)
        if outcome.refused or outcome.reading == ReadAs.UNCLEAR:
            _record(first, replace(outcome, unscored_reason=FORCED_LIMIT) if outcome.refused else outcome, variant)
            outcome = _with_forced(outcome, await fork(start, forced_pass))
        _record(first, outcome, variant)
        return first

    return solve


@solver
def one_pass(pass_: str, text: str, inner: Solver, refusal: str, scorer: str | None) -> Solver:
    """Run a solver on a prompt that begins with an instruction, and keep the reading and the grade of its reply.

    The second pass runs in a fork, so the grade is given here, where a scorer finds the store of its own pass.
    """
    rule = refusal_rule(refusal)
    asked = chain(instructed(text), inner)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        grader = _grader(scorer)
        state = await asked(state, generate)
        state.metadata[VERDICT] = await _verdict(pass_, state, rule, grader)
        return state

    return solve


@solver
def instructed(text: str) -> Solver:
    """Put a text before the last message of the user, or before all messages if there is none."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001 - Inspect's signature
        users = [message for message in state.messages if isinstance(message, ChatMessageUser)]
        if not users:
            state.messages.insert(0, ChatMessageUser(content=text))
        elif isinstance(users[-1].content, str):
            users[-1].content = f"{text}\n\n{users[-1].content}"
        else:
            users[-1].content = [ContentText(text=text), *users[-1].content]
        return state

    return solve


def _solver(inner: Solver | Agent | Sequence[Solver] | None) -> Solver:
    if inner is None:
        return generate()
    if isinstance(inner, Sequence):
        return chain(list(inner))
    return as_solver(inner) if is_agent(inner) else inner  # type: ignore[return-value] # is_agent narrows no type


def _grader(name: str | None) -> Scorer:
    """Return the scorer of the task that grades; raises TwoPassError if there is none, or it has to be named."""
    scorers = {registry_unqualified_name(scorer): scorer for scorer in task_scorers.get(None) or ()}
    if not scorers:
        raise TwoPassError("two_pass: expected a task with a scorer, which grades both passes, found none; add one")
    if name is None and len(scorers) > 1:
        raise TwoPassError(
            f"two_pass: the task has the scorers {', '.join(scorers)}; name the one that grades answers: "
            f"two_pass(..., scorer={next(iter(scorers))!r})"
        )
    name = name or next(iter(scorers))
    if name not in scorers:
        raise TwoPassError(
            f"two_pass: expected one of the task's scorers, {', '.join(scorers)}, got {name!r}"
            f"{suggestion(name, scorers)}"
        )
    return scorers[name]


async def _verdict(pass_: str, state: TaskState, rule: RefusalRule, grader: Scorer) -> dict[str, str | None]:
    """Return the grade of a reply, what it was read as, and why it is unscored.

    The scorer is not asked about a reply that is read as a refusal, or that cannot be read.
    """
    choices = tuple(choice.value for choice in state.choices)
    text = state.output.completion
    stop_reason = text_and_reason(state.output.choices[0])[1] if state.output.choices else StopReason.STOP
    reading = read_reply(text, state.input_text, choices, stop_reason=stop_reason, refusals=rule)
    read_as = str(reading.recognised_by or reading.read_as)
    if reading.unscored_reason:
        return {"grade": Grade.UNSCORED, "reading": None, "reason": f"{pass_}_{reading.unscored_reason}"}
    if reading.refused:
        return {"grade": Grade.REFUSED, "reading": read_as, "reason": None}
    grade = await _grade(state, grader)
    if grade in (None, Grade.UNSCORED):
        return {"grade": Grade.UNSCORED, "reading": read_as, "reason": f"{pass_}_not_graded"}
    return {"grade": grade, "reading": str(RecognisedBy.GRADER) if grade is Grade.REFUSED else read_as, "reason": None}


def _first_outcome(state: TaskState) -> Outcome:
    """Return the outcome of the first pass alone; an answer without a grade is known to be no refusal."""
    verdict = state.metadata.pop(VERDICT)
    grade = Grade(verdict["grade"])
    refused = None if verdict["reading"] is None else grade is Grade.REFUSED
    is_graded = grade in (Grade.CORRECT, Grade.INCORRECT)
    return Outcome(
        refused,
        grade is Grade.INCORRECT if is_graded else None,
        grade,
        unscored_reason=verdict["reason"],
        first_reply=state.output.completion,
        reading=verdict["reading"],
    )


def _with_forced(first: Outcome, state: TaskState) -> Outcome:
    """Return the outcome with the second pass, which counts if the first refused; refusing again counts as wrong."""
    verdict = state.metadata[VERDICT]
    grade = Grade(verdict["grade"])
    outcome = replace(first, forced_grade=grade, forced_reply=state.output.completion)
    if not first.refused:
        return outcome
    wrong = None if grade is Grade.UNSCORED else grade is not Grade.CORRECT
    return replace(outcome, wrong=wrong, unscored_reason=verdict["reason"])


async def _grade(state: TaskState, grader: Scorer) -> Grade | None:
    """Return the grade that the task's scorer gives; None if it gives none."""
    score: Score | None = await grader(state, state.target)
    if score is None:
        return None
    try:
        if isinstance(score.value, Mapping):
            return grade_of_flags(score.value)
        grade: Grade | None = INSPECT_GRADE(score.value)
    except ValueError as error:
        raise TwoPassError(
            f"two_pass, sample {state.sample_id!r}, score {registry_unqualified_name(grader)!r}: {error}; the Refusal "
            "Index needs a scorer that says whether an answer is correct"
        ) from None
    return grade


def _record(state: TaskState, outcome: Outcome, variant: str) -> None:
    """Put the outcome of a sample into its metadata and its scores."""
    row = outcome_row(outcome, variant, state.epoch - 1)
    state.metadata[OUTCOME] = row
    state.scores = {**(state.scores or {}), SCORER: outcome_score(row)}
