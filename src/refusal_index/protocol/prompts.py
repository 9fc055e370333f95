"""Prompt sets: the wording of both passes, loaded from TOML and checked as a whole.

A prompt set is a TOML file with a template and, for each first-pass variant and for the forced pass, an instruction. It
may have worked examples; a variant then says which of them are left unanswered. Everything else is equal between
variants, so that a variant changes only the willingness to refuse (the paper, appendix on system prompts). A variant
may be marked as a paraphrase of another: together they form a family that differs only in wording.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from refusal_index.data.outcome import LETTERS
from refusal_index.data.text import parse_toml
from refusal_index.errors import RefusalIndexError, nearest, shortened

FORCED = "forced"
AUXILIARY = "confidence/"
"""Name prefix of auxiliary variants, which are asked in addition to the two passes and do not affect outcomes."""

UNANSWERED = "UNANSWERED"
CONTEXT = "Base your answer on the following text and on nothing else.\n\n<text>\n{context}\n</text>"
CHOICES = "Choose one of these answers and give its letter:\n{choices}"
CHOICE = "{letter}) {choice}"
SHIPPED = {"context": CONTEXT, "choices": CHOICES, "choice": CHOICE}


class PromptSetError(RefusalIndexError, ValueError):
    """A prompt set or a grader's prompt that cannot be used; the message names the file and the field."""


@dataclass(frozen=True)
class Example:
    """A worked example: a question and the answer shown for it."""

    question: str
    answer: str


@dataclass(frozen=True)
class Variant:
    """What distinguishes one prompt variant from another.

    Attributes
    ----------
    instruction
        The sentence on when to refuse.
    unanswered
        Numbers, from 1, of the examples whose reply is UNANSWERED.
    paraphrase_of
        The variant that this one paraphrases; None if it is not a paraphrase.
    target
        The confidence from which answering pays off under the rule stated in the instruction; None if it states none.
    """

    instruction: str
    unanswered: tuple[int, ...] = ()
    paraphrase_of: str | None = None
    target: float | None = None


