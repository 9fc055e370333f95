"""Ends a run in which every request fails for a reason that will not pass by itself."""

from __future__ import annotations

from collections.abc import Callable

QUESTIONS_IN_A_ROW = 20
RESUMES = "the same command resumes"
KEY_REFUSED = (401, 403)


class CircuitBreaker:
    """Opens once so many questions in a row ended in such an error that no further one need be tried.

    Attributes
    ----------
    reason
        Why it opened, in one line; None while it is closed.
    on_open
        What is done then.

    Examples
    --------
    >>> breaker = CircuitBreaker()
    >>> for number in range(QUESTIONS_IN_A_ROW):
    ...     breaker.failed("model", "openai/gpt", f"q{number}", "the key is refused")
    >>> breaker.reason
    'openai/gpt failed for 20 questions in a row (the key is refused); the same command resumes'
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.on_open: Callable[[], object] = lambda: None
        self._failed: dict[str, set[str]] = {}

    def worked(self, role: str) -> None:
        """Take note of a reply of whoever is in a role, which breaks the row of failures."""
        self._failed.pop(role, None)

    def failed(self, role: str, model: str, question_id: str, error: str, advice: str = RESUMES) -> None:
        """Take note of an error that will not pass by itself, in which a request about a question ended.

        Parameters
        ----------
        role, model, question_id, error
            Who was asked about what, and what came of it in one line.
        advice
            What a user may do about it.
        """
        failed = self._failed.setdefault(role, set())
        failed.add(question_id)  # a question that is tried again counts once
        if len(failed) >= QUESTIONS_IN_A_ROW:
            self.open(f"{model} failed for {len(failed)} questions in a row ({error}); {advice}")

    def open(self, reason: str) -> None:
        """End the run for a reason; the first one counts."""
        if self.reason is None:
            self.reason = reason
            self.on_open()


def is_key_refused(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, is a provider's answer that the key is not good for this."""
    return any(
        getattr(cause, name, None) in KEY_REFUSED
        for cause in causes(error)
        for name in ("status_code", "code", "status")
    )


def causes(error: BaseException | None) -> list[BaseException]:
    """Return an error and those that led to it, each once."""
    found: dict[int, BaseException] = {}
    while error is not None and id(error) not in found:
        found[id(error)] = error
        error = error.__cause__ or error.__context__
    return list(found.values())
