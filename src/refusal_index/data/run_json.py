"""The contents of `run.json`: a run's settings and origin, when it stops, prices and score weights."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from refusal_index.errors import RunFolderError, shortened
from refusal_index.redaction import redacted_in, without_credentials


def default_run_name(model: str, dataset: str, settings: Mapping[str, Any]) -> str:
    """Return a run's name, made of its settings, so that the same command finds its folder again.

    - `model`, `dataset`: the readable part of the name.
    - `settings`: all settings that identify the run; the name ends in a short hash of model, dataset and settings.
    - returned: lower-case letters, digits, dots, dashes and underscores only.

    >>> default_run_name("openai/gpt-4.1", "simpleqa", {"seed": 1})
    'openai-gpt-4.1-simpleqa-07c7588c'
    """
    canonical = json.dumps([model, dataset, as_json(settings)], sort_keys=True).encode()
    return f"{_safe(model)}-{_safe(dataset)}-{hashlib.sha256(canonical).hexdigest()[:8]}"


def _safe(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:60] or "unnamed"


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as read back from JSON: tuples become lists, names become text, the clients' keys are removed."""
    document = json.loads(json.dumps(dict(settings), allow_nan=False))
    return dict(redacted_in(document, without_credentials))


HASH = "_sha256"
"""End of the name of a setting that is the hash of another one."""