@dataclass(frozen=True)
class PromptSet:
    """The wording of the two passes.

    Attributes
    ----------
    name
        The name that is recorded with a run.
    preamble
        Template of the text before the question, with the field ``{instruction}`` and, if there are examples,
        ``{examples}``.
    question
        Template of the question, with the field ``{question}``.
    example
        Template of a worked example, with ``{number}``, ``{question}`` and ``{answer}``; empty without examples.
    examples
        The worked examples, the same in every variant; may be empty.
    variants
        First-pass variants by name, in the order of the file: from the least to the most cautious.
    forced
        The forced pass.
    context
        Template of the context, if any, before the question, with the field ``{context}``.
    choices
        Template of the choices, if any, after the question, with the field ``{choices}``.
    choice
        Template of one choice, with ``{letter}`` and ``{choice}``.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts = load_prompt_set("default")
    >>> list(prompts.variants)
    ['low', 'normal', 'high', 'highest']
    >>> preamble, question = prompts.render("normal", "Who wrote Emma?")
    >>> question
    'Question: Who wrote Emma?'
    """

    name: str
    preamble: str
    question: str
    example: str
    examples: tuple[Example, ...]
    variants: Mapping[str, Variant]
    forced: Variant
    context: str = CONTEXT
    choices: str = CHOICES
    choice: str = CHOICE

    def variant(self, name: str) -> Variant:
        """Return the first-pass variant `name`, or the forced pass for ``"forced"``.

        Raises
        ------
        PromptSetError
            If there is no such variant; the message names the nearest.
        """
        variants = {**self.variants, FORCED: self.forced}
        if name not in variants:
            raise PromptSetError(f"prompt set '{self.name}' has no prompt {unknown(name, variants)}")
        return variants[name]

    def family(self, name: str) -> tuple[str, ...]:
        """Return a first-pass variant and its paraphrases, in the order of the file.

        Raises
        ------
        PromptSetError
            If there is no such variant, or it has no paraphrases.

        Examples
        --------
        >>> from refusal_index.protocol import load_prompt_set
        >>> load_prompt_set("paraphrases").family("normal")
        ('normal', 'normal-2', 'normal-3', 'normal-4')
        """
        self.variant(name)
        members = tuple(other for other, variant in self.variants.items() if name in (other, variant.paraphrase_of))
        if len(members) < 2:
            raise PromptSetError(
                f"prompt set '{self.name}' has no paraphrases of '{name}'; the set 'paraphrases' has some of 'normal', "
                "and a set of your own marks them with paraphrase_of"
            )
        return members

    @property
    def targets(self) -> dict[str, float]:
        """The confidence target of every variant that states one.

        >>> from refusal_index.protocol import load_prompt_set
        >>> load_prompt_set("confidence-targets").targets
        {'t0': 0.0, 't50': 0.5, 't75': 0.75, 't90': 0.9}
        """
        return {name: variant.target for name, variant in self.variants.items() if variant.target is not None}

    def render(
        self, variant: str, question: str, context: str | None = None, choices: Sequence[str] = ()
    ) -> tuple[str, str]:
        """Return the preamble of a variant, and the question with its context and choices.

        Raises
        ------
        PromptSetError
            If there is no such variant.
        """
        if variant not in self.preambles:
            self.variant(variant)  # raises, and lists the variants
        return self.preambles[variant], self.render_question(question, context, choices)

    def render_question(self, question: str, context: str | None = None, choices: Sequence[str] = ()) -> str:
        """Return the question with its context and choices, which is the same under every variant."""
        lettered = zip(LETTERS[: len(choices)], choices, strict=True)
        listed = "\n".join(self.choice.format(letter=letter, choice=choice) for letter, choice in lettered)
        parts = (
            self.context.format(context=context) if context is not None else None,
            self.question.format(question=question),
            self.choices.format(choices=listed) if choices else None,
        )
        return "\n\n".join(part for part in parts if part is not None)

    @cached_property
    def preambles(self) -> Mapping[str, str]:
        """The text before the question, by variant, including the forced pass."""
        preambles = {}
        for name, variant in {**self.variants, FORCED: self.forced}.items():
            examples = "\n\n".join(
                self.example.format(
                    number=number,
                    question=shown.question,
                    answer=UNANSWERED if number in variant.unanswered else shown.answer,
                )
                for number, shown in enumerate(self.examples, start=1)
            )
            preambles[name] = self.preamble.format(examples=examples, instruction=variant.instruction)
        return preambles

    @property
    def hash(self) -> str:
        """SHA-256 of everything that affects a prompt; sets with equal hashes have the same wording.

        The templates of context and choices count only if the set defines its own. Paraphrase marks do not count, nor
        do targets, which the instructions state.
        """
        canonical = json.dumps(
            [self.preamble, self.question, self.example, [asdict(e) for e in self.examples]]
            + [[name, _wording(variant)] for name, variant in self.variants.items()]
            + [_wording(self.forced)]
            + [[name, text] for name in SHIPPED if (text := getattr(self, name)) != SHIPPED[name]],
            ensure_ascii=False,
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def _wording(variant: Variant) -> dict[str, Any]:
    return {"instruction": variant.instruction, "unanswered": variant.unanswered}


def unknown(name: str, names: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the name, the closest known one, and all known ones."""
    near = nearest(name, names)
    return f"'{name}'{f' (did you mean {near!r}?)' if near else ''}; choose one of {', '.join(names)}"


OPTIONAL = {"context": {"context"}, "choices": {"choices"}, "choice": {"letter", "choice"}}
KINDS: dict[type, str] = {str: "a string", list: "an array", dict: "a table"}


def prompt_set_names() -> list[str]:
    """Return the names of the prompt sets that come with the package.

    Examples
    --------
    >>> prompt_set_names()
    ['confidence-targets', 'default', 'instructions', 'instructions-de', 'paraphrases']
    """
    folder = resources.files("refusal_index.protocol") / "data"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_prompt_set(name_or_path: str | Path) -> PromptSet:
    """Load a prompt set of the package by name, or another one by the path of its TOML file.

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
            f"no prompt set {unknown(str(name_or_path), prompt_set_names())}, or give the path of a TOML file"
        )
    return _parse(path.read_bytes(), str(path))


@cache
def _shipped(name: str) -> PromptSet:
    resource = resources.files("refusal_index.protocol") / "data" / f"{name}.toml"
    return _parse(resource.read_bytes(), f"{name}.toml")


def _parse(content: bytes, source: str) -> PromptSet:
    try:
        data = parse_toml(content)
    except ValueError as error:
        raise PromptSetError(f"{source}: not valid TOML: {error}") from error
    if data.keys() & {"models", "datasets", "defaults"}:
        raise PromptSetError(
            f"{source}: expected a prompt set, got a configuration of models and datasets; 'refusal-index run --config "
            f"{source}' runs it"
        )
    if "gold" in data:
        raise PromptSetError(
            f"{source}: expected a prompt set, got a grader's prompt; --grader-prompt {source} uses it, and "
            f"'refusal-index prompts {source} --grader' shows it"
        )
    has_examples = "examples" in data or "{examples}" in str(data.get("preamble"))
    entries = _field(data, "examples", list, source) if has_examples else []
    examples = tuple(_example(entry, f"{source}, example {number}") for number, entry in enumerate(entries, start=1))
    variants = _field(data, "variants", dict, source)
    if not variants:
        raise PromptSetError(f"{source}: 'variants' is empty; expected at least one first-pass prompt")
    reserved = [name for name in variants if name == FORCED or name.startswith(AUXILIARY)]
    if reserved:
        names = f"'{FORCED}' names the forced pass, and '{AUXILIARY}...' prompts of confidence methods"
        raise PromptSetError(f"{source}: {names}; {shortened(reserved[0])} cannot be a first-pass prompt")
    prompts = PromptSet(
        name=_field(data, "name", str, source),
        preamble=checked_template(data, "preamble", {"instruction", *(["examples"] if examples else [])}, source),
        question=checked_template(data, "question", {"question"}, source),
        example=checked_template(data, "example", {"number", "question", "answer"}, source) if examples else "",
        examples=examples,
        variants={
            name: _variant(entry, f"{source}, variants.{name}", len(examples)) for name, entry in variants.items()
        },
        forced=_variant(_field(data, FORCED, dict, source), f"{source}, {FORCED}", len(examples)),
        **{name: checked_template(data, name, fields, source) for name, fields in OPTIONAL.items() if name in data},
    )
    if prompts.forced.unanswered:
        raise PromptSetError(f"{source}, {FORCED}: 'unanswered' must be empty; the forced pass shows no refusals")
    if prompts.forced.target is not None:
        raise PromptSetError(f"{source}, {FORCED}: the forced pass does not allow refusals; remove 'target'")
    if prompts.forced.paraphrase_of:
        raise PromptSetError(f"{source}, {FORCED}: the forced pass cannot be a paraphrase; remove 'paraphrase_of'")
    _refuse_unknown(data, PromptSet, source)
    for name, variant in prompts.variants.items():
        _check_paraphrase(name, variant, prompts.variants, source)
    return prompts


def _refuse_unknown(data: Mapping[str, Any], kind: type, location: str) -> None:
    """Raise for an unknown field: a misspelt optional field would be ignored silently."""
    names = [field.name for field in fields(kind)]
    for name in data:
        if name not in names:
            raise PromptSetError(f"{location}: unknown field {unknown(name, names)}")


def _check_paraphrase(name: str, variant: Variant, variants: Mapping[str, Variant], source: str) -> None:
    """Raise unless a paraphrase differs only in wording from a variant that is not a paraphrase itself."""
    original = variant.paraphrase_of
    if original is None:
        return
    field = f"{source}, variants.{name}: 'paraphrase_of'"
    if original not in variants:
        raise PromptSetError(
            f"{field} names no prompt: {unknown(original, [other for other in variants if other != name])}"
        )
    if variants[original].paraphrase_of is not None or original == name:
        raise PromptSetError(f"{field} must name a prompt that is not a paraphrase, found '{original}'")
    if variant.unanswered != variants[original].unanswered:
        raise PromptSetError(
            f"{source}, variants.{name}: 'unanswered' must be that of '{original}', which it paraphrases, found "
            f"{list(variant.unanswered)} and {list(variants[original].unanswered)}; paraphrases differ only in wording"
        )


def _field(table: Mapping[str, Any], name: str, kind: type, location: str) -> Any:
    value = table.get(name)
    if not isinstance(value, kind):
        actual = "nothing" if value is None else KINDS.get(type(value), shortened(value))
        raise PromptSetError(f"{location}: '{name}' must be {KINDS[kind]}, found {actual}")
    return value


def checked_template(table: Mapping[str, Any], name: str, fields: Collection[str], location: str) -> str:
    """Return the template `name` of a table; raises PromptSetError unless it has exactly the given placeholders."""
    text: str = _field(table, name, str, location)
    try:
        actual = {placeholder(*field) for _, *field in string.Formatter().parse(text) if field[0] is not None}
    except ValueError as error:
        raise PromptSetError(f"{location}: template '{name}': {error}; write a literal brace twice") from error
    expected = {placeholder(field) for field in fields}
    if actual != expected:
        shown = ", ".join(sorted(actual)) or "none"
        raise PromptSetError(
            f"{location}: template '{name}' must have the fields {', '.join(sorted(expected))}, found {shown}; "
            "write a literal brace twice"
        )
    return text


def placeholder(field: str | None, spec: str | None = None, conversion: str | None = None) -> str:
    """Return a replacement field as written in a template."""
    return "{" + f"{field}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}" + "}"


def _example(entry: Any, location: str) -> Example:
    if not isinstance(entry, dict):
        raise PromptSetError(f"{location}: must be a table with 'question' and 'answer'")
    return Example(_field(entry, "question", str, location), _field(entry, "answer", str, location))


def _variant(entry: Any, location: str, n_examples: int) -> Variant:
    if not isinstance(entry, dict):
        raise PromptSetError(f"{location}: must be a table with 'instruction' and 'unanswered'")
    unanswered = tuple(_field(entry, "unanswered", list, location) if n_examples else ())
    numbers = range(1, n_examples + 1)
    if not all(type(number) is int and number in numbers for number in unanswered):
        raise PromptSetError(f"{location}: 'unanswered' must contain example numbers from 1 to {n_examples}")
    instruction = _field(entry, "instruction", str, location)
    _refuse_unknown(entry, Variant, location)
    paraphrase_of = _field(entry, "paraphrase_of", str, location) if "paraphrase_of" in entry else None
    target = entry.get("target")
    if target is not None and (isinstance(target, bool) or not isinstance(target, int | float) or not 0 <= target < 1):
        raise PromptSetError(f"{location}: 'target' must be a confidence from 0 to below 1, found {shortened(target)}")
    return Variant(instruction, unanswered, paraphrase_of, None if target is None else float(target))
