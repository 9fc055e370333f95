"""How likely a model held the tokens of its reply, as a run's store keeps it: OpenAI's list, as short as it can be."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.text import sound_text

DIGITS = 6
IMPOSSIBLE = -9999.0
"""What OpenAI and vLLM say of a token that was left no probability at all: JSON has no minus infinity."""


@dataclass(frozen=True)
class TokenLogprob:
    """One token of a reply.

    Attributes
    ----------
    token
        Its text; a token that is a part of a character has none of its own.
    logprob
        Natural logarithm of its probability in this place.
    alternatives
        The likeliest tokens in this place with theirs, likeliest first; empty where not asked for.
    """

    token: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


def write_logprobs(tokens: Iterable[TokenLogprob]) -> str:
    """Return tokens as JSON: ``token``, ``logprob`` to six digits and, where there are any, ``top_logprobs`` of each.

    Raises
    ------
    ValueError
        If a logarithm is not a number.

    Examples
    --------
    >>> write_logprobs([TokenLogprob("Lima", -1.6094379)])
    '[{"token":"Lima","logprob":-1.609438}]'
    """
    return json.dumps([_entry(one) for one in tokens], ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_logprobs(text: str | None) -> tuple[TokenLogprob, ...] | None:
    """Return the tokens of a reply, or None where nothing is known of them.

    Parameters
    ----------
    text
        What `write_logprobs` wrote, or a provider in OpenAI's format; further keys are passed over.

    Raises
    ------
    ValueError
        If it is something else.

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
    return tuple(TokenLogprob(*_pair(one), _alternatives(one)) for one in _listed(entries, "logprobs"))


def _entry(one: TokenLogprob) -> dict[str, Any]:
    alternatives = [_scored(*pair) for pair in one.alternatives]
    return {**_scored(one.token, one.logprob), **({"top_logprobs": alternatives} if alternatives else {})}


def _scored(token: str, logprob: float) -> dict[str, Any]:
    rounded = IMPOSSIBLE if logprob == -math.inf else round(logprob, DIGITS) + 0.0  # which turns -0.0 into 0.0
    return {"token": sound_text(token), "logprob": rounded}


def _alternatives(entry: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple(map(_pair, _listed(entry.get("top_logprobs") or [], "logprobs, top_logprobs")))


def _pair(entry: Mapping[str, Any]) -> tuple[str, float]:
    token, logprob = entry.get("token"), entry.get("logprob")
    if not isinstance(token, str) or not _is_number(logprob):
        raise ValueError(f"logprobs: expected 'token' as text and 'logprob' as a number, got {shortened(entry)}")
    return token, float(logprob)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _listed(entries: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise ValueError(f"{name}: expected a list of tokens, got {shortened(entries)}")
    return entries


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
