"""Inspect's logs without keys: each shows a model's address, its arguments, its headers, and all that was said.

Inspect writes them as it goes, the header before anything is asked, so that nothing is left to clean once it is there.
It offers no hold on what is written; hence the one on what turns everything in a log into JSON. Beside them it keeps a
trace of every request, address and all, in a folder of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import LogRecord, getLogger
from typing import Any

from inspect_ai.log._recorders import eval as recorder
from inspect_ai.model._providers.util import hooks

from refusal_index.redaction import redacted

NAME = "to_json_safe"
to_json: Callable[..., bytes] = getattr(recorder, NAME)


@contextmanager
def clean_logs() -> Iterator[None]:
    """Let no key into a log of Inspect's while the block runs."""
    setattr(recorder, NAME, _clean_json)
    try:
        yield
    finally:
        setattr(recorder, NAME, to_json)


def clean_trace() -> None:
    """Let no key into what Inspect traces of requests, from here on."""
    getLogger(hooks.__name__).addFilter(_clean_record)


def _clean_record(record: LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True


def _clean_json(*arguments: Any, **options: Any) -> bytes:
    return redacted(to_json(*arguments, **options).decode()).encode()
