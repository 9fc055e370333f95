"""How files were read, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.data.first_pass import FirstPasses
from refusal_index.findings.imported import reading_statements
from refusal_index.findings.tallies import ScoredFiles
from refusal_index.render.format import Block
from refusal_index.render.sentences import paragraphs, sentence
from refusal_index.render.summary import first_screen, tally_blocks


def scored_blocks(scored: ScoredFiles) -> Iterator[Block]:
    """Yield the results of files: RI of both passes, the rates of first passes, and how the files were read."""
    if scored.run is not None:
        yield from first_screen(scored.run.summary)
    if scored.first_passes:
        yield from tally_blocks(scored.first_passes)
    yield from paragraphs(reading_lines(scored.read))


def reading_lines(read: Sequence[tuple[str, FirstPasses]]) -> Iterator[str]:
    """Yield how files were read, each line once; a line that does not apply to all of them names its files.

    - `read`: the files, and what was read from each.
    """
    files: dict[str, list[str]] = {}
    for file, found in read:
        for statement in reading_statements(found):
            files.setdefault(sentence(statement), []).append(file)
    for line, names in files.items():
        yield line if len(names) == len(read) else f"{', '.join(names)}: {line}"
