"""What methods ask beside a run, as data: the prompts, and the scale of confidence in words."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from refusal_index.data.errors import listed, shortened
from refusal_index.plugins.confidence.method import Prompt
from refusal_index.protocol import PromptSetError
from refusal_index.protocol.prompts import placeholder

SOURCE = "prompts.toml"
FIELDS = {"template": str, "is_graded": bool, "draws": int}


@dataclass(frozen=True)
class Asking:
    """What methods ask.

    Attributes
    ----------
    prompts
        By name.
    scale
        Phrases by which a confidence is said in words, each with the probability that it is read as.
    """

    prompts: Mapping[str, Prompt]
    scale: Mapping[str, float]


@cache
def shipped() -> Asking:
    """Return what comes with the package.

    Examples
    --------
    >>> list(shipped().prompts)
    ['verbalised-number', 'verbalised-words', 'verbalised-number-after', 'verbalised-words-after', 'p-true']
    >>> shipped().scale["about even"]
    0.5
    """
    return read_prompts((resources.files("refusal_index.plugins.confidence") / "data" / SOURCE).read_bytes(), SOURCE)


def read_prompts(content: bytes, source: str) -> Asking:
    r"""Read prompts and scale from TOML.

    Parameters
    ----------
    content
        The table ``prompts``, of tables with a ``template`` and, where they differ from `Prompt`'s defaults,
        ``is_graded`` and ``draws``; and the table ``scale``, of phrases with their probabilities.
    source
        What to call it in messages.

    Raises
    ------
    PromptSetError
        If it is not TOML, or a field is missing, wrong or unknown; the message names it.

    Examples
    --------
    >>> read_prompts(b'[prompts.sure]\ntemplate = "{question} {answer}: sure?"', "own.toml").prompts["sure"].draws
    1
    >>> read_prompts(b'[prompts.sure]\ntemplate = "{answer}: sure?"', "own.toml")
    Traceback (most recent call last):
        ...
    refusal_index.protocol.prompts.PromptSetError: own.toml, prompts.sure: 'template' must have the field {question}
    and may have {answer}, found {answer}; write a literal brace twice
    """
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PromptSetError(f"{source}: not valid TOML: {error}") from error
    _refuse_unknown(data, [one.name for one in fields(Asking)], source)
    prompts = _table(data.get("prompts", {}), f"{source}, prompts")
    scale = _table(data.get("scale", {}), f"{source}, scale")
    return Asking(
        MappingProxyType({name: _prompt(name, entry, f"{source}, prompts.{name}") for name, entry in prompts.items()}),
        MappingProxyType(
            {phrase: _probability(value, f"{source}, scale, {phrase!r}") for phrase, value in scale.items()}
        ),
    )


def _prompt(name: str, entry: Any, place: str) -> Prompt:
    given = _table(entry, place)
    _refuse_unknown(given, FIELDS, place)
    if "template" not in given:
        raise PromptSetError(f"{place}: expected a 'template', got none")
    for field, kind in FIELDS.items():
        if field in given and type(given[field]) is not kind:
            raise PromptSetError(f"{place}: '{field}' must be of type {kind.__name__}, found {shortened(given[field])}")
    prompt = Prompt(name, given["template"].strip(), given.get("is_graded", False), given.get("draws", 1))
    if prompt.draws < 1:
        raise PromptSetError(f"{place}: 'draws' must be 1 or more, found {prompt.draws}")
    _check_fields(prompt, place)
    return prompt


def _check_fields(prompt: Prompt, place: str) -> None:
    """Raise unless the template can be filled in: a misspelt field would end a run in the middle."""
    try:
        found = {placeholder(*parts) for _, *parts in string.Formatter().parse(prompt.template) if parts[0] is not None}
    except ValueError as error:
        raise PromptSetError(f"{place}: 'template': {error}; write a literal brace twice") from error
    may = set() if prompt.is_graded else {"{answer}"}
    if "{question}" not in found or found - {"{question}"} - may:
        allowed = "and no other, as its reply holds the answer" if prompt.is_graded else "and may have {answer}"
        shown = ", ".join(sorted(found)) or "none"
        raise PromptSetError(
            f"{place}: 'template' must have the field {{question}} {allowed}, found {shown}; write a literal brace "
            "twice"
        )


def _probability(value: Any, place: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise PromptSetError(f"{place}: expected a probability from 0 to 1, found {shortened(value)}")
    return float(value)


def _table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PromptSetError(f"{place}: expected a table, found {shortened(value)}")
    return value


def _refuse_unknown(given: Mapping[str, Any], known: Collection[str], place: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise PromptSetError(f"{place}: expected {listed(known)}, found {listed(unknown)}")
