"""The settings of a run: one frozen tree that the command line, TOML and Python build.

Every leaf is a setting with one name, the same as option, key of a configuration and argument. `SETTINGS` lists them.
A setting that affects replies is part of the identity of a run's folder; one that does not says so.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from refusal_index.data.errors import shortened, suggestion
from refusal_index.data.run_json import DEFAULT_LOOKS, MOST_LOOKS, Price, PriceError, Prices, TruthfulnessWeights, Until
from refusal_index.models.settings import (
    RequestSettings,
    SettingError,
    read_texts,
    setting,
    several,
    split_pairs,
    unknown,
)
from refusal_index.protocol.refusals import WORDING

KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


def read_paths(value: Any, name: str) -> tuple[Path, ...]:
    """Read one path, or several."""
    return tuple(Path(one) for one in several(value, name, str, Path))


def read_columns(value: Any, name: str) -> tuple[tuple[str, str], ...]:
    """Read ``ROLE=NAME`` texts, or a mapping from role to name."""
    return split_pairs(value, name, "ROLE=NAME, for instance question=problem")


def read_weights(value: Any, name: str) -> TruthfulnessWeights:
    """Read weights of the truthfulness score as text, or as three numbers."""
    try:
        return TruthfulnessWeights.parse(value)
    except (TypeError, ValueError):
        raise SettingError(
            f"{{{name}}}: expected three numbers from 0, not all 0, for a right answer, a refusal and, taken off, a "
            f"wrong answer, for instance {TruthfulnessWeights()}, got {shortened(value)}"
        ) from None


def read_until(value: Any, name: str) -> Until | None:
    """Read what ends a run early, as text."""
    if value is None or isinstance(value, Until):
        return value
    try:
        return Until.parse(value)
    except (AttributeError, ValueError):
        raise SettingError(
            f"{{{name}}}: expected half-width=NUMBER with a number above 0 and below 1, for instance half-width=.05, "
            f"got {shortened(value)}"
        ) from None


def read_price(value: Any, name: str) -> Price | None:
    """Read a price as text, or as its two numbers."""
    if value is None or isinstance(value, Price):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise SettingError(f"{{{name}}}: expected text, got {shortened(value)}")
    try:
        return Price.parse(value, f"{{{name}}}")
    except PriceError as error:
        raise SettingError(str(error)) from error


@dataclass(frozen=True)
class Setting:
    """What is known of one setting.

    Attributes
    ----------
    name, group
        Its own, and that of the branch it hangs on; None at the root.
    kind, many, optional
        Of one value; whether it takes several, in a file as an array; whether None is one.
    default
        What it is unless given.
    low, high
        Ends of its range, both included; None for no end.
    affects_replies
        Whether replies under another value are not comparable.
    scope
        The table of a configuration that holds it: ``"model"``, ``"dataset"`` or ``"set"``.
    choices, reader
        The values that it may have, where they are few, and what reads a value in place of its type.
    """

    name: str
    group: str | None
    kind: type
    many: bool
    optional: bool
    default: Any
    low: float | None = None
    high: float | None = None
    affects_replies: bool = True
    scope: str = "model"
    choices: tuple[str, ...] = ()
    reader: Any = None

    def read(self, value: Any) -> Any:
        """Return a value as the tree holds it.

        Raises
        ------
        SettingError
            If it is of another kind or out of range; the message says what was expected and what came.

        Examples
        --------
        >>> from refusal_index.runs.settings import SETTINGS
        >>> SETTINGS["temperature"].read(1)
        1.0
        """
        if value is None and self.optional:
            return None
        if self.reader is not None:
            return self.reader(value, self.name)
        accepted: Any = (int, float) if self.kind is float else self.kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
            raise SettingError(f"{{{self.name}}}: expected {KINDS[self.kind]}, got {shortened(value)}")
        if self.kind in (int, float) and not self._in_range(value):
            raise SettingError(f"{{{self.name}}}: expected {KINDS[self.kind]} {self._range()}, got {value}")
        if self.choices and value not in self.choices:
            raise unknown(self.name, value, self.choices)
        return self.kind(value)

    def _in_range(self, value: float) -> bool:
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def _range(self) -> str:
        ends = [f"{word} {end:g}" for word, end in (("from", self.low), ("to", self.high)) if end is not None]
        return " ".join(ends) or "that is finite"


def settings_in(tree: type, group: str | None = None) -> dict[str, Setting]:
    """Return every setting of a tree by its name."""
    hints = get_type_hints(tree)
    found: dict[str, Setting] = {}
    for one in fields(tree):
        if is_dataclass(hints[one.name]) and one.default is MISSING:
            found |= settings_in(hints[one.name], one.name)
        else:
            found[one.name] = _leaf(one, hints[one.name], group)
    return found


def _leaf(one: Field[Any], hint: Any, group: str | None) -> Setting:
    parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    base = next(part for part in parts if part is not types.NoneType)
    make = partial(Setting, one.name, group, optional=types.NoneType in parts, default=one.default)
    known = dict(one.metadata)
    reader = known.pop("read", None)
    if get_origin(base) is Literal:
        return make(kind=str, many=False, choices=get_args(base), reader=reader, **known)
    many = get_origin(base) is tuple
    kind = get_args(base)[0] if many else base
    simple = kind if kind in KINDS else str
    return make(kind=simple, many=many, reader=reader, **known)


DEFAULT_GRADER = "openai/gpt-4o-mini"
MAX_DRAWS = 1_000_000
"""Most draws of a question."""

COMPARABILITY_VERSION = 2
"""Raised whenever a change makes results incomparable with those of before, whatever the package's version."""


