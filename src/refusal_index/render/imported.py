"""How files were read, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.data.first_pass import FirstPasses
from refusal_index.findings.imported import reading_statements
from refusal_index.render.sentences import sentence


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
