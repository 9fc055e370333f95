"""Prompt sets: the wording of both passes, as data.

A prompt set is a TOML file that holds a template, worked examples and, for each first-pass variant and for the
forced pass, an instruction and the examples that are left unanswered. Everything else is equal between variants,
so that a variant moves the readiness to refuse and nothing more (the paper, appendix on system prompts). A variant may
be marked as a paraphrase of another: the two make a family, which differs in wording alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.errors import nearest
from refusal_index.outcomes.question import LETTERS

FORCED = "forced"
UNANSWERED = "UNANSWERED"
CONTEXT = "Base your answer on the following text and on nothing else.\n\n<text>\n{context}\n</text>"
CHOICES = "Choose one of these answers and give its letter:\n{choices}"
CHOICE = "{letter}) {choice}"
SHIPPED = {"context": CONTEXT, "choices": CHOICES, "choice": CHOICE}


class PromptSetError(RefusalIndexError, ValueError):
    """A prompt set that cannot be used; the message names the file and the field."""


@dataclass(frozen=True)
class Example:
    """One worked example: a question and the answer shown for it."""

    question: str
    answer: str


@dataclass(frozen=True)
class Variant:
    """What distinguishes one prompt from the next.

    Attributes
    ----------
    instruction
        The sentence on when to refuse.
    unanswered
        Numbers, from 1, of the examples whose reply is UNANSWERED.
    paraphrase_of
        The variant of which this one says the same in other words; None for one that stands for itself.
    target
        The confidence from which on an answer pays by the rule that the instruction states; None where it states none.
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
        The name it is recorded under.
    preamble
        Template of what comes before the question, with the fields ``{examples}`` and ``{instruction}``.
    question
        Template of the question, with the field ``{question}``.
    example
        Template of one worked example, with ``{number}``, ``{question}`` and ``{answer}``.
    examples
        The worked examples, the same in every variant.
    variants
        First-pass variants by name, in the order of the file: from the least to the most cautious.
    forced
        The forced pass.
    context
        Template of what stands before the question where it has a context, with the field ``{context}``.
    choices
        Template of what stands after the question where it has choices, with the field ``{choices}``.
    choice
        Template of one of them, with ``{letter}`` and ``{choice}``.

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
        known = {**self.variants, FORCED: self.forced}
        if name not in known:
            raise PromptSetError(f"prompt set '{self.name}' has no variant {unknown(name, known)}")
        return known[name]

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
        told = tuple(other for other, variant in self.variants.items() if name in (other, variant.paraphrase_of))
        if len(told) < 2:
            raise PromptSetError(
                f"prompt set '{self.name}' has no paraphrases of '{name}'; the set 'paraphrases' has some of 'normal', "
                "and a set of your own marks them with paraphrase_of"
            )
        return told

    @property
    def targets(self) -> dict[str, float]:
        """The confidence target of every variant that states one.

        >>> from refusal_index.protocol import load_prompt_set
        >>> load_prompt_set("confidence-targets").targets
        {'t0': 0.0, 't50': 0.5, 't75': 0.75, 't90': 0.9}
        """
        return {name: one.target for name, one in self.variants.items() if one.target is not None}

    def render(
        self, variant: str, question: str, context: str | None = None, choices: Sequence[str] = ()
    ) -> tuple[str, str]:
        """Return the preamble and the question, with its context and choices, as they are asked under `variant`.

        Raises
        ------
        PromptSetError
            If there is no such variant.
        """
        if variant not in self.preambles:
            self.variant(variant)  # says which there are
        return self.preambles[variant], self.asked(question, context, choices)

    def asked(self, question: str, context: str | None = None, choices: Sequence[str] = ()) -> str:
        """Return the question, with its context and choices, as it is asked under every variant."""
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
        """What stands before the question, by variant, the forced pass included."""
        return {
            name: self.preamble.format(examples=self._worked_examples(variant), instruction=variant.instruction)
            for name, variant in {**self.variants, FORCED: self.forced}.items()
        }

    def _worked_examples(self, variant: Variant) -> str:
        return "\n\n".join(
            self.example.format(
                number=number,
                question=shown.question,
                answer=UNANSWERED if number in variant.unanswered else shown.answer,
            )
            for number, shown in enumerate(self.examples, start=1)
        )

    @property
    def hash(self) -> str:
        """SHA-256 of everything that shapes a prompt; equal hashes ask in equal words.

        The templates of context and choices count only where they are a set's own; which variant paraphrases which, and
        the targets, which the instructions state, do not.
        """
        canonical = json.dumps(
            [self.preamble, self.question, self.example, [asdict(e) for e in self.examples]]
            + [[name, _wording(variant)] for name, variant in self.variants.items()]
            + [_wording(self.forced)]
            + [[name, own] for name in SHIPPED if (own := getattr(self, name)) != SHIPPED[name]],
            ensure_ascii=False,
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def _wording(variant: Variant) -> dict[str, Any]:
    return {"instruction": variant.instruction, "unanswered": variant.unanswered}


def unknown(name: str, known: Collection[str]) -> str:
    """Return how a message goes on after "no": the unknown name, the one it was probably meant to be, and the known."""
    near = nearest(name, known)
    return f"'{name}'{f' (did you mean {near!r}?)' if near else ''}; choose one of {', '.join(known)}"
