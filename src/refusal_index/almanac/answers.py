"""One chat request from JSON to JSON, whoever brings it: a connection, a batch or a file.

The models of a process by their names, each loaded when it is first asked for.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refusal_index.almanac import ALMANAC
from refusal_index.almanac.chat_api import ChatRequest, Json, completion_body, error_body, parse_chat_request, usage
from refusal_index.almanac.errors import AlmanacError, ModelNotFoundError, RequestError
from refusal_index.almanac.llama import Completion
from refusal_index.almanac.runtime import Runtime


class ModelPool:
    """The models that can be asked.

    Parameters
    ----------
    names
        What there is.
    folder_of
        Where each is.
    """

    def __init__(self, names: Sequence[str], folder_of: Callable[[str], Path]) -> None:
        self.names = tuple(names)
        self._folder_of = folder_of
        self._runtimes: dict[str, Runtime] = {}

    def name(self, model: str) -> str:
        """Return the name of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = model.removeprefix(f"{ALMANAC}/")
        if name not in self.names:
            known = ", ".join(f"{ALMANAC}/{each}" for each in self.names)
            raise ModelNotFoundError(f"The model '{model}' does not exist; there is {known}")
        return name

    def runtime(self, model: str) -> Runtime:
        """Return the runtime of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = self.name(model)
        if name not in self._runtimes:
            self._runtimes[name] = Runtime(self._folder_of(name))
        return self._runtimes[name]

    def close(self) -> None:
        """End the threads of the models."""
        for runtime in self._runtimes.values():
            runtime.close()


_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What comes back for a request: a status of HTTP, and the JSON of a reply or of an error."""

    status: int
    body: Json

    @property
    def failed(self) -> bool:
        """Whether the body is an error."""
        return self.status >= 400


async def ask(pool: ModelPool, body: object, noted: dict[str, Any]) -> tuple[ChatRequest, list[Completion]]:
    """Ask the model that `body` names what it says, and add to `noted` what a log may know of it.

    Raises RequestError or ModelNotFoundError if it cannot be answered as it stands.
    """
    asked = parse_chat_request(body)
    noted.update(model=asked.model, n=asked.settings.n, seed=asked.settings.seed)
    completions = await pool.runtime(asked.model).complete(asked.messages, **asdict(asked.settings))
    noted.update(usage(completions))
    return asked, completions


async def answer(pool: ModelPool, body: object, noted: dict[str, Any]) -> Answer:
    """Answer a request of a batch, which is never an exception: what was wrong is told in its stead."""
    try:
        if isinstance(body, dict) and body.get("stream"):
            raise RequestError("a request of a batch cannot be streamed", param="stream")
        return Answer(200, reply_body(*await ask(pool, body, noted)))
    except Exception as error:
        return error_answer(error, "a request of a batch")


def reply_body(asked: ChatRequest, completions: Sequence[Completion]) -> Json:
    """Return the JSON of a whole response under a new name."""
    return completion_body(asked, completions, **new_identity())


def new_identity() -> dict[str, Any]:
    """Return the name of a new response and the time it was made."""
    return {"identity": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}


def error_answer(error: Exception, what: str) -> Answer:
    """Return the answer to `what` that tells of an error; one that nobody foresaw goes to the server's own log."""
    match error:
        case RequestError():
            return refusal(error.status, str(error), param=error.param, code=error.code)
        case ModelNotFoundError():
            return refusal(404, str(error), param="model", code="model_not_found")
        case AlmanacError():
            return refusal(500, str(error))
    _logger.error("%s failed", what, exc_info=error)
    return refusal(500, "the server failed to answer; its own output says why")


def refusal(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Answer:
    """Return an answer that is an error."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Answer(status, error_body(message, kind=kind, param=param, code=code))
