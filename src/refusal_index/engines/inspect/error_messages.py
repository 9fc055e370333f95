"""What an error of Inspect's comes down to, in one line."""

from __future__ import annotations

import re

RETRIES_USED_UP = re.compile(r"^RetryError.* raised (\w+)>")
SHOWN_ERROR = re.compile(r"([A-Z]\w*(?:Error|Exception))\(")
OPENING_QUOTE, CLOSING_QUOTES = re.compile(r"^\\*['\"]"), re.compile(r"(?:\\*['\"]\)+)+$")


def error_line(shown: str) -> str:
    r"""Return the innermost error and its message.

    Parameters
    ----------
    shown
        The error as `repr` shows it. Inspect wraps the provider's in its own, behind the whole request.

    Examples
    --------
    >>> error_line(r"ModelGenerateError('\nRequest:\n{...}\n\nBadRequestError(\'Error code: 400 - too long\')')")
    'BadRequestError: Error code: 400 - too long'
    >>> error_line("RetryError(<Future at 0x7f70 state=finished raised RateLimitError>)")
    'RateLimitError, however often it was sent again'
    """
    line = " ".join(shown.split())
    if given_up := RETRIES_USED_UP.search(line):
        return f"{given_up[1]}, however often it was sent again"
    errors = list(SHOWN_ERROR.finditer(line))
    if not errors:
        return line
    message = CLOSING_QUOTES.sub("", OPENING_QUOTE.sub("", line[errors[-1].end() :]))
    return f"{errors[-1][1]}: {message}"
