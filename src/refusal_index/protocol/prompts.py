"""Prompt sets as files: loaded by name or path, checked whole, and every mistake named with its field."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from refusal_index.outcomes.errors import shortened
from refusal_index.protocol.prompt_set import FORCED, UNANSWERED, Example, PromptSet, PromptSetError, Variant, unknown

__all__ = [
    "FORCED",
    "UNANSWERED",
    "Example",
    "PromptSet",
    "PromptSetError",
    "Variant",
    "load_prompt_set",
    "prompt_set_names",
]

OPTIONAL = {"context": {"context"}, "choices": {"choices"}, "choice": {"letter", "choice"}}
KINDS: dict[type, str] = {str: "a string", list: "an array", dict: "a table"}


def prompt_set_names() -> list[str]:
    """Return the names of the prompt sets that come with the package.

    Examples
    --------
    >>> prompt_set_names()
    ['confidence-targets', 'default', 'paraphrases']
    """
    folder = resources.files("refusal_index.protocol") / "data"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_prompt_set(name_or_path: str | Path) -> PromptSet:
    """Load a prompt set by the name of a shipped one or by the path of a TOML file.

    Raises
    ------
    PromptSetError
        If there is no such set, the file is not TOML, or a field is missing or wrong.

    Examples
    --------
    >>> len(load_prompt_set("default").examples)
    10
    """
    if str(name_or_path) in prompt_set_names():
        return _shipped(str(name_or_path))
    path = Path(name_or_path)
    if not path.is_file():
        raise PromptSetError(
            f"no prompt set {unknown(str(name_or_path), prompt_set_names())} or give the path of a TOML file"
        )
    return _parse(path.read_bytes(), str(path))


@cache
def _shipped(name: str) -> PromptSet:
    resource = resources.files("refusal_index.protocol") / "data" / f"{name}.toml"
    return _parse(resource.read_bytes(), f"{name}.toml")


def _parse(content: bytes, source: str) -> PromptSet:
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PromptSetError(f"{source}: not valid TOML: {error}") from error
    if data.keys() & {"models", "datasets", "defaults"}:
        raise PromptSetError(
            f"{source}: expected a prompt set, got a configuration of models and datasets; 'refusal-index run --config "
            f"{source}' runs it"
        )
    examples = tuple(
        _example(entry, f"{source}, example {number}")
        for number, entry in enumerate(_field(data, "examples", list, source), start=1)
    )
    variants = _field(data, "variants", dict, source)
    if not variants:
        raise PromptSetError(f"{source}: 'variants' is empty; expected at least one first-pass variant")
    if FORCED in variants:
        raise PromptSetError(f"{source}: '{FORCED}' names the second pass and cannot be a first-pass variant")
    prompts = PromptSet(
        name=_field(data, "name", str, source),
        preamble=_template(data, "preamble", {"examples", "instruction"}, source),
        question=_template(data, "question", {"question"}, source),
        example=_template(data, "example", {"number", "question", "answer"}, source),
        examples=examples,
        variants={
            name: _variant(entry, f"{source}, variants.{name}", len(examples)) for name, entry in variants.items()
        },
        forced=_variant(_field(data, FORCED, dict, source), f"{source}, {FORCED}", len(examples)),
        **{name: _template(data, name, fields, source) for name, fields in OPTIONAL.items() if name in data},
    )
    if prompts.forced.unanswered:
        raise PromptSetError(f"{source}, {FORCED}: 'unanswered' must be empty; the forced pass shows no refusals")
    if prompts.forced.target is not None:
        raise PromptSetError(f"{source}, {FORCED}: the forced pass declines nothing; remove 'target'")
    if prompts.forced.paraphrase_of:
        raise PromptSetError(f"{source}, {FORCED}: the forced pass paraphrases nothing; remove 'paraphrase_of'")
    _refuse_unknown(data, PromptSet, source)
    for name, variant in prompts.variants.items():
        _check_paraphrase(name, variant, prompts.variants, source)
    return prompts


def _refuse_unknown(data: Mapping[str, Any], kind: type, place: str) -> None:
    """Raise for a field that is none: a misspelt optional one would be left out without a word."""
    known = [field.name for field in fields(kind)]
    for name in data:
        if name not in known:
            raise PromptSetError(f"{place}: no field is called {unknown(name, known)}")


def _check_paraphrase(name: str, variant: Variant, variants: Mapping[str, Variant], source: str) -> None:
    """Raise unless a paraphrase differs from a variant that stands for itself in its wording alone."""
    said = variant.paraphrase_of
    if said is None:
        return
    place = f"{source}, variants.{name}: 'paraphrase_of'"
    if said not in variants:
        raise PromptSetError(
            f"{place} names no variant: {unknown(said, [known for known in variants if known != name])}"
        )
    if variants[said].paraphrase_of is not None or said == name:
        raise PromptSetError(f"{place} must name a variant that paraphrases none, found '{said}'")
    if variant.unanswered != variants[said].unanswered:
        raise PromptSetError(
            f"{source}, variants.{name}: 'unanswered' must be that of '{said}', which it paraphrases, found "
            f"{list(variant.unanswered)} and {list(variants[said].unanswered)}; a family differs in wording alone"
        )


def _field(table: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    value = table.get(name)
    if not isinstance(value, kind):
        found = "nothing" if value is None else KINDS.get(type(value), shortened(value))
        raise PromptSetError(f"{place}: '{name}' must be {KINDS[kind]}, found {found}")
    return value


def _template(table: Mapping[str, Any], name: str, fields: set[str], place: str) -> str:
    text: str = _field(table, name, str, place)
    try:
        found = {placeholder(*field) for _, *field in string.Formatter().parse(text) if field[0] is not None}
    except ValueError as error:
        raise PromptSetError(f"{place}: template '{name}': {error}; write a literal brace twice") from error
    expected = {placeholder(field) for field in fields}
    if found != expected:
        shown = ", ".join(sorted(found)) or "none"
        raise PromptSetError(
            f"{place}: template '{name}' must have the fields {', '.join(sorted(expected))}, found {shown}; "
            "write a literal brace twice"
        )
    return text


def placeholder(field: str | None, spec: str | None = None, conversion: str | None = None) -> str:
    """Return a replacement field as it is written in a template."""
    return "{" + f"{field}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}" + "}"


def _example(entry: Any, place: str) -> Example:
    if not isinstance(entry, dict):
        raise PromptSetError(f"{place}: must be a table with 'question' and 'answer'")
    return Example(_field(entry, "question", str, place), _field(entry, "answer", str, place))


def _variant(entry: Any, place: str, n_examples: int) -> Variant:
    if not isinstance(entry, dict):
        raise PromptSetError(f"{place}: must be a table with 'instruction' and 'unanswered'")
    unanswered = tuple(_field(entry, "unanswered", list, place))
    numbers = range(1, n_examples + 1)
    if not all(type(number) is int and number in numbers for number in unanswered):
        raise PromptSetError(f"{place}: 'unanswered' must hold example numbers from 1 to {n_examples}")
    instruction = _field(entry, "instruction", str, place)
    _refuse_unknown(entry, Variant, place)
    said = _field(entry, "paraphrase_of", str, place) if "paraphrase_of" in entry else None
    return Variant(instruction, unanswered, said, _target(entry, place))


def _target(entry: Mapping[str, Any], place: str) -> float | None:
    target = entry.get("target")
    if target is None:
        return None
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 <= target < 1:
        raise PromptSetError(f"{place}: 'target' must be a confidence from 0 to below 1, found {shortened(target)}")
    return float(target)
