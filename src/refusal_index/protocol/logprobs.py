"""Log probabilities of the tokens of a reply, as they are stored."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from refusal_index.data.text import sound_text
from refusal_index.errors import shortened

DIGITS = 6
IMPOSSIBLE = -9999.0
"""What OpenAI and vLLM report for a token of probability zero, because JSON has no minus infinity."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a reply, and its log probability.

    Attributes
    ----------
    token
        Its text; a token that is only part of a character has no text of its own.
    logprob
        Natural logarithm of its probability at this position.
    alternatives
        The most likely tokens at this position with theirs, most likely first; empty if not requested.
    """

    token: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


def write_logprobs(tokens: Iterable[TokenLogprob]) -> str:
    """Return tokens as JSON: ``token``, ``logprob`` to six decimals and, if there are any, ``top_logprobs``.

    Raises
    ------
    ValueError
        If a log probability is not a number.

    Examples
    --------
    >>> write_logprobs([TokenLogprob("Lima", -1.6094379)])
    '[{"token":"Lima","logprob":-1.609438}]'
    """
    entries = []
    for token in tokens:
        alternatives = [_scored(*pair) for pair in token.alternatives]
        entries.append(_scored(token.token, token.logprob) | ({"top_logprobs": alternatives} if alternatives else {}))
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_logprobs(text: str | None) -> tuple[TokenLogprob, ...] | None:
    """Return the tokens of a reply; None if there is no record of them.

    Parameters
    ----------
    text
        The JSON of `write_logprobs`, or of a provider in OpenAI's format; further keys are ignored.

    Raises
    ------
    ValueError
        If it has another format.

    Examples
    --------
    >>> read_logprobs('[{"token": "Lima", "logprob": -0.25}]')
    (TokenLogprob(token='Lima', logprob=-0.25, alternatives=()),)
    >>> read_logprobs(None) is None
    True
    """
    if text is None:
        return None
    try:
        entries = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"logprobs: expected JSON, got {shortened(text)} ({error})") from error
    tokens = []
    for entry in _listed(entries, "logprobs"):
        alternatives = _listed(entry.get("top_logprobs") or [], "logprobs, top_logprobs")
        tokens.append(TokenLogprob(*_pair(entry), tuple(map(_pair, alternatives))))
    return tuple(tokens)


def _scored(token: str, logprob: float) -> dict[str, Any]:
    rounded = IMPOSSIBLE if logprob == -math.inf else round(logprob, DIGITS) + 0.0  # + 0.0 turns -0.0 into 0.0
    return {"token": sound_text(token), "logprob": rounded}


def _pair(entry: Mapping[str, Any]) -> tuple[str, float]:
    token = entry.get("token")
    logprob = entry.get("logprob")
    if not isinstance(token, str) or not _is_number(logprob):
        raise ValueError(f"logprobs: expected 'token' as text and 'logprob' as a number, got {shortened(entry)}")
    return token, float(logprob)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _listed(entries: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ValueError(f"{name}: expected a list of tokens, got {shortened(entries)}")
    return entries


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
