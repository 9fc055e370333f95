"""``refusal-index build paper-prompts``: the paper's prompts, from a copy of its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from refusal_index.cli import console
from refusal_index.cli.shared_options import output


def paper_prompts(paper: Path, /, out: Annotated[Path, output()]) -> None:
    """Write the paper's prompt set and grader's prompt, from a copy of its LaTeX source.

    The wording of this package is its own. With these two files, a run is worded as in the paper, as far as the paper
    prints it: the files say what it omits and what stands in its place.

    Exit status: 0 done, 2 bad input.

    - `paper` PAPER: LaTeX source of the paper: a file, or a folder of .tex files.
    - `out` DIR: Folder for paper-prompts.toml and paper-grader.toml.
    """
    from refusal_index.plugins.paper.prompts import write_files

    for line in write_files(paper, out):
        console.say(line)
