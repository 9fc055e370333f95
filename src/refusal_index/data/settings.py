"""The settings, sources, prices and score weights that `run.json` records."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from refusal_index.data.errors import OutcomeTableError, RunFolderError, TableError, listed, shortened
from refusal_index.errors import RefusalIndexError
from refusal_index.redaction import redacted_in


def default_run_name(model: str, dataset: str, settings: Mapping[str, Any]) -> str:
    """Name a run after its settings, so that the same command finds its folder again.

    - `model`, `dataset`: what the readable part says.
    - `settings`: everything that must agree; the short hash at the end is made of all three.
    - returned: of lower-case letters, digits, dot, dash and underscore only.

    >>> default_run_name("openai/gpt-4.1", "simpleqa", {"seed": 1})
    'openai-gpt-4.1-simpleqa-07c7588c'
    """
    canonical = json.dumps([model, dataset, as_json(settings)], sort_keys=True).encode()
    return f"{_safe(model)}-{_safe(dataset)}-{hashlib.sha256(canonical).hexdigest()[:8]}"


def _safe(name: str, longest: int = 60) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:longest] or "unnamed"


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings as they will be read back: tuples are lists, names are text, and no key is in them."""
    return dict(redacted_in(json.loads(json.dumps(dict(settings), allow_nan=False))))


