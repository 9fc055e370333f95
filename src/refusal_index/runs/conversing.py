"""Conversations about questions: their requests are sent one after the other, several conversations at a time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from refusal_index.models.failures import RESUMES, EndedError, Failure, RequestFailedError, send_with_retries
from refusal_index.models.requests import ModelRequest, Send, model_request, to_completions, variant_of
from refusal_index.protocol import Completion, Conversation, Role, next_requests
from refusal_index.runs.engine import Assignment
from refusal_index.runs.events import Finished, Replied
from refusal_index.runs.store import StoreError, StoreGoneError, StoreSharedError, as_stored

ClassifyError = Callable[[Exception, Role], Failure]
"""Classifies the error that a request to a model ended in."""


async def converse(
    assignment: Assignment, conversation: Conversation, send: Send, classify_error: ClassifyError
) -> None:
    """Send the requests about one question, one after the other, until none is pending or the run has ended.

    Replies are stored at once, and so is the reason why a request failed.

    Raises
    ------
    RequestFailedError
        If a request failed for good.
    StoreError
        If a reply cannot be kept.
    """
    store = assignment.store
    question_id = conversation.question.question_id
    completions_so_far = store.completions(question_id, conversation.variant)
    try:
        while requests := next_requests(conversation, completions_so_far):
            for pending in requests:
                step = pending.step
                variant = variant_of(conversation, step.pass_)
                retired = store.times_retired(question_id, variant, step.pass_, step.role, pending.draw)
                request = model_request(assignment.settings, conversation, pending, retired)
                completions = await _completions(assignment, request, send, classify_error)
                completions_so_far += completions
                assignment.progress(Replied(completions[0]))
    except EndedError:
        return
    except RequestFailedError as error:
        store.record_failure(conversation.variant, question_id, error.failure.message)
        raise
    store.clear_failure(conversation.variant, question_id)
    assignment.progress(Finished(conversation.variant, question_id))


async def _completions(
    assignment: Assignment, request: ModelRequest, send: Send, classify_error: ClassifyError
) -> Sequence[Completion]:
    """Send a request, with retries, and return its replies, as they are stored, once they are."""
    breaker = assignment.breaker
    budget = assignment.budget
    role = request.request.role

    async def once() -> Sequence[Completion]:
        await budget.wait_for_first_cost()
        if reason := budget.used_up():
            breaker.open(reason, planned=True)
            raise EndedError
        with budget.one_request():
            response = await send(request)
        assignment.sent.note(request, response.sent)
        return to_completions(request, response)

    completions = await send_with_retries(
        once,
        lambda error: classify_error(error, role),
        breaker,
        role=role,
        subject=request.conversation.question.question_id,
        max_retries=assignment.settings.sending.max_retries,
    )
    budget.count(completions, assignment.settings.accounts.prices)
    try:
        completions = as_stored(completions)
        await assignment.replies.put(completions)
    except StoreError as error:
        advice = "" if isinstance(error, StoreGoneError | StoreSharedError) else ": free some disk space"
        breaker.open(f"{error}; no further requests are sent{advice}; {RESUMES}")
        raise
    except Exception as error:  # otherwise every further reply would be paid for and lost
        reason = f"{type(error).__name__}: {error}"[:300]
        breaker.open(f"a reply cannot be kept ({reason}); no further requests are sent: please report this; {RESUMES}")
        raise
    return completions


async def execute_concurrently(
    assignment: Assignment, send: Send, classify_error: ClassifyError, concurrency: int
) -> None:
    """Send the requests about all questions, until none is pending or the run has ended.

    Parameters
    ----------
    assignment
        What to ask.
    send, classify_error
        Sends one request, and classifies the error that it ended in.
    concurrency
        Questions in progress at a time, each with one request in flight.
    """
    waiting = iter(assignment.conversations)
    breaker = assignment.breaker

    async def work() -> None:
        for conversation in waiting:
            if breaker.reason is not None:
                return
            try:
                await converse(assignment, conversation, send, classify_error)
            except RequestFailedError:
                pass  # the store holds the error
            except Exception:
                if breaker.reason is None:
                    raise  # otherwise the breaker has the reason

    workers = [asyncio.ensure_future(work()) for _ in range(concurrency)]
    with infrequent_gc():
        await _until_done(workers, assignment)
    for worker in workers:  # raised once all others have finished, so that every reply is stored
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            raise error


CANCELLED_WITHIN = 2.0
"""Seconds that abandoned requests get to close their connections."""


async def _until_done(workers: Sequence[asyncio.Task[None]], assignment: Assignment) -> None:
    """Wait until all workers have ended.

    Once the time is up or this is cancelled, requests in flight get the time of one attempt. Then they are abandoned.
    """
    breaker = assignment.breaker
    budget = assignment.budget
    attempt = assignment.settings.sending.attempt_timeout
    left = budget.seconds_left()
    try:
        await asyncio.wait(workers, timeout=None if left is None else max(left, 0.0) + attempt)
        if any(not worker.done() for worker in workers):
            breaker.check_time()
    except asyncio.CancelledError:
        breaker.open("the run was cancelled", planned=True)
        await asyncio.wait(workers, timeout=attempt)
        raise
    finally:
        busy = [worker for worker in workers if worker.cancel()]
        if busy:
            await asyncio.wait(busy, timeout=CANCELLED_WITHIN)


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect garbage less often while the block runs.

    A run drops few objects in cycles: collecting them at the usual pace takes a fifth of its processor time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
