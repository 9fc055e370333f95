"""Inspect's own batches: which providers have them, how requests wait in them, and what they would lose.

Inspect collects requests, submits them together, and hands each its result; a provider that has no batches is asked one
request at a time, without a word. It keeps the batches that are on their way in memory only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from inspect_ai.model import GenerateConfig, Model, ModelAPI
from inspect_ai.model._providers._openai_batch import OpenAIBatcher
from inspect_ai.model._providers.util import batch_log
from inspect_ai.model._providers.util.batch import Batcher

from refusal_index.engines.engine import Assignment, ModelError
from refusal_index.engines.events import Underway
from refusal_index.errors import RefusalIndexError

COLLECTORS = "_batcher"
"""How the attributes of a provider end that hold what collects its requests."""

NO_BATCHES = ("bedrock", "vertex")
"""Services at which a provider's models are to be had, but not its batches."""

READ_LINE, SUBMIT = "_parse_jsonl_line", "_process_intake_queue"
read_line: Callable[..., Any] = getattr(OpenAIBatcher, READ_LINE)
submit: Callable[..., Any] = getattr(Batcher, SUBMIT)


class BatchedRequestError(RefusalIndexError, RuntimeError):
    """A request of a batch that failed, or that the batch ended before.

    Attributes
    ----------
    status_code, code
        Of its response, and the provider's word for what went wrong; None where there is none.
    body
        As the provider gave it.
    """

    def __init__(self, status_code: object, error: object) -> None:
        held = error if isinstance(error, dict) else {}
        super().__init__(str(held.get("message") or error or "no reason given"))
        self.status_code = status_code if isinstance(status_code, int) else None
        self.code, self.body = held.get("code"), {"error": error}


def has_batches(api: ModelAPI) -> bool:
    """Whether a provider sends its requests in batches where it is told to."""
    return bool(_collectors(api)) and getattr(api, "service", None) not in NO_BATCHES


def _collectors(api: ModelAPI) -> list[str]:
    return [name for name in vars(api) if name.endswith(COLLECTORS)]


def check_batches(model: Model | None, graders: Iterable[Model]) -> None:
    """Raise where requests would be asked one at a time without a word.

    Parameters
    ----------
    model
        Who is evaluated; None where a function is, or only those that grade are asked.
    graders
        The models that grade. One without batches is asked one request at a time beside a model that has them.

    Raises
    ------
    ModelError
        If the model has no batches; where none is asked, if no grader has.
    """
    asked = list(graders) if model is None else [model]
    if not any(has_batches(one.api) for one in asked):
        names = " and ".join(repr(str(one)) for one in asked) or "a function"
        raise ModelError(
            f"{{batch}}: {names} would be asked one request at a time, as Inspect has no batches of it; leave it out, "
            "or choose {engine} batch, which also knows servers with OpenAI's batch API"
        )


def batched(api: ModelAPI, max_retries: int) -> None:
    """Have a provider submit and look after its batches as often as `max_retries` says, should that fail at first.

    Inspect takes the number from the first request, whose own retries are not its business here.
    """
    generate: Callable[..., Any] = api.generate

    async def generate_batched(*args: Any, config: GenerateConfig, **kwargs: Any) -> Any:
        return await generate(*args, config=config.model_copy(update={"max_retries": max_retries}), **kwargs)

    generate_batched.guards = getattr(generate, "guards", None)  # type: ignore[attr-defined]
    setattr(api, "generate", generate_batched)  # noqa: B010 - a plain assignment to a method is an error to the type checker


@contextmanager
def batches_under_way(assignment: Assignment, apis: Iterable[ModelAPI] = ()) -> Iterator[None]:
    """Tell how batches stand while the block runs, and let what fails take nothing else with it.

    What fails in a batch fails all at once, however long after the batch before it: the time says nothing. What
    collected requests in an evaluation before ended with it, and would let those of this one wait for good.
    """
    for api in apis:
        for name in _collectors(api):
            setattr(api, name, None)
    assignment.breaker.patience = math.inf
    batch_log.set_batch_log_callback(lambda _line: None)  # else they are printed, among results
    batch_log.set_batch_status_callback(lambda status: assignment.progress(Underway(_standing(status))))
    setattr(OpenAIBatcher, READ_LINE, _read_line)
    setattr(Batcher, SUBMIT, _submit)
    try:
        yield
    finally:
        setattr(Batcher, SUBMIT, submit)
        setattr(OpenAIBatcher, READ_LINE, read_line)
        batch_log.set_batch_status_callback(None)
        batch_log.set_batch_log_callback(None)


def _standing(status: batch_log.BatchStatus) -> str:
    if not status.batch_count:
        return ""
    return (
        f"{status.batch_count:,} batches on their way: {status.completed_requests:,} requests done, "
        f"{status.failed_requests:,} failed, {status.pending_requests:,} to come"
    )


async def _submit(batcher: Any) -> bool:
    """Submit what waits as Inspect does, which ends the whole evaluation where that fails.

    The requests in it were told by then, and are asked again or not as any that failed.
    """
    try:
        more: bool = await submit(batcher)
    except ValueError:  # of Inspect's own, before anybody was told
        raise
    except Exception:
        return True
    return more


def _read_line(batcher: Any, line: dict[str, Any]) -> tuple[str, Any]:
    """Read one result as Inspect does, unless it is a failure.

    Inspect takes one that has a status and no error for a reply, and a code that is no number for a status, and then
    gives up all that came with it.
    """
    response, error = line.get("response"), line.get("error")
    held = response if isinstance(response, dict) else {}
    status, body = held.get("status_code"), held.get("body")
    if error is None and (not isinstance(status, int) or status < 400) and isinstance(body, dict):
        try:
            found: tuple[str, Any] = read_line(batcher, line)
        except ValueError as failed:  # a body that is no chat completion
            error = str(failed)
        else:
            return found
    told = body.get("error") if error is None and isinstance(body, dict) else error
    return str(line.get("custom_id") or ""), BatchedRequestError(status, told or body)
