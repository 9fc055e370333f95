"""Options that several commands take, worded once; each command has its own defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli.bad_input import OptionError

if TYPE_CHECKING:
    from refusal_index.outcomes.truthfulness import TruthfulnessWeights

Prompts = Annotated[str, typer.Option(help="Prompt set: a name, or a TOML file.")]
Penalty = Annotated[float, typer.Option(help="Penalty of the Weighted score.", min=0)]
Truthfulness = Annotated[
    str | None,
    typer.Option(
        "--truthfulness-weights",
        help="Of the truthfulness score: for a right answer, for a refusal and, taken off, for a wrong answer. "
        "[default: a run's own, else 1,0,1]",
        metavar="R,D,W",
    ),
]
ConfidenceLevel = Annotated[float, typer.Option(help="Of every interval.", min=0.5, max=0.9999)]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Column that says which questions are alike, such as topic: intervals then allow for it. "
        "[default: cluster, if filled]",
        metavar="COLUMN",
    ),
]
Weight = Annotated[
    str | None,
    typer.Option(
        help="Column that says for how many questions of the population each stands. [default: weight, if filled]",
        metavar="COLUMN",
    ),
]
SummaryAsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")]

Format = Annotated[
    str | None,
    typer.Option("--format", help="inspect, lm-eval, graded or outcomes. [default: told by the content]"),
]
FirstPassColumn = Annotated[
    list[str] | None, typer.Option("--column", help="Name a column, as in grade=verdict; may be repeated.")
]
ValueMap = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="Read a word of grades or flags as another, as in Pass=refused: correct, incorrect, refused, unscored, "
        "true or false; may be repeated.",
    ),
]
Scorer = Annotated[
    str | None, typer.Option(help="The score of an Inspect log or the metric of lm-eval that is the grade.")
]
Refusal = Annotated[
    str | None,
    typer.Option(help="Regular expression: a reply in which it is found, unless graded correct, is a refusal."),
]
RUNS_HELP = "Runs' folders, folders of sets, or outcome tables (.csv, .jsonl, .parquet)."
Runs = Annotated[list[Path], typer.Argument(help=RUNS_HELP, metavar="RUN")]


def weights_of(given: str | None) -> TruthfulnessWeights | None:
    """Read ``--truthfulness-weights``; None where it is not given.

    Raises
    ------
    SettingError
        If it is not three numbers from 0.
    """
    from refusal_index.engines.setting import read_weights

    return None if given is None else read_weights(given, "truthfulness_weights")


def check_place(out: Path) -> None:
    """Raise where a table cannot be written, or something is there already that would be lost.

    Raises
    ------
    OptionError
        If there is something, or no folder to write into.
    RefusalIndexError
        If the suffix is of no kind of table.
    """
    from refusal_index.outcomes.source import file_format

    file_format(out)
    if out.exists() or out.is_symlink():
        raise OptionError(f"--out: {out} is there already; choose another name, or remove it")
    if not out.parent.is_dir():
        raise OptionError(f"--out: expected a folder that exists, got {out.parent}; create it or choose another")


def words_of(given: Sequence[str]) -> dict[str, str]:
    """Read ``WORD=MEANING`` pairs of ``--map``.

    Raises
    ------
    OptionError
        If one of them is not such a pair, or a word is given two meanings.

    Examples
    --------
    >>> words_of(["Pass=refused"])
    {'pass': 'refused'}
    """
    from refusal_index.datasets.imports.grades import MEANINGS

    words: dict[str, str] = {}
    for entry in given:
        word, equals, meaning = (part.strip() for part in entry.rpartition("="))
        word, equals = (word, "=") if "=" in entry else ("", "")
        if not (word and equals) or meaning.lower() not in MEANINGS:
            known = ", ".join(MEANINGS)
            raise OptionError(f"--map: expected WORD=MEANING with a meaning out of {known}, got {entry!r}")
        if words.setdefault(word.casefold(), meaning.lower()) != meaning.lower():
            raise OptionError(f"--map: expected one meaning of {word!r}, got {words[word.casefold()]} and {meaning}")
    return words


def columns_of(given: Sequence[str]) -> dict[str, str] | None:
    """Read ``ROLE=NAME`` pairs; None where there are none.

    Raises
    ------
    OptionError
        If one of them is not such a pair.

    Examples
    --------
    >>> columns_of(["question=problem"])
    {'question': 'problem'}
    """
    pairs = [entry.partition("=") for entry in given]
    for entry, (role, equals, name) in zip(given, pairs, strict=True):
        if not (role and equals and name):
            raise OptionError(f"--column: expected ROLE=NAME, for instance question=problem, got {entry!r}")
    return {role: name for role, _, name in pairs} or None