def refuse_other_settings(path: Path, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise `RunFolderError` if the settings of the run in `path` differ from these; it names them."""
    before = dict(_flat(stored))
    now = dict(_flat(current))
    absent = object()
    differing = [key for key in sorted(before.keys() | now.keys()) if before.get(key, absent) != now.get(key, absent)]
    differing = [key for key in differing if not (key.endswith(HASH) and key.removesuffix(HASH) in differing)]
    if differing:
        shown = "; ".join(f"{key}: {_shown(before, key)} before, {_shown(now, key)} now" for key in differing[:5])
        more = f"; and {len(differing) - 5} more" if len(differing) > 5 else ""
        raise RunFolderError(
            f"{path} was run with different settings ({shown}{more}); "
            "use the same settings to resume it, or choose another folder"
        )


SENT = "sent"
"""Key in `about` of the decoding settings that the requests of a run sent, by role; null for one that was not sent."""

ASKED_AT = "asked_at"
"""Key in `about` of the addresses at which a run asked its models, by role, without user name, password and query."""

NAMED_BY_SERVER = "named_by_server"
"""Key in the settings, and in those of the grader, that is true if a name is that of a server with a base URL."""

LOGPROBS = "logprobs"
"""Key in `about` of the number of replies for which log probabilities were requested, and of those without them."""

GRADER_PROMPT = "grader_prompt"
"""Key in `about` of the wording for grading models: its templates by name."""

EXAMPLES_ASKED = "examples_asked"
"""Key in `about` of the worked examples that are among the questions: the number of each, and the question."""

ANSWERED_BY = "answered_by"
"""Key in `about` of the number of replies by the model's name in the response, by role."""


def addresses_in(about: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the addresses that a run's folder records by role, without what is no text.

    >>> addresses_in({"asked_at": {"model": ["http://127.0.0.1:8000/v1", 7], "grader": 7}}), addresses_in({})
    ({'model': ['http://127.0.0.1:8000/v1']}, {})
    """
    recorded = about.get(ASKED_AT)
    lists = recorded.items() if isinstance(recorded, Mapping) else ()
    return {
        role: [text for text in addresses if isinstance(text, str)]
        for role, addresses in lists
        if isinstance(addresses, list)
    }


def is_deterministic(settings: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Whether every request to the model set the temperature to 0, so that there is no sampling noise.

    A run that does not record what was sent, or whose first pass was imported, does not count.

    >>> is_deterministic({}, {"sent": {"model": {"temperature": 0.0}}}), is_deterministic({}, {})
    (True, False)
    """
    sent = (about.get(SENT) or {}).get("model")
    return "first_pass" not in settings and isinstance(sent, Mapping) and sent.get("temperature") == 0


def decoding_sent(settings: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decoding settings of a run, as far as it does not record that they were not sent, or not always.

    >>> decoding_sent({"decoding": {"temperature": 0.7, "max_tokens": 64}}, {"sent": {"model": {"temperature": None}}})
    {'max_tokens': 64}
    """
    decoding = settings.get("decoding")
    sent = (about.get(SENT) or {}).get("model") or {}
    if not isinstance(decoding, Mapping):
        return {}
    known = {name: sent.get(name, value) for name, value in decoding.items()}
    return {name: value for name, value in known.items() if value is not None and not isinstance(value, list)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by path, such as ``decoding.temperature``."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return shortened(settings[key], 40) if key in settings else "nothing"


def refusal_setting(settings: Mapping[str, Any]) -> str | None:
    """Return the setting `refusal` of a run that a rule or a function grades; None if a model grades.

    Runs of rules from before this setting existed recognised refusals by the tag.

    >>> refusal_setting({"grader": {"name": "exact"}}), refusal_setting({"grader": {"name": "openai/gpt-4.1"}})
    ('tag', None)
    >>> refusal_setting({"grader": {"name": "judge", "named_by_server": True}}) is None
    True
    """
    grader = settings.get("grader") or {"name": "exact"}
    name = grader.get("name") or "exact"
    by_rule = "/" not in name and not name.startswith("python:") and not grader.get(NAMED_BY_SERVER)
    recorded: str | None = grader.get("refusal", "tag" if by_rule else None)
    return recorded


STOPPED = "stopped"
"""Key of a planned stop in `run.json` and `summary.json`."""

UNTIL = "until"
"""Key of a run's stopping rule in `run.json`: the ``half_width`` of RI's interval at which it may stop."""

GATE_LOOKS = "gate_looks"
"""Key of a gate's interim looks in `run.json`."""

DEFAULT_LOOKS = 5
MAX_LOOKS = 100
"""Number of looks at which a run may stop; defined here because `stats` would import SciPy."""


@dataclass(frozen=True)
class _Record:
    """A part of `run.json` with a key of its own.

    Raises ValueError unless every `int` field is a whole number above 0, and every other field is text.
    """

    key: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (_is_whole(value) and value > 0 if field.type == "int" else isinstance(value, str)):
                raise ValueError(f"expected {field.name} to be text, or a whole number above 0, got {value!r}")

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> Self | None:
        """Read it from the `about` section of `run.json`; None if it is missing."""
        return cls(**about[cls.key]) if about.get(cls.key) else None

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class GateLooks(_Record):
    """The interim looks of a gate: a test at each look spends part of alpha."""

    key = GATE_LOOKS
    # questions, looks: number of questions planned, and number of looks
    questions: int
    looks: int

    def __str__(self) -> str:
        return f"{self.looks} look{'' if self.looks == 1 else 's'}"


@dataclass(frozen=True)
class Stop(_Record):
    """A planned stop of a run, with all questions up to it answered."""

    key = STOPPED
    # asked, planned: number of questions asked, and number planned
    asked: int
    planned: int
    # look, looks: number of the look at which it stopped, and number of looks planned
    look: int
    looks: int
    why: str


class TruthfulnessWeights(NamedTuple):
    """Weights of the truthfulness score: added for a right answer and a refusal, subtracted for a wrong answer.

    The defaults repeat `refusal_index.stats.TRUTHFULNESS_WEIGHTS`, because settings are read without importing the
    statistics.
    """

    right: float = 1.0
    refused: float = 0.0
    wrong: float = 1.0

    @classmethod
    def parse(cls, value: Any) -> TruthfulnessWeights:
        """Parse text such as ``"1,0,1"``, or three numbers; raises ValueError if they are not valid weights.

        >>> print(TruthfulnessWeights.parse("1,0.25,2"))
        1,0.25,2
        """
        parts = value.split(",") if isinstance(value, str) else value
        weights = [float(part) for part in parts] if isinstance(parts, Iterable) else []
        if len(weights) != 3 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError("expected three numbers from 0, not all 0")
        return cls(*weights)

    def __str__(self) -> str:
        return ",".join(f"{weight:g}" for weight in self)


MILLION = 1_000_000

Tokens = tuple[int, int]
"""Input and output tokens."""


@dataclass(frozen=True)
class Price:
    """Price in dollars per million input and output tokens."""

    input: float
    output: float

    def __post_init__(self) -> None:
        if not (_is_amount(self.input) and _is_amount(self.output)):
            raise ValueError(f"expected numbers from 0, got {self.input!r} and {self.output!r}")

    @classmethod
    def parse(cls, value: Any) -> Price:
        """Parse a price such as ``"2.5,10"``, or two numbers; raises ValueError unless both are at least 0."""
        if isinstance(value, Price):
            return value
        input_price, written = (float(part) for part in (value.split(",") if isinstance(value, str) else value))
        return cls(input_price, written)

    def times(self, factor: float) -> Price:
        """Return the price multiplied by a factor."""
        return Price(self.input * factor, self.output * factor)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost in dollars of the given numbers of tokens.

        >>> Price(2.5, 10).cost(1_000_000, 100_000)
        3.5
        """
        return (self.input * input_tokens + self.output * output_tokens) / MILLION


@dataclass(frozen=True)
class Prices:
    """Prices of the models of a run."""

    model: Price | None = None  # of the evaluated model; None if unknown
    grader: Price | None = None  # of each model that grades; None if unknown
    batch_rate: float | None = None  # share of both that is paid in a provider's batches; None for full price

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Prices:
        """Read prices from the output of `to_document`; missing prices are unknown.

        >>> Prices.read({"price": {"input": 2.0, "output": 8.0}})
        Prices(model=Price(input=2.0, output=8.0), grader=None, batch_rate=None)
        """
        model = document.get("price")
        grader = document.get("grader_price")
        return cls(Price(**model) if model else None, Price(**grader) if grader else None, document.get("batch_rate"))

    def to_document(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary, with the names of the options as keys."""
        prices = {"price": self.model, "grader_price": self.grader}
        rate = {} if self.batch_rate is None else {"batch_rate": self.batch_rate}
        return {**{name: price and asdict(price) for name, price in prices.items()}, **rate}

    def filled_from(self, others: Prices) -> Prices:
        """Return these prices, with unknown ones filled in from `others`."""
        rate = others.batch_rate if self.batch_rate is None else self.batch_rate
        return Prices(self.model or others.model, self.grader or others.grader, rate)

    @property
    def in_batches(self) -> Prices:
        """The prices in a provider's batches.

        >>> Prices(Price(2, 8), batch_rate=0.5).in_batches.model
        Price(input=1.0, output=4.0)
        """
        rate = 1.0 if self.batch_rate is None else self.batch_rate
        return Prices(self.model and self.model.times(rate), self.grader and self.grader.times(rate))

    def cost(self, model: Tokens, grader: Tokens) -> float | None:
        """Return the cost in dollars of the tokens of the model and of graders.

        Graders without a price are left out. If the model used tokens and its price is unknown, the cost is None.

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
        costs = [price.cost(*tokens) for price, tokens in parts if price is not None]
        return sum(costs) if costs else None


UNPRICED = Prices()
"""All prices are unknown."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


def _is_weights(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_amount, value)) and any(value)


def _is_until(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return value is None
    return set(value) == {"half_width"} and _is_amount(value["half_width"]) and 0 < value["half_width"] < 1


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, Mapping) for part in value.values())


def _is_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())


