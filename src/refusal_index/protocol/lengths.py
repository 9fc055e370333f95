"""How long a question's prompts are, so that one that no model could take is told before anything is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.question import Question
from refusal_index.protocol.prompts import FORCED, PromptSet

CHARACTERS_PER_TOKEN = 4  # of English text, about; other languages and figures take more tokens
SHOWN = 5


class PromptLengthError(RefusalIndexError, ValueError):
    """Questions whose prompts are longer than the model takes; the message names them."""


def whole_prompt(question: Question, prompts: PromptSet, variant: str) -> str:
    """Return all that is asked about a question under a variant."""
    return "\n\n".join(prompts.render(variant, question.text, question.context, question.choices))


def about_tokens(text: str) -> int:
    """Estimate the tokens of a text from its characters.

    Examples
    --------
    >>> about_tokens("Who wrote Emma?")
    4
    """
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def longest_prompt(question: Question, prompts: PromptSet, count: Callable[[str], int] = len) -> int:
    """Return the length of the longest of a question's prompts, over all variants and the forced pass.

    Parameters
    ----------
    question, prompts
        What is asked, and in which words.
    count
        Measures a text; characters unless told otherwise.
    """
    return max(count(whole_prompt(question, prompts, variant)) for variant in (*prompts.variants, FORCED))


def longest_in_characters(prompts: PromptSet) -> Callable[[Question], int]:
    """Return what tells `longest_prompt` in characters, without putting the prompts together.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts, question = load_prompt_set("default"), Question("q1", "Who wrote Emma?", "Jane Austen")
    >>> longest_in_characters(prompts)(question) == longest_prompt(question, prompts)
    True
    """
    before = max(map(len, prompts.preambles.values())) + len("\n\n")
    return lambda question: before + len(prompts.asked(question.text, question.context, question.choices))


def check_lengths(
    questions: Iterable[Question], prompts: PromptSet, most: int, count: Callable[[str], int] = about_tokens
) -> None:
    """Raise if a question's prompt is longer than `most` tokens.

    Parameters
    ----------
    questions, prompts
        What is asked, and in which words.
    most
        What the model takes, less what its reply needs.
    count
        Counts the tokens of a text; an estimate unless told otherwise.

    Raises
    ------
    PromptLengthError
        If there are such questions.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> check_lengths([Question("q1", "Who wrote Emma?", "Jane Austen")], load_prompt_set("default"), most=1000)
    """
    lengths = {question.question_id: longest_prompt(question, prompts, count) for question in questions}
    long = [question_id for question_id, tokens in lengths.items() if tokens > most]
    if long:
        more = f" and {len(long) - SHOWN:,} more" if len(long) > SHOWN else ""
        raise PromptLengthError(
            f"questions: expected prompts of at most {most:,} tokens, got longer ones of "
            f"{', '.join(long[:SHOWN])}{more}, the longest with {max(lengths.values()):,}; "
            "shorten their contexts, or leave them out"
        )