def refuse_other_settings(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `RunFolderError` naming the settings in which the run in `path` differs from what is asked here."""
    before, now = dict(_flat(there)), dict(_flat(here))
    absent = object()
    differing = [key for key in sorted(before.keys() | now.keys()) if before.get(key, absent) != now.get(key, absent)]
    if differing:
        shown = "; ".join(f"{key}: there {_shown(before, key)}, here {_shown(now, key)}" for key in differing[:5])
        more = f"; and {len(differing) - 5} more" if len(differing) > 5 else ""
        raise RunFolderError(
            f"{path} holds a run with other settings ({shown}{more}); "
            "repeat them to resume it, or run into another folder"
        )


def is_deterministic(settings: Mapping[str, Any]) -> bool:
    """Whether a model was asked at temperature 0, where it has no sampling noise.

    >>> is_deterministic({"decoding": {"temperature": 0.0}}), is_deterministic({})
    (True, False)
    """
    decoding = settings.get("decoding")
    return isinstance(decoding, Mapping) and decoding.get("temperature") == 0


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name each setting inside others by its path, for instance ``generation.temperature``."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return shortened(settings[key], 40) if key in settings else "nothing"


SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""Format by suffix; those of text may be followed by .gz."""

UNITS = {"csv": "line", "jsonl": "line", "json": "item"}
"""What rows are counted by, where it is not by rows."""

Problems = list[TableError]
"""Gathers what is wrong row by row."""


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    name: str  # the file, or what data in memory are called
    # ``"csv"``, ``"jsonl"`` and ``"parquet"`` for files, ``"json"`` for a document of several rows, ``"memory"``
    kind: str
    holds: str  # what one row is, in words
    error: type[TableError]  # what is raised where something is wrong

    @classmethod
    def of(cls, path: str | Path, holds: str, error: type[TableError]) -> Source:
        """Return a file as a source, or raise where its suffix is not known."""
        return cls(str(path), file_format(path, error), holds, error)

    def place(self, *lines: int, most: int = 10) -> str:
        """Name rows in words.

        >>> Source("x.csv", "csv", "question", TableError).place(2, 4)
        'x.csv, lines 2, 4'
        """
        shown = ", ".join(map(str, lines[:most]))
        more = f" and {len(lines) - most:,} more" if len(lines) > most else ""
        return f"{self.name}, {UNITS.get(self.kind, 'row')}{'s' if len(lines) > 1 else ''} {shown}{more}"

    def wrong(self, said: str, lines: Sequence[int] = (), column: str | None = None) -> TableError:
        """Return the error that says what is wrong, with these rows, in this column, or with the whole."""
        place = self.place(*lines) if lines else self.name
        error = self.error(f"{place}{f', column {column!r}' if column else ''}: {said}")
        error.line, error.column = lines[0] if lines else 0, column
        return error

    def lacks(self, expected: str, present: Iterable[str], advice: str) -> TableError:
        """Return the error for columns that are not there."""
        return self.wrong(f"expected {expected}, got {listed(present)}{advice}")

    def broken(self, said: str) -> TableError:
        """Return the error for content that is not even a table."""
        return self.error(f"{self.name} cannot be {said}")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line on which it begins, or else its number from 1, and its cells by column."""

    source: Source
    line: int
    cells: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return self.source.place(self.line)

    def wrong(self, said: str, column: str | None = None) -> TableError:
        """Return the error that says what is wrong with it."""
        return self.source.wrong(said, [self.line], column)


def file_format(path: str | Path, error: type[TableError] = OutcomeTableError) -> str:
    """Tell the format of a file from its suffix, or raise."""
    name = Path(path).name.lower()
    found = SUFFIXES.get(Path(name.removesuffix(".gz")).suffix)
    if found is None or (found == "parquet" and name.endswith(".gz")):
        *most, last = SUFFIXES
        raise error(
            f"{path}: expected a file that ends in {', '.join(most)} or {last} (text perhaps followed by .gz), got "
            f"{shortened(Path(path).suffix)}; convert it to one of these, or rename it if it is one of them"
        )
    return found


def opened(path: Path, error: type[TableError]) -> BinaryIO:
    """Open a file, or raise."""
    try:
        return path.open("rb")
    except OSError as problem:
        raise cannot_be_read(path, problem, error) from problem


def cannot_be_read(path: Path, problem: OSError, error: type[TableError]) -> TableError:
    """Return the error for a file that the operating system does not give."""
    missing = isinstance(problem, FileNotFoundError)
    why = "there is no such file or folder" if missing else problem.strerror
    return error(f"{path} cannot be read: {why}; check the path")


def read_content(path: Path, error: type[TableError]) -> bytes:
    """Read a whole file, or raise."""
    with opened(path, error) as file:
        return file.read()


def present_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return every column of any of the rows."""
    return tuple(dict.fromkeys(column for row in rows for column in row.cells))


def is_in_memory(data: object) -> bool:
    """Tell a data frame, or dictionaries, from the paths of files."""
    if isinstance(data, Sequence) and not isinstance(data, str):
        return len(data) > 0 and isinstance(data[0], Mapping)
    return not isinstance(data, str | Path | None)


class TruthfulnessWeights(NamedTuple):
    """What the truthfulness score gives for a right answer and for a refusal, and takes for a wrong answer.

    The defaults are those of `refusal_index.stats.TRUTHFULNESS_WEIGHTS`; they stand here too because settings are read
    without the statistics.
    """

    right: float = 1.0
    refused: float = 0.0
    wrong: float = 1.0

    @classmethod
    def parse(cls, given: Any) -> TruthfulnessWeights:
        """Read text such as ``"1,0,1"``, or three numbers; raises ValueError if they are no weights.

        >>> print(TruthfulnessWeights.parse("1,0.25,2"))
        1,0.25,2
        """
        parts = given.split(",") if isinstance(given, str) else given
        weights = [float(part) for part in parts] if isinstance(parts, Iterable) else []
        if len(weights) != 3 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError("expected three numbers from 0, not all 0")
        return cls(*weights)

    def __str__(self) -> str:
        return ",".join(f"{weight:g}" for weight in self)


MILLION = 1_000_000

Tokens = tuple[int, int]
"""Read and written."""


class PriceError(RefusalIndexError, ValueError):
    """A price that cannot be read."""


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens read and a million tokens written."""

    input: float
    output: float

    @classmethod
    def parse(cls, text: str, name: str = "price") -> Price:
        """Read a price such as ``"2.5,10"``.

        Raises PriceError if it is not two numbers from 0.

        - `text`: as given.
        - `name`: what to call it in messages.
        """
        try:
            read, written = (float(part) for part in text.split(","))
        except ValueError:
            read = written = -1.0
        if not (0 <= read < float("inf") and 0 <= written < float("inf")):
            raise PriceError(
                f"{name}: expected dollars per million tokens in and out, for instance 2.5,10, got {text!r}"
            )
        return cls(read, written)

    def times(self, factor: float) -> Price:
        """Return a share of it, or several times as much."""
        return Price(self.input * factor, self.output * factor)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the dollars for so many tokens.

        >>> Price(2.5, 10).of(1_000_000, 100_000)
        3.5
        """
        return (self.input * input_tokens + self.output * output_tokens) / MILLION


@dataclass(frozen=True)
class Prices:
    """What the models of a run cost."""

    model: Price | None = None  # the model under evaluation; None where its price is not known
    grader: Price | None = None  # each of the models that grade, in the same way
    batch_rate: float | None = None  # share of both that is paid for what came in a provider's batch; None for all

    @classmethod
    def parse(cls, model: str | None, grader: str | None) -> Prices:
        """Read the options that give them.

        Raises PriceError if one of them is not a price; the message names the option.
        """
        return cls(
            Price.parse(model, "--price") if model else None, Price.parse(grader, "--grader-price") if grader else None
        )

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Prices:
        """Read back what `to_document` gave; what is not there is not known.

        >>> Prices.read({"price": {"input": 2.0, "output": 8.0}})
        Prices(model=Price(input=2.0, output=8.0), grader=None, batch_rate=None)
        """
        model, grader = document.get("price"), document.get("grader_price")
        return cls(Price(**model) if model else None, Price(**grader) if grader else None, document.get("batch_rate"))

    def to_document(self) -> dict[str, Any]:
        """Return plain data, under the names of the options."""
        prices = {"price": self.model, "grader_price": self.grader}
        rate = {} if self.batch_rate is None else {"batch_rate": self.batch_rate}
        return {**{name: price and asdict(price) for name, price in prices.items()}, **rate}

    def or_those(self, others: Prices) -> Prices:
        """Return these prices, with those of `others` in place of the ones that are not known."""
        rate = others.batch_rate if self.batch_rate is None else self.batch_rate
        return Prices(self.model or others.model, self.grader or others.grader, rate)

    @property
    def in_batches(self) -> Prices:
        """What the same costs in a provider's batches.

        >>> Prices(Price(2, 8), batch_rate=0.5).in_batches.model
        Price(input=1.0, output=4.0)
        """
        rate = 1.0 if self.batch_rate is None else self.batch_rate
        return Prices(self.model and self.model.times(rate), self.grader and self.grader.times(rate))

    def cost(self, model: Tokens, grader: Tokens) -> float | None:
        """Return the dollars for tokens of the model and of graders.

        Graders whose price is not known are left out. The model is not: without its price the cost of its tokens is
        None.

        >>> Prices(Price(2, 8), Price(1, 4)).cost((1_000_000, 0), (500_000, 0))
        2.5
        >>> Prices(grader=Price(1, 4)).cost((0, 0), (500_000, 0))
        0.5
        >>> Prices(grader=Price(1, 4)).cost((1_000_000, 0), (500_000, 0)) is None
        True
        """
        if self.model is None and any(model):
            return None
        parts = ((self.model, model), (self.grader, grader))
        costs = [price.of(*tokens) for price, tokens in parts if price is not None]
        return sum(costs) if costs else None


UNPRICED = Prices()
"""No price is known."""
