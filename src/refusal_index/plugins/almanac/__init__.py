"""The embedded models: small language models of a fictional world, with their runtime and their server.

The models know the almanac's facts and nothing else. With them the whole pipeline runs without an API key, a download
or an accelerator; their answers about anything outside the almanac are meaningless.

The submodules need the packages of the extra ``eval``; importing this package loads none of them.
"""

from __future__ import annotations

from refusal_index.errors import RefusalIndexError

ALMANAC = "almanac"
"""The name of the dataset, and of the provider of the models."""


class AlmanacError(RefusalIndexError):
    """Base class of the errors of the embedded models."""


class ModelNotFoundError(AlmanacError, ValueError):
    """There is no embedded model of that name."""


class ModelFileError(AlmanacError, ValueError):
    """A model file that is missing, damaged or unsupported."""


class RequestError(AlmanacError, ValueError):
    """A request that an embedded model cannot answer.

    Attributes
    ----------
    param
        The name of the invalid parameter in the OpenAI API.
    code
        The OpenAI API's error code, if there is one.
    status
        The HTTP status of the response.
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
            f"the messages take at least {prompt_tokens} tokens, but the model's context holds {context} including the "
            "reply; shorten the messages",
            param="messages",
            code="context_length_exceeded",
        )


class BatchLineError(RequestError):
    """A line of a batch file without a valid request.

    Attributes
    ----------
    line
        The number of the line, from 1; None if the error concerns the whole file.
    """

    def __init__(self, message: str, *, code: str, line: int | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param, code=code)
        self.line = line
