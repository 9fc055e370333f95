"""From a page in Markdown to sections, and from sections to pieces of the right length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")  # the latter of scripts without spaces
HOUSEKEEPING = frozenset(
    ("references", "external links", "see also", "notes", "further reading", "bibliography", "sources", "citations")
)
"""Headings, in lower case, of sections that list things and tell nothing."""


@dataclass(frozen=True)
class Section:
    """One section of a page."""

    heading: str  # its heading below those above it, as in ``"Career > Early years"``; empty for the lead of a page
    text: str  # what stands below the heading, up to the next one


def cut_markdown(markdown: str) -> list[Section]:
    r"""Cut a page at its headings; lists of references and links are left out.

    Examples
    --------
    >>> cut_markdown("A town.\n\n# History\n\nOld.\n\n## Walls\n\nOlder.\n\n# References\n\nA book.")
    [Section(heading='', text='A town.'), Section(heading='History', text='Old.'),
     Section(heading='History > Walls', text='Older.')]
    """
    sections = []
    for path, lines in _below_headings(markdown):
        text = "\n".join(lines).strip()
        if text and not any(heading.casefold() in HOUSEKEEPING for heading in path):
            sections.append(Section(" > ".join(path), text))
    return sections


def fit(section: Section, shortest: int, longest: int) -> list[Section]:
    """Cut a section into pieces of `shortest` to `longest` characters, at paragraphs or else at sentences.

    What is too short is left out. The pieces of one section are numbered in their headings.

    Examples
    --------
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
        fence = _fence_after(line, fence)
        heading = None if fence else HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield tuple(name for _, name in above), lines
        level, lines = len(heading[1]), []
        above = [*(entry for entry in above if entry[0] < level), (level, heading[2].strip())]
    yield tuple(name for _, name in above), lines


def _fence_after(line: str, fence: str) -> str:
    """Return the mark of the block of code that is open after `line`; empty where none is."""
    mark = FENCE.match(line)
    if mark is None:
        return fence
    if not fence:
        return mark[1]
    return "" if mark[1].startswith(fence) else fence


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
