"""What there is to say of a file of questions that was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from refusal_index.datasets.own import Checked
from refusal_index.outcomes.errors import TableError
from refusal_index.outcomes.question import Question


def described(checked: Checked, longest: int, characters_per_token: int) -> Iterator[str]:
    """Yield in lines what is in the file.

    - `checked`: the file, without problems.
    - `longest`: characters of its longest prompt.
    - `characters_per_token`: about how many.
    """
    questions = checked.questions
    counts = {
        "with a context": sum(question.context is not None for question in questions),
        "with choices": sum(bool(question.choices) for question in questions),
        "with aliases": sum(bool(question.aliases) for question in questions),
        "with a pattern": sum(question.pattern is not None for question in questions),
        "without a right answer": sum(question.gold is None for question in questions),
    }
    yield f"{len(questions):,} questions, {', '.join(f'{role} in {name!r}' for role, name in checked.columns.items())}"
    yield from (f"  {count:,} {name}" for name, count in counts.items() if count)
    if topics := Counter(question.topic for question in questions if question.topic is not None):
        most = ", ".join(f"{topic} ({count:,})" for topic, count in topics.most_common(3))
        yield f"  {len(topics):,} topics, most often {most}"
    if counts["with a context"]:
        yield f"  longest context: {max(len(question.context or '') for question in questions):,} characters"
    yield f"  longest prompt: {longest:,} characters, about {longest // characters_per_token:,} tokens"
    yield f"  {_repeated(questions):,} asked more than once in the same words"


def too_long(checked: Checked, longest: Sequence[int], most: int, characters: int) -> Iterator[TableError]:
    """Yield the questions whose prompt is too long by their lines, and by their ids where these are the file's own.

    - `checked`: the file.
    - `longest`: characters of the longest prompt of each of its questions.
    - `most`, `characters`: the most tokens of a prompt, and about how many characters each has.
    """
    for row, question, length in zip(checked.rows, checked.questions, longest, strict=not checked.problems):
        if length > most * characters:
            named = f"question_id {question.question_id!r}: " if "question_id" in checked.columns else ""
            said = (
                f"{named}expected a prompt of at most {most:,} tokens, got about {length // characters:,}; shorten its "
                "context, or leave the question out"
            )
            yield row.wrong(said)


def _repeated(questions: Sequence[Question]) -> int:
    counts = Counter((question.text, question.context, question.choices) for question in questions)
    return sum(count - 1 for count in counts.values())
