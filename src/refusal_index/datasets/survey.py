"""What is in a file of questions, told before anything is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import compress

from refusal_index.datasets.own import Reading, repeated_note
from refusal_index.outcomes.errors import TableError
from refusal_index.outcomes.question import Question
from refusal_index.outcomes.source import Problems, Row

FEATURES = ("with a context", "with choices", "with aliases", "with a pattern", "without a right answer")


class Survey:
    """What is in a file of questions, gathered as it is read.

    - `questions`: the file.
    - `most`: the most tokens that a prompt may have, None for any number; what is longer is a problem.
    - `length`: tells the characters of a question's longest prompt.
    - `characters`: about how many of these a token has.
    """

    def __init__(
        self, questions: Reading, length: Callable[[Question], int], characters: int, most: int | None = None
    ) -> None:
        self._characters, self._most = characters, most
        self.first: Question | None = None
        self._counts = Counter[str]()
        self._topics = Counter[str]()
        self._context, self._longest = 0, 0
        self._asked: set[int] = set()
        self._repeated = 0
        too_long: Problems = []
        for row, question in questions:
            self.first = self.first or question
            too_long += self._seen(row, question, length(question), "question_id" in questions.columns)
        self.problems = [*questions.problems, *(too_long if not questions.problems else ())]
        self._columns, self._notes = questions.columns, list(repeated_note(questions.repeated_texts))

    def _seen(self, row: Row, question: Question, length: int, has_ids: bool) -> Iterator[TableError]:
        self._counts[""] += 1
        for name in _features(question):
            self._counts[name] += 1
        if question.topic is not None:
            self._topics[question.topic] += 1
        self._context = max(self._context, len(question.context or ""))
        self._longest = max(self._longest, length)
        asked = hash((question.text, question.context, question.choices))
        self._repeated += asked in self._asked
        self._asked.add(asked)
        if self._most is not None and length > self._most * self._characters:
            yield row.wrong(_too_long(question, length // self._characters, self._most, has_ids))

    def described(self) -> Iterator[str]:
        """Yield in lines what is in the file."""
        roles = ", ".join(f"{role} in {name!r}" for role, name in self._columns.items())
        yield f"{self._counts['']:,} questions, {roles}"
        yield from (f"  {self._counts[name]:,} {name}" for name in FEATURES if self._counts[name])
        if self._topics:
            most = ", ".join(f"{topic} ({count:,})" for topic, count in self._topics.most_common(3))
            yield f"  {len(self._topics):,} topics, most often {most}"
        if self._counts["with a context"]:
            yield f"  longest context: {self._context:,} characters"
        yield f"  longest prompt: {self._longest:,} characters, about {self._longest // self._characters:,} tokens"
        yield f"  {self._repeated:,} asked more than once in the same words"
        yield from (f"  {note}" for note in self._notes)


def _features(question: Question) -> Iterator[str]:
    """Yield what counts of a question."""
    has = (question.context is not None, question.choices, question.aliases, question.pattern is not None)
    return compress(FEATURES, (*has, question.gold is None))


def _too_long(question: Question, tokens: int, most: int, has_ids: bool) -> str:
    """Say that a prompt is too long, of a question that is named by its id where that is the file's own."""
    named = f"question_id {question.question_id!r}: " if has_ids else ""
    said = f"expected a prompt of at most {most:,} tokens, got about {tokens:,}"
    return f"{named}{said}; shorten its context, or leave the question out"
