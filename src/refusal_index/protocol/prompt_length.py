"""The length of prompts, which must fit the model's context."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from refusal_index.data.outcome import Question
from refusal_index.errors import RefusalIndexError
from refusal_index.protocol.prompts import FORCED, PromptSet

CHARACTERS_PER_TOKEN = 4  # approximately, of English text; other languages and digits take more tokens
SHOWN = 5


class PromptLengthError(RefusalIndexError, ValueError):
    """Prompts that exceed the model's context; the message names the questions."""


def whole_prompt(question: Question, prompts: PromptSet, variant: str) -> str:
    """Return the whole prompt of a question under a variant."""
    return "\n\n".join(prompts.render(variant, question.text, question.context, question.choices))


def about_tokens(text: str) -> int:
    """Estimate the number of tokens of a text from its length.

    Examples
    --------
    >>> about_tokens("Who wrote Emma?")
    4
    """
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def longest_prompt(question: Question, prompts: PromptSet, count: Callable[[str], int] = len) -> int:
    """Return the length of a question's longest prompt, over all variants and the forced pass.

    Parameters
    ----------
    question, prompts
        The question or questions, and the prompt set.
    count
        Measures a text; by default in characters.
    """
    return max(count(whole_prompt(question, prompts, variant)) for variant in (*prompts.variants, FORCED))


def longest_in_characters(prompts: PromptSet) -> Callable[[Question], int]:
    """Return a function that computes `longest_prompt` in characters, without building the prompts.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts, question = load_prompt_set("default"), Question("q1", "Who wrote Emma?", "Jane Austen")
    >>> longest_in_characters(prompts)(question) == longest_prompt(question, prompts)
    True
    """
    before = max(map(len, prompts.preambles.values())) + len("\n\n")
    return lambda question: before + len(prompts.render_question(question.text, question.context, question.choices))


def check_lengths(
    questions: Iterable[Question], prompts: PromptSet, max_tokens: int, count: Callable[[str], int] = about_tokens
) -> None:
    """Raise if a question's prompt is longer than `max_tokens` tokens.

    Parameters
    ----------
    questions, prompts
        The question or questions, and the prompt set.
    max_tokens
        The model's context length less the length of its reply.
    count
        Counts the tokens of a text; by default an estimate.

    Raises
    ------
    PromptLengthError
        If a prompt is longer.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> check_lengths([Question("q1", "Who wrote Emma?", "Jane Austen")], load_prompt_set("default"), max_tokens=1000)
    """
    lengths = {question.question_id: longest_prompt(question, prompts, count) for question in questions}
    long = [question_id for question_id, tokens in lengths.items() if tokens > max_tokens]
    if long:
        more = f" and {len(long) - SHOWN:,} more" if len(long) > SHOWN else ""
        raise PromptLengthError(
            f"questions: expected prompts of at most {max_tokens:,} tokens, got longer ones of "
            f"{', '.join(long[:SHOWN])}{more}, the longest with {max(lengths.values()):,}; "
            "shorten their contexts, or leave them out"
        )
