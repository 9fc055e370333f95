"""Sections drawn by a seed: their order depends on the seed and their content, not on the file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from refusal_index.plugins.wiki.pages import Page, Pages

HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")  # the latter of scripts without spaces
LISTS = frozenset(
    ("references", "external links", "see also", "notes", "further reading", "bibliography", "sources", "citations")
)
"""Headings, in lower case, of sections that only list things."""


@dataclass(frozen=True)
class Section:
    """One section of a page."""

    heading: str  # its heading below those above it, as in ``"Career > Early years"``; empty for the lead of a page
    text: str  # what stands below the heading, up to the next one


def cut_markdown(markdown: str) -> list[Section]:
    r"""Cut a page at its headings; lists of references and links are left out.

    >>> cut_markdown("A town.\n\n# History\n\nOld.\n\n## Walls\n\nOlder.\n\n# References\n\nA book.")
    [Section(heading='', text='A town.'), Section(heading='History', text='Old.'),
     Section(heading='History > Walls', text='Older.')]
    """
    sections = []
    for path, lines in _below_headings(markdown):
        text = "\n".join(lines).strip()
        if text and not any(heading.casefold() in LISTS for heading in path):
            sections.append(Section(" > ".join(path), text))
    return sections


def fit(section: Section, shortest: int, longest: int) -> list[Section]:
    """Cut a section into pieces of `shortest` to `longest` characters, at paragraphs or else at sentences.

    What is too short is left out. The pieces of one section are numbered in their headings.

    >>> [piece.heading for piece in fit(Section("History", "One went. Two came. Three left."), 5, 20)]
    ['History (part 1)', 'History (part 2)']
    """
    if len(section.text) <= longest:
        return [section] if len(section.text) >= shortest else []
    packed = (piece for piece in _packed(_parts(section.text, longest), longest) if len(piece) >= shortest)
    return [
        Section(f"{section.heading} (part {number})".strip(), piece) for number, piece in enumerate(packed, start=1)
    ]


def _below_headings(markdown: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the lines below each heading, with the headings that they stand below."""
    above: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in markdown.splitlines():
        if mark := FENCE.match(line):  # a block of code begins or ends
            fence = mark[1] if not fence else "" if mark[1].startswith(fence) else fence
        heading = None if fence else HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield tuple(name for _, name in above), lines
        level, lines = len(heading[1]), []
        above = [*(entry for entry in above if entry[0] < level), (level, heading[2].strip())]
    yield tuple(name for _, name in above), lines


def _parts(text: str, longest: int) -> Iterator[tuple[str, str]]:
    """Yield parts that are short enough, each with what joins it to the part before."""
    for paragraph in PARAGRAPH_END.split(text):
        joint = "\n\n"
        for sentence in [paragraph] if len(paragraph) <= longest else SENTENCE_END.split(paragraph):
            for start in range(0, len(sentence), longest):
                yield joint, sentence[start : start + longest]
                joint = " "


def _packed(parts: Iterator[tuple[str, str]], longest: int) -> Iterator[str]:
    """Join neighbouring parts to pieces that are as long as they may be."""
    piece = ""
    for joint, part in parts:
        if piece and len(piece) + len(joint) + len(part) > longest:
            yield piece.strip()
            piece = part
        else:
            piece = piece + joint + part if piece else part
    yield piece.strip()


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
    by_id = {}
    for heading, text in pages.texts(page):
        for section in cut_markdown(text) if pages.in_markdown else [Section(heading, text)]:
            for piece in fit(section, lengths.shortest, lengths.longest):
                content = SEPARATOR.join((page.key, piece.heading, piece.text)).encode("utf-8", "surrogatepass")
                candidate_id = f"pw-{hashlib.sha256(content).hexdigest()[:12]}"
                by_id[candidate_id] = Candidate(
                    candidate_id, page.title, piece.heading, piece.text, page.difficulty, page.topic, page.revision
                )
    return sorted(by_id.values(), key=lambda candidate: _lot(seed, candidate.candidate_id))


def _by_size(difficulty: str | None) -> tuple[bool, float, str]:
    """Sort numbers by size, before words."""
    try:
        return False, float(difficulty or ""), ""
    except ValueError:
        return True, 0.0, difficulty or ""


def _lot(seed: int, *parts: str) -> bytes:
    return hashlib.sha256(SEPARATOR.join((str(seed), *parts)).encode("utf-8", "surrogatepass")).digest()
