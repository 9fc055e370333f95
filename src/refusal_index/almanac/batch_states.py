"""A batch as a value: the states it goes through, and how OpenAI's batch API tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from refusal_index.almanac.batch_lines import ENDPOINT
from refusal_index.almanac.chat_api import Json
from refusal_index.almanac.errors import BatchLineError, RequestError

WINDOW, WINDOW_SECONDS = "24h", 24 * 60 * 60

_MOST_METADATA, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512


class Status(StrEnum):
    """Where a batch is."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


NEXT: Mapping[Status, frozenset[Status]] = {
    Status.VALIDATING: frozenset({Status.IN_PROGRESS, Status.FAILED, Status.CANCELLING}),
    Status.IN_PROGRESS: frozenset({Status.FINALIZING, Status.FAILED, Status.CANCELLING}),
    Status.FINALIZING: frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLING}),
    Status.CANCELLING: frozenset({Status.CANCELLED, Status.FAILED}),
}
"""The states after each; one that is not here is the last."""


@dataclass(frozen=True)
class BatchRequest:
    """What the body of a request to ``/v1/batches`` asks for."""

    input_file_id: str
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Batch:
    """A batch at one moment."""

    id: str
    asked: BatchRequest
    created_at: int
    status: Status = Status.VALIDATING
    reached: Mapping[str, int] = field(default_factory=dict)
    model: str | None = None
    errors: tuple[BatchLineError, ...] = ()
    total: int = 0
    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None

    def moved(self, status: Status, now: int) -> Batch:
        """Return the batch in another state, reached `now`; raises ValueError if it does not follow."""
        if status not in NEXT.get(self.status, frozenset()):
            raise ValueError(f"a batch that is {self.status} cannot become {status}")
        return replace(self, status=status, reached={**self.reached, f"{status}_at": now})

    def counted(self, *, failed: bool, usage: Mapping[str, int]) -> Batch:
        """Return the batch with one more request answered."""
        return replace(
            self,
            completed=self.completed + (not failed),
            failed=self.failed + failed,
            input_tokens=self.input_tokens + usage.get("prompt_tokens", 0),
            output_tokens=self.output_tokens + usage.get("completion_tokens", 0),
        )

    def document(self) -> Json:
        """Return the batch as the API shows it."""
        times = {f"{status}_at": None for status in Status if status is not Status.VALIDATING}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": ENDPOINT,
            "errors": {"object": "list", "data": [_error(one) for one in self.errors]} if self.errors else None,
            "input_file_id": self.asked.input_file_id,
            "completion_window": WINDOW,
            "status": self.status,
            "model": self.model,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.created_at + WINDOW_SECONDS,
            **times,
            **self.reached,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "usage": self._usage(),
            "metadata": self.asked.metadata,
        }

    def _usage(self) -> Json:
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


def parse_batch_request(body: object) -> BatchRequest:
    """Read the JSON `body` of a request for a batch.

    Raises RequestError if a field is missing, of the wrong type, or asks for something that is not supported.
    """
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    for name in body:
        if name not in _KNOWN and body[name] is not None:
            raise RequestError(f"'{name}' is not supported by this server", param=name, code="unsupported_parameter")
    for name, only in (("endpoint", ENDPOINT), ("completion_window", WINDOW)):
        if body.get(name) != only:
            raise RequestError(f"'{name}' must be '{only}'", param=name)
    source = body.get("input_file_id")
    if not isinstance(source, str):
        raise RequestError("'input_file_id' must be the id of a file", param="input_file_id")
    return BatchRequest(source, _metadata(body.get("metadata")))


def _metadata(given: object) -> Mapping[str, str] | None:
    if given is None:
        return None
    fits = isinstance(given, dict) and len(given) <= _MOST_METADATA
    if not (fits and isinstance(given, dict) and all(_is_pair(name, value) for name, value in given.items())):
        raise RequestError(
            f"'metadata' must be an object of at most {_MOST_METADATA} strings of at most {_LONGEST_VALUE} characters, "
            f"under names of at most {_LONGEST_KEY}",
            param="metadata",
        )
    return given


def _is_pair(name: str, value: object) -> bool:
    return len(name) <= _LONGEST_KEY and isinstance(value, str) and len(value) <= _LONGEST_VALUE


def _error(error: BatchLineError) -> Json:
    return {"code": error.code, "line": error.line, "message": str(error), "param": error.param}


_KNOWN = frozenset({"input_file_id", "endpoint", "completion_window", "metadata"})
