"""What `run.json` records: the settings of a run, how it was made, when it stops, prices and score weights."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from refusal_index.data.errors import RunFolderError, shortened
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
            "repeat them to resume it, or choose another folder"
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


def refusal_setting(settings: Mapping[str, Any]) -> str | None:
    """Return what a rule recognised refusals by, of a run's settings; None where models or functions grade.

    Runs of before there was such a setting went by the tag.

    >>> refusal_setting({"grader": {"name": "exact"}}), refusal_setting({"grader": {"name": "openai/gpt-4.1"}})
    ('tag', None)
    """
    grader = settings.get("grader") or {"name": "exact"}
    name = grader.get("name") or "exact"
    by_rule = "/" not in name and not name.startswith("python:")
    return grader.get("refusal", "tag") if by_rule else None


STOPPED = "stopped"
"""Where `run.json` and `summary.json` say it."""

UNTIL = "until"
"""Key of `run.json` for the goal of a run, such as a half-width."""

GATE_LOOKS = "gate_looks"
"""Where `run.json` says how a gate judges a run while it is asked."""

DEFAULT_LOOKS, MOST_LOOKS = 5, 100
"""How often a run looks whether it may stop; settings have them from here, since `stats` would load SciPy."""


@dataclass(frozen=True)
class _Record:
    """What `run.json` records under a key of its own.

    Raises ValueError unless every count is a whole number above 0, and every text is text.
    """

    key: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (_is_whole(value) and value > 0 if field.type == "int" else isinstance(value, str)):
                raise ValueError(f"expected {field.name} to be text, or a whole number above 0, got {value!r}")

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> Self | None:
        """Take it from what a run's folder says of how it was made; None where it does not say so."""
        return cls(**about[cls.key]) if about.get(cls.key) else None

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Until(_Record):
    """What ends a run before all of its questions are asked.

    Raises ValueError unless the half-width is a number above 0 and below 1.
    """

    key = UNTIL
    half_width: float  # of the interval of its Refusal Index: the run stops once it is no more

    def __post_init__(self) -> None:
        if not (math.isfinite(self.half_width) and 0 < self.half_width < 1):
            raise ValueError(f"expected a half-width above 0 and below 1, got {self.half_width!r}")

    def __str__(self) -> str:
        return f"half-width={self.half_width:g}"


@dataclass(frozen=True)
class GateLooks(_Record):
    """How a gate judges a run while it is asked: a test at each look, so that no later one has all of alpha."""

    key = GATE_LOOKS
    # of, looks: how many questions there are, and after how many portions of them it looks
    of: int
    looks: int

    def __str__(self) -> str:
        return f"{self.looks} look{'' if self.looks == 1 else 's'}"


@dataclass(frozen=True)
class Stop(_Record):
    """A planned stop of a run: all questions up to it have their answers."""

    key = STOPPED
    # asked, of: questions, and how many there would have been
    asked: int
    of: int
    # look, looks: after which of how many planned looks
    look: int
    looks: int
    why: str


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


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens read and a million tokens written."""

    input: float
    output: float

    def __post_init__(self) -> None:
        if not (_is_amount(self.input) and _is_amount(self.output)):
            raise ValueError(f"expected numbers from 0, got {self.input!r} and {self.output!r}")

    @classmethod
    def parse(cls, given: Any) -> Price:
        """Read a price such as ``"2.5,10"``, or two numbers; raises ValueError if they are not two numbers from 0."""
        if isinstance(given, Price):
            return given
        read, written = (float(part) for part in (given.split(",") if isinstance(given, str) else given))
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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


def _is_weights(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_amount, value)) and any(value)


def _builds(made: Callable[..., object]) -> Callable[[Any], bool]:
    """Return whether an object holds what something is made of; null does too."""

    def holds(value: Any) -> bool:
        try:
            return value is None or bool(made(**value))
        except (TypeError, ValueError):
            return False

    return holds


Check = tuple[str, Callable[[Any], bool]]
"""What is expected, in words, and whether a value is that."""

A_TEXT: Check = ("text", lambda value: isinstance(value, str))
WHOLE: Check = ("a whole number", _is_whole)
OBJECT: Check = ("an object", lambda value: isinstance(value, Mapping))
A_TEXT_OR_NULL: Check = ("text or null", lambda value: value is None or isinstance(value, str))
OBJECT_OR_NULL: Check = ("an object or null", lambda value: value is None or isinstance(value, Mapping))

SETTINGS: Mapping[str, Check] = {
    "model": A_TEXT,
    "dataset": OBJECT,
    "dataset.name": A_TEXT,
    "dataset.sha256": A_TEXT,
    "grader": OBJECT_OR_NULL,
    "grader.name": A_TEXT,
    "grader.second": A_TEXT_OR_NULL,
    "grader.refusal": A_TEXT,
    "prompts": OBJECT,
    "prompts.variants": ("a list of names", _is_names),
    "seed": WHOLE,
    "comparability_version": WHOLE,
    "first_pass": OBJECT,
    "first_pass.model": A_TEXT_OR_NULL,
    "regraded_from": OBJECT,
    "regraded_from.grader": OBJECT_OR_NULL,
}
ABOUT: Mapping[str, Check] = {
    "run_id": A_TEXT,
    "penalty": ("a number from 0", _is_amount),
    "truthfulness_weights": ("three numbers from 0, not all 0", _is_weights),
    "stopped": ("where it stopped, or null", _builds(Stop)),
    "until": ("a half_width above 0 and below 1, or null", _builds(Until)),
    "gate_looks": ("of and looks, or null", _builds(GateLooks)),
    "price": ("input and output from 0, or null", _builds(Price)),
    "grader_price": ("input and output from 0, or null", _builds(Price)),
    "batch_rate": ("a number from 0, or null", lambda value: value is None or _is_amount(value)),
}
NEEDED = ("model", "dataset.name", "dataset.sha256", "prompts.variants", "seed")
"""What the results of a run cannot be made without."""


def check_types(path: Path, section: str, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a value of a section of `run.json` is not of its type; what is missing is not looked for.

    - `path`: of the file.
    - `section`: ``"settings"`` or ``"about"``.
    """
    for key, (expected, holds) in (SETTINGS if section == "settings" else ABOUT).items():
        found, value = _find(document, key)
        if found and not holds(value):
            raise RunFolderError(
                f"{path}: {section}, {key}: expected {expected}, got {shortened(value)}; restore the file"
            )


def check_complete(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise RunFolderError if settings lack what the results of a run cannot be made without."""
    needed = list(NEEDED)
    needed += ["first_pass.model"] if "first_pass" in settings else []
    needed += ["regraded_from.grader"] if "regraded_from" in settings else []
    lacking = [key for key in needed if not _find(settings, key)[0]]
    if lacking:
        raise RunFolderError(f"{path}: settings: expected {', '.join(needed)}, lacks {lacking[0]}; restore the file")


def _find(document: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Return whether a key is there, the parts of which name what lies within each other, and its value."""
    value: Any = document
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value
