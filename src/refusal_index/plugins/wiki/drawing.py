"""Drawing sections until there are enough questions: which to try next, and which of those tried are taken.

What is drawn depends on the seed and on what was said, never on how fast it was said: a build that was killed and
resumed draws the same sections and ends with the same questions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from refusal_index.plugins.wiki.candidates import Candidate
from refusal_index.plugins.wiki.verdicts import Reason, Tried, normalised

FIRST_ROUND = 50
LARGEST_ROUND = 500
LEAST_YIELD = 0.1
"""No more than ten sections are tried at once for one question that is wanted."""

HOPELESS = 100
"""After so many sections in a row without a question, none is expected of the next."""


class Drawing:
    """The state of a build: what was tried so far, by difficulty.

    Parameters
    ----------
    order
        The candidates of each difficulty in the order in which they are drawn.
    wanted
        How many questions there should be. Each difficulty gives an equal share; what one cannot give, the others do.

    >>> sections = [Candidate(f"pw-{number}", "Ulm", str(number), "...") for number in range(3)]
    >>> drawing = Drawing({None: iter(sections)}, wanted=1)
    >>> (first,) = drawing.next_round()
    >>> drawing.take([Tried(first, "How tall is Ulm Minster?", "161.5 metres")])
    >>> drawing.next_round(), [one.answer for one in drawing.taken()]
    ([], ['161.5 metres'])
    """

    def __init__(self, order: Mapping[str | None, Iterator[Candidate]], wanted: int) -> None:
        self._order, self._wanted = order, wanted
        self._good: dict[str | None, list[Tried]] = {difficulty: [] for difficulty in order}
        self._open = list(order)
        self._asked: set[str] = set()
        self.tried: list[Tried] = []

    def next_round(self) -> list[Candidate]:
        """Return the sections to try next, all at once; none when there are enough questions or no more sections."""
        while lacking := self._lacking():
            drawn = [
                candidate
                for difficulty, number in lacking.items()
                for candidate in self._draw(difficulty, self._to_try(number, len(lacking)))
            ]
            if drawn:
                return drawn
        return []

    def take(self, tried: Sequence[Tried]) -> None:
        """Note what came of the sections of a round, in the order in which they were drawn."""
        for one in tried:
            judged = self._without_duplicate(one)
            self.tried.append(judged)
            if judged.reason is None:
                self._good[judged.candidate.difficulty].append(judged)

    def taken(self) -> list[Tried]:
        """Return the questions that make up the set, by difficulty and in the order of their draw."""
        shares = self._shares()
        return [one for difficulty, good in self._good.items() for one in good[: shares[difficulty]]]

    def reasons(self) -> Counter[Reason]:
        """Return how many sections were rejected, by reason."""
        return Counter(one.reason for one in self.tried if one.reason is not None)

    @property
    def not_needed(self) -> int:
        """How many good questions are more than were wanted."""
        return sum(one.reason is None for one in self.tried) - len(self.taken())

    @property
    def is_hopeless(self) -> bool:
        """Whether the last sections, one after the other, all yielded nothing."""
        last = self.tried[-HOPELESS:]
        return len(last) == HOPELESS and all(one.reason is not None for one in last)

    def _shares(self) -> dict[str | None, int]:
        """Return how many questions each difficulty should give: equal shares, of those used up what they have."""
        used_up = sorted(set(self._good) - set(self._open), key=lambda name: (len(self._good[name]), name or ""))
        shares: dict[str | None, int] = {}
        for number, name in enumerate([*used_up, *self._open]):
            fair = math.ceil((self._wanted - sum(shares.values())) / (len(self._good) - number))
            shares[name] = fair if name in self._open else min(fair, len(self._good[name]))
        return shares

    def _lacking(self) -> dict[str | None, int]:
        shares = self._shares()
        return {
            name: shares[name] - len(self._good[name]) for name in self._open if shares[name] > len(self._good[name])
        }

    def _to_try(self, lacking: int, among: int) -> int:
        good = sum(map(len, self._good.values()))
        yielded = max(good / len(self.tried), LEAST_YIELD) if self.tried else 1.0
        most = LARGEST_ROUND if good else FIRST_ROUND
        return min(math.ceil(lacking / yielded), max(most // among, 1))

    def _draw(self, difficulty: str | None, number: int) -> list[Candidate]:
        drawn = list(islice(self._order[difficulty], number))
        if len(drawn) < number:
            self._open.remove(difficulty)
        return drawn

    def _without_duplicate(self, one: Tried) -> Tried:
        if one.reason is not None:
            return one
        words = normalised(one.question)
        if words in self._asked:
            return Tried(one.candidate, one.question, one.answer, Reason.DUPLICATE)
        self._asked.add(words)
        return one
