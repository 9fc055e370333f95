"""What a run's logs add up to: the outcome table, the tokens paid for, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from refusal_index.engines.inspect.carried import Carried
from refusal_index.engines.inspect.disagreements import Disagreement, disagreements
from refusal_index.engines.inspect.logs import LogError, LoggedQuestion, read_questions
from refusal_index.engines.inspect.run import finished_logs
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import UNPRICED, Prices, Tokens
from refusal_index.outcomes.summary import Usage
from refusal_index.outcomes.table import Identification, outcome_table
from refusal_index.protocol import Asked, Pass


@dataclass(frozen=True)
class Missing:
    """A question that could not be finished, and the error that kept it from it."""

    variant: str
    question_id: str
    error: str


@dataclass(frozen=True)
class Derived:
    """Everything that follows from a run's logs.

    Attributes
    ----------
    outcomes
        The outcome table.
    usage
        Requests, tokens and cost by variant. A forced answer that several variants share counts for the first of them.
    missing
        Questions that ended in an error.
    disagreements
        Replies over which two graders differ.
    """

    outcomes: pl.DataFrame
    usage: Mapping[str | None, Usage]
    missing: tuple[Missing, ...]
    disagreements: tuple[Disagreement, ...] = ()


def derive(folder: RunFolder, prices: Prices = UNPRICED) -> Derived:
    """Read the logs of a run and return what they add up to, variants in the order of their prompt set.

    Raises
    ------
    LogError
        If no log of a finished variant is there.
    RunFolderError
        If the folder is not a run's.
    """
    settings = folder.read_settings()
    logs = finished_logs(folder)
    if not logs:
        raise LogError(f"{folder.logs}: no variant was run to its end; run the same command again to resume")
    logged = {name: list(read_questions(logs[name])) for name in settings["prompts"]["variants"] if name in logs}
    rows = (
        (Identification(settings["model"], settings["dataset"]["name"], variant, one.draw), one.question, one.outcome)
        for variant, questions in logged.items()
        for one in questions
    )
    return Derived(
        outcome_table(rows), _usage(logged, prices), tuple(_missing(logged)), tuple(disagreements({**logged}))
    )


def _missing(logged: Mapping[str, Sequence[LoggedQuestion]]) -> Iterator[Missing]:
    for variant, questions in logged.items():
        for one in questions:
            if one.error is not None:
                yield Missing(variant, one.question.question_id, one.error)


def _usage(logged: Mapping[str, Sequence[LoggedQuestion]], prices: Prices) -> dict[str | None, Usage]:
    shared: set[tuple[object, ...]] = set()
    usage: dict[str | None, Usage] = {}
    for variant, questions in logged.items():
        paid = [carried for one in questions for carried in one.carried if _is_new(variant, one, carried, shared)]
        usage[variant] = total(paid, prices)
    return usage


def _is_new(variant: str, logged: LoggedQuestion, carried: Carried, shared: set[tuple[object, ...]]) -> bool:
    """Whether the reply was not paid for under an earlier variant; remembers it."""
    reply = carried.reply
    of_variant = variant if reply.of is Pass.FIRST else None
    key = (logged.question.question_id, carried.draws, of_variant, reply.of, reply.asked, carried.attempt)
    new = key not in shared
    shared.add(key)
    return new


def total(paid: Sequence[Carried], prices: Prices) -> Usage:
    """Add up what some replies took."""
    own = _tokens(one for one in paid if one.reply.asked is Asked.MODEL)
    graders = _tokens(one for one in paid if one.reply.asked is not Asked.MODEL)
    return Usage(
        input_tokens=own[0] + graders[0],
        output_tokens=own[1] + graders[1],
        requests=sum(one.requests for one in paid),
        cost=prices.cost(own, graders),
        unpriced_tokens=sum(graders) if prices.grader is None else 0,
    )


def _tokens(paid: Iterable[Carried]) -> Tokens:
    counts = [(one.input_tokens, one.output_tokens) for one in paid]
    return sum(read for read, _ in counts), sum(written for _, written in counts)
