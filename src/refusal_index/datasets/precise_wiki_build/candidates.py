"""Sections drawn by a seed: which of them come first depends on the seed and on what they are, not on the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from refusal_index.datasets.precise_wiki_build.pages import Page, Pages
from refusal_index.datasets.precise_wiki_build.sections import Section, cut_markdown, fit

SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Candidate:
    """A section that a question may be written about."""

    # made of the page, the heading and the text, so that it is the same in every file that holds them
    candidate_id: str
    # title, section, text: what the models are shown
    title: str
    section: str
    text: str
    # difficulty, topic, revision: of the page, where known
    difficulty: str | None = None
    topic: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Lengths:
    """How long a section must be, and how long a piece of it may be, in characters."""

    shortest: int = 600
    longest: int = 2400


def draw_order(pages: Pages, seed: int, lengths: Lengths) -> dict[str | None, Iterator[Candidate]]:
    """Return the candidates of each difficulty in the order in which they are drawn.

    Pages come in the order of lots drawn from the seed, each with one of its sections; only when every page of that
    difficulty has had its turn come second sections, then third ones. Sections are cut when their turn comes, as few
    pages of a large file are needed.

    - returned: by difficulty, the least first; the only key is None where the pages have none.
    """
    by_difficulty: dict[str | None, list[Page]] = {}
    for page in pages.entries:
        by_difficulty.setdefault(page.difficulty, []).append(page)
    return {
        difficulty: _in_turn(pages, by_difficulty[difficulty], seed, lengths)
        for difficulty in sorted(by_difficulty, key=_by_size)
    }


def request_seed(seed: int, candidate_id: str, step: str) -> int:
    """Return the seed of one request, of 31 bits as every provider takes it.

    Examples
    --------
    >>> request_seed(0, "pw-1", "question") == request_seed(0, "pw-1", "answer")
    False
    """
    return int.from_bytes(_lot(seed, candidate_id, step)[:8]) >> 33


def _in_turn(pages: Pages, alike: Sequence[Page], seed: int, lengths: Lengths) -> Iterator[Candidate]:
    drawn, turn = sorted(alike, key=lambda page: _lot(seed, page.key)), 0
    while drawn:
        left = []
        for page in drawn:
            candidates = _of_page(pages, page, seed, lengths)
            if turn < len(candidates):
                yield candidates[turn]
            if turn + 1 < len(candidates):
                left.append(page)
        turn, drawn = turn + 1, left


def _of_page(pages: Pages, page: Page, seed: int, lengths: Lengths) -> list[Candidate]:
    """Return the candidates of one page by their lots, each text once."""
    pieces = (
        piece
        for heading, text in pages.texts(page)
        for section in (cut_markdown(text) if pages.in_markdown else [Section(heading, text)])
        for piece in fit(section, lengths.shortest, lengths.longest)
    )
    by_id = {candidate.candidate_id: candidate for candidate in (_candidate(page, piece) for piece in pieces)}
    return sorted(by_id.values(), key=lambda candidate: _lot(seed, candidate.candidate_id))


def _candidate(page: Page, piece: Section) -> Candidate:
    named = SEPARATOR.join((page.key, piece.heading, piece.text)).encode("utf-8", "surrogatepass")
    candidate_id = f"pw-{hashlib.sha256(named).hexdigest()[:12]}"
    known: Mapping[str, str | None] = {"difficulty": page.difficulty, "topic": page.topic, "revision": page.revision}
    return Candidate(candidate_id, page.title, piece.heading, piece.text, **known)


def _by_size(difficulty: str | None) -> tuple[bool, float, str]:
    """Sort numbers by size, before words."""
    try:
        return False, float(difficulty or ""), ""
    except ValueError:
        return True, 0.0, difficulty or ""


def _lot(seed: int, *parts: str) -> bytes:
    return hashlib.sha256(SEPARATOR.join((str(seed), *parts)).encode("utf-8", "surrogatepass")).digest()
