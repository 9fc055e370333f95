"""The embedded default: a small language model of a closed, made-up world, its runtime and its server.

The model knows the almanac's facts and nothing else. It makes the whole pipeline run for real without a key, a download
or an accelerator; what it says about anything outside the almanac is worth nothing.

The modules need the packages of the extra ``eval``; importing this one loads none of them.
"""

from __future__ import annotations

from refusal_index.errors import RefusalIndexError

ALMANAC = "almanac"
"""What the questions are called, and the provider of the models."""


class AlmanacError(RefusalIndexError):
    """Any error of the embedded models."""


class ModelNotFoundError(AlmanacError, ValueError):
    """There is no embedded model of that name."""


class ModelFileError(AlmanacError, ValueError):
    """A model file that is missing, damaged or of another kind."""


class RequestError(AlmanacError, ValueError):
    """A request that an embedded model cannot answer.

    Attributes
    ----------
    param
        The argument at fault, by the name it has in the OpenAI API.
    code
        The API's short name of the fault, where it has one.
    status
        The status of HTTP that tells of it.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


class ContextLengthError(RequestError):
    """The messages leave no room for a reply."""

    def __init__(self, prompt_tokens: int, context: int) -> None:
        super().__init__(
            f"the messages take at least {prompt_tokens} tokens and the model reads at most {context}, the reply "
            "included; shorten the messages",
            param="messages",
            code="context_length_exceeded",
        )


class BatchLineError(RequestError):
    """A line of a batch file without a valid request.

    Attributes
    ----------
    line
        The number of the line, from 1; none if the fault is the whole file's.
    """

    def __init__(self, message: str, *, code: str, line: int | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param, code=code)
        self.line = line