@dataclass(frozen=True)
class Questions:
    """Which questions are asked.

    Attributes
    ----------
    dataset
        A name, or several joined by ``+``; None for the almanac, or for `data` as a file of one's own.
    data, column
        Local files, and the names of their columns by role.
    limit
        Size of a seeded sample; None for the dataset's own.
    """

    dataset: str | None = setting(None, scope="dataset")
    data: tuple[Path, ...] = setting((), read=read_paths, affects_replies=False, scope="dataset")
    column: tuple[tuple[str, str], ...] = setting((), read=read_columns, affects_replies=False, scope="dataset")
    limit: int | None = setting(None, scope="dataset")


@dataclass(frozen=True)
class Prompting:
    """In which words they are asked.

    Attributes
    ----------
    prompts, variants
        The prompt set, by name or path, and those of its variants that the first pass asks with.
    placement
        Whether the instruction stands in the ``"user"`` message or in a ``"system"`` message.
    think
        A switch that the model knows, as in ``"/no_think"``, which ends what it is asked.
    """

    prompts: str = setting("default", scope="dataset")
    variants: tuple[str, ...] = setting(
        ("all",),
        read=read_texts,
        affects_replies=False,
        scope="dataset",
    )
    placement: str = setting("user")
    think: str = setting("")


@dataclass(frozen=True)
class Repeats:
    """How often each question is asked.

    Attributes
    ----------
    draws, repeat_questions
        Draws of a question, 1 by default, and how many of the questions are drawn more than once; None for all of
        them. With `repeat_questions` alone these are drawn twice.
    """

    draws: int | None = setting(None, low=1, high=MAX_DRAWS, affects_replies=False, scope="dataset")
    repeat_questions: int | None = setting(None, low=2, affects_replies=False, scope="dataset")


@dataclass(frozen=True)
class Limits:
    """What a run may take; used up, it ends in order, and can be resumed. None for no limit.

    Attributes
    ----------
    max_requests, max_cost
        Requests and dollars of the run in all.
    max_time
        Seconds of one command.
    """

    max_requests: int | None = setting(None, low=1, affects_replies=False, scope="set")
    max_cost: float | None = setting(None, low=0, affects_replies=False, scope="set")
    max_time: float | None = setting(None, low=0, affects_replies=False, scope="set")


@dataclass(frozen=True)
class Stopping:
    """When a run has asked enough, though it may go on.

    Attributes
    ----------
    until
        What must hold at a look for the run to stop there; None to ask all questions.
    looks
        How often it is looked at, all of them planned before; the last one is after all questions.
    """

    until: Until | None = setting(None, read=read_until, affects_replies=False, scope="dataset")
    looks: int = setting(DEFAULT_LOOKS, low=1, high=MOST_LOOKS, affects_replies=False, scope="dataset")


@dataclass(frozen=True)
class Accounts:
    """What it costs, and what an answer is worth.

    Attributes
    ----------
    price, grader_price
        Of the model, and of each model that grades; None where it is not known.
    batch_rate
        Share of these prices that a request costs in a provider's batch; None where none is given.
    penalty, truthfulness_weights
        Of the weighted and of the truthfulness score.
    """

    price: Price | None = setting(None, read=read_price, affects_replies=False)
    grader_price: Price | None = setting(None, read=read_price, affects_replies=False, scope="dataset")
    batch_rate: float | None = setting(None, low=0, high=1, affects_replies=False)
    penalty: float = setting(1.0, low=0, affects_replies=False, scope="set")
    truthfulness_weights: TruthfulnessWeights = setting(
        TruthfulnessWeights(), read=read_weights, affects_replies=False, scope="set"
    )

    @property
    def prices(self) -> Prices:
        """What the model and those that grade cost."""
        return Prices(self.price, self.grader_price, self.batch_rate)