def _is_numbered_texts(value: Any) -> bool:
    pairs = value if isinstance(value, list) else [value]
    return all(
        isinstance(pair, list) and len(pair) == 2 and _is_whole(pair[0]) and isinstance(pair[1], str) for pair in pairs
    )


def _is_counts(value: Any) -> bool:
    return _is_nested(value) and all(_is_whole(count) for part in value.values() for count in part.values())


def _builds(made: Callable[..., object]) -> Callable[[Any], bool]:
    """Return a check that an object holds valid arguments of `made`, or is null."""

    def holds(value: Any) -> bool:
        try:
            return value is None or bool(made(**value))
        except (TypeError, ValueError):
            return False

    return holds


Check = tuple[str, Callable[[Any], bool]]
"""What is expected, in words, and a test of a value."""

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
    "grader.reasoning": A_TEXT,
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
    "created": A_TEXT,
    "weighted_score_p": ("a number from 0", _is_amount),
    "truthfulness_weights": ("three numbers from 0, not all 0", _is_weights),
    "stopped": ("where it stopped, or null", _builds(Stop)),
    "until": ("a half_width above 0 and below 1, or null", _is_until),
    "gate_looks": ("questions and looks, or null", _builds(GateLooks)),
    "price": ("input and output from 0, or null", _builds(Price)),
    "grader_price": ("input and output from 0, or null", _builds(Price)),
    "batch_rate": ("a number from 0, or null", lambda value: value is None or _is_amount(value)),
    "sent": ("settings by role", _is_nested),
    "grader_prompt": ("texts by name", _is_texts),
    "examples_asked": ("pairs of a whole number and text", _is_numbered_texts),
    "answered_by": ("numbers of replies by role and model", _is_counts),
    "logprobs": OBJECT,
    "logprobs.replies": WHOLE,
    "logprobs.missing": WHOLE,
}
NEEDED = ("model", "dataset.name", "dataset.sha256", "prompts.variants", "seed")
"""Settings without which the results of a run cannot be computed."""


def check_types(path: Path, section: str, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a value in a section of `run.json` has the wrong type; missing values are accepted.

    - `path`: path of the file.
    - `section`: ``"settings"`` or ``"about"``.
    """
    for key, (expected, holds) in (SETTINGS if section == "settings" else ABOUT).items():
        is_present, value = _find(document, key)
        if is_present and not holds(value):
            raise RunFolderError(
                f"{path}: {section}, {key}: expected {expected}, got {shortened(value)}; restore the file"
            )


def check_complete(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise RunFolderError if settings lack a value that the results of a run need."""
    needed = list(NEEDED)
    needed += ["first_pass.model"] if "first_pass" in settings else []
    needed += ["regraded_from.grader"] if "regraded_from" in settings else []
    lacking = [key for key in needed if not _find(settings, key)[0]]
    if lacking:
        raise RunFolderError(f"{path}: settings: expected {', '.join(needed)}, lacks {lacking[0]}; restore the file")


def _find(document: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Return whether a dotted key is present in nested objects, and its value."""
    value: Any = document
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value