@dataclass(frozen=True)
class Forecast:
    """What a dry run assumes.

    Attributes
    ----------
    assume_refusal
        Share of the questions that are refused; None for what an embedded model does refuse, else one half.
    reply_tokens, seconds_per_request
        Length of a reply, None for the provider's usual one, and how long a request takes.
    """

    assume_refusal: float | None = setting(None, low=0, high=1, affects_replies=False)
    reply_tokens: int | None = setting(None, low=1, affects_replies=False)
    seconds_per_request: float = setting(2.0, low=0, affects_replies=False)


@dataclass(frozen=True)
class Settings(RequestSettings):
    """All settings of a run.

    Attributes
    ----------
    model, grader
        By name: ``PROVIDER/NAME``, ``python:MODULE:FUNCTION``; the grader may also be a rule, or two that must agree as
        in ``A,B``; None for the dataset's own.
    refusal
        What a rule recognises refusals by: ``"wording"``, ``"tag"``, a regular expression, or a function as
        ``python:MODULE:FUNCTION``.
    seed
        Of the sample of questions and of every request.
    log_to
        Trackers of experiments that follow the run, by name.
    questions, prompting, decoding, repeats, sending, limits, stopping, accounts, forecast
        The others, by what they are about.

    Examples
    --------
    >>> settings = Settings.of(model="almanac/small", temperature=1, variants="low,high")
    >>> settings.decoding.temperature, settings.prompting.variants
    (1.0, ('low', 'high'))
    """

    model: str = setting("almanac/base")
    grader: str | None = setting(None, scope="dataset")
    refusal: str = setting(WORDING, scope="dataset")
    log_to: tuple[str, ...] = setting((), read=read_texts, affects_replies=False, scope="set")
    questions: Questions = field(default_factory=Questions)
    prompting: Prompting = field(default_factory=Prompting)
    repeats: Repeats = field(default_factory=Repeats)
    limits: Limits = field(default_factory=Limits)
    stopping: Stopping = field(default_factory=Stopping)
    accounts: Accounts = field(default_factory=Accounts)
    forecast: Forecast = field(default_factory=Forecast)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Make settings from values by name; the others are as they are unless given.

        Raises
        ------
        SettingError
            If there is no such setting, or a value is of another kind or out of range.
        """
        return cls().changed(**values)

    def changed(self, **values: Any) -> Self:
        """Return these settings with other values; it raises as `of` does."""
        groups: dict[str | None, dict[str, Any]] = {}
        for name, value in values.items():
            known = SETTINGS.get(name)
            if known is None:
                raise not_a_setting(name)
            groups.setdefault(known.group, {})[name] = known.read(value)
        changed = groups.pop(None, {})
        for group, inside in groups.items():
            changed[str(group)] = replace(getattr(self, str(group)), **inside)
        return replace(self, **changed)

    @property
    def prices_as_sent(self) -> Prices:
        """What the model and those that grade cost as requests are sent now: in batches by the rate of these.

        Examples
        --------
        >>> Settings.of(engine="batch", price="2,8", batch_rate=0.5).prices_as_sent.model
        Price(input=1.0, output=4.0)
        """
        return self.accounts.prices.in_batches if self.sending.is_in_batches else self.accounts.prices

    def value(self, name: str) -> Any:
        """Return the value of a setting by its name."""
        group = SETTINGS[name].group
        return getattr(self if group is None else getattr(self, group), name)


SETTINGS: Mapping[str, Setting] = settings_in(Settings)
"""Every setting by its name."""

REMOVED = {"batch": "choose {engine} batch, which submits the requests in batches and records them in a journal"}
"""Settings that were removed, with what replaces each."""


def not_a_setting(name: str) -> SettingError:
    """Return the error of a name that no setting has: what replaced it where it was removed, else the nearest one."""
    if name in REMOVED:
        return SettingError(f"{{{name}}}: removed; {REMOVED[name]}")
    return SettingError(f"no setting is called {name!r}{suggestion(name, SETTINGS)}")
