"""The settings of a run: one frozen tree that the command line, TOML and Python build.

Every leaf is a setting with one name, the same as option, key of a configuration and argument. `SETTINGS` lists them.
A setting that affects replies is part of the identity of a run's folder; one that does not says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from refusal_index.data.errors import suggestion
from refusal_index.data.run_json import DEFAULT_LOOKS, MOST_LOOKS, Price, Prices, TruthfulnessWeights, Until
from refusal_index.models.settings import (
    RequestSettings,
    Setting,
    SettingError,
    neutral_setting,
    parses,
    read_paths,
    read_texts,
    reads_pairs,
    setting,
    settings_in,
)
from refusal_index.protocol.refusals import WORDING

DEFAULT_GRADER = "openai/gpt-4o-mini"
MAX_DRAWS = 1_000_000
"""Most draws of a question."""

COMPARABILITY_VERSION = 2
"""Raised whenever a change makes results incomparable with those of before, whatever the package's version."""


PRICE = parses(Price, "dollars per million tokens in and out, for instance 2.5,10")
UNTIL = parses(Until, "half-width=NUMBER with a number above 0 and below 1, for instance half-width=.05")
WEIGHTS = parses(
    TruthfulnessWeights,
    "three numbers from 0, not all 0, for a right answer, a refusal and, taken off, a wrong answer, for instance "
    f"{TruthfulnessWeights()}",
)


@dataclass(frozen=True)
class Questions:
    """Which questions are asked.

    - `dataset`: The questions: a name of 'refusal-index ls', or two as in A+B. [default: almanac, or own with --data]
    - `data` FILE: A local file of questions; of a mix, one for each that needs one.
    - `column` ROLE=NAME: Name a column of your own file, as in question=problem; may be repeated.
    - `limit`: Ask a random sample of this many questions. [default: 1000 of the almanac, else all]
    """

    dataset: str | None = setting(None, scope="dataset")
    data: tuple[Path, ...] = neutral_setting((), reader=read_paths, scope="dataset")
    column: tuple[tuple[str, str], ...] = neutral_setting(
        (), reader=reads_pairs("ROLE=NAME, for instance question=problem"), scope="dataset"
    )
    limit: int | None = setting(None, scope="dataset")


@dataclass(frozen=True)
class Prompting:
    """In which words they are asked.

    - `prompts`: Prompt set: a name, or a TOML file.
    - `variants`: Prompt variants, separated by commas, or 'all'; 'normal+' adds the paraphrases of normal.
    - `placement`: Where the instruction stands: 'user' or 'system' message.
    - `think`: A switch that the model knows, as in /no_think; it ends what the model is asked.
    """

    prompts: str = setting("default", scope="dataset")
    variants: tuple[str, ...] = neutral_setting(("all",), reader=read_texts, scope="dataset")
    placement: str = setting("user")
    think: str = setting("")


@dataclass(frozen=True)
class Repeats:
    """How often each question is asked.

    - `draws`: Ask every question this many times; 2 or more also give corrected RI. [default: 1]
    - `answered_only`: Ask the first pass only: gives the rates of refusals and of right and wrong answers, but no RI.
    - `repeat_questions`: Ask only this many of the questions more than once. [default: all with --draws]
    """

    draws: int | None = neutral_setting(None, low=1, high=MAX_DRAWS, scope="dataset")
    answered_only: bool = setting(False, scope="dataset")
    repeat_questions: int | None = neutral_setting(None, low=2, scope="dataset")


@dataclass(frozen=True)
class Limits:
    """What a run may take; used up, it ends in order, and can be resumed. None for no limit.

    - `max_requests`: End in order after so many requests of the run in all; resumable.
    - `max_cost`: End in order before the run costs more dollars than this; needs --price.
    - `max_time`: End in order after so many seconds of this command.
    """

    max_requests: int | None = neutral_setting(None, low=1, scope="set")
    max_cost: float | None = neutral_setting(None, low=0, scope="set")
    max_time: float | None = neutral_setting(None, low=0, scope="set")


@dataclass(frozen=True)
class Stopping:
    """When a run has asked enough, though it may go on.

    - `until`: Stop at the first look at which it holds: half-width=NUMBER, of the interval of the Refusal Index.
      [default: ask all]
    - `looks`: How often to look, after equal portions of the questions, for --until.
    """

    until: Until | None = neutral_setting(None, reader=UNTIL, scope="dataset")
    looks: int = neutral_setting(DEFAULT_LOOKS, low=1, high=MOST_LOOKS, scope="dataset")


@dataclass(frozen=True)
class Accounts:
    """What it costs, and what an answer is worth.

    - `price`: Dollars per million tokens of the model in and out, as in 2.5,10; shows the cost.
    - `grader_price`: Dollars per million tokens of a model that grades, in and out; of two, for each. Added to the
      cost.
    - `batch_rate`: Share of the prices that requests cost in a provider's batch, as in 0.5; for --engine batch.
    - `penalty`: Penalty of the Weighted score.
    - `truthfulness_weights`: Of the truthfulness score: for a right answer, for a refusal and, taken off, for a wrong
      answer.
    """

    price: Price | None = neutral_setting(None, reader=PRICE)
    grader_price: Price | None = neutral_setting(None, reader=PRICE, scope="dataset")
    batch_rate: float | None = neutral_setting(None, low=0, high=1)
    penalty: float = neutral_setting(1.0, low=0, scope="set")
    truthfulness_weights: TruthfulnessWeights = neutral_setting(TruthfulnessWeights(), reader=WEIGHTS, scope="set")

    @property
    def prices(self) -> Prices:
        """What the model and those that grade cost."""
        return Prices(self.price, self.grader_price, self.batch_rate)


@dataclass(frozen=True)
class Forecast:
    """What a dry run assumes.

    - `assume_refusal`: For --dry-run: share of the questions that are refused. [default: as an embedded model does,
      else 0.5]
    - `reply_tokens`: For --dry-run: length of a reply. [default: 8 of the almanac, else 50]
    - `seconds_per_request`: For --dry-run: how long a request takes, one of --max-connections.
    """

    assume_refusal: float | None = neutral_setting(None, low=0, high=1)
    reply_tokens: int | None = neutral_setting(None, low=1)
    seconds_per_request: float = neutral_setting(2.0, low=0)


@dataclass(frozen=True)
class Settings(RequestSettings):
    """All settings of a run.

    Examples
    --------
    >>> settings = Settings.of(model="almanac/small", temperature=1, variants="low,high")
    >>> settings.decoding.temperature, settings.prompting.variants
    (1.0, ('low', 'high'))

    - `model`: The model, as PROVIDER/NAME, or a function of yours as python:MODULE:FUNCTION.
    - `grader`: 'exact', 'choice', 'regex', a model as PROVIDER/NAME, two that must agree as A,B, or a function as
      python:MODULE:FUNCTION. [default: exact for the almanac, choice for multiple choice, else openai/gpt-4o-mini]
    - `refusal`: What a rule takes for a refusal: 'wording' knows twelve languages, 'tag' only the UNANSWERED tag; or a
      regular expression that is found in refusals, or a function as python:MODULE:FUNCTION.
    - `log_to`: Log the run in 'wandb', 'mlflow', or both as in wandb,mlflow: its progress, and everything at its end.
    """

    model: str = setting("almanac/base")
    grader: str | None = setting(None, scope="dataset")
    refusal: str = setting(WORDING, scope="dataset")
    log_to: tuple[str, ...] = neutral_setting((), reader=read_texts, scope="set")
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


_SETTINGS = settings_in(Settings)
_GROUPS = (
    None,
    "questions",
    "repeats",
    "prompting",
    "decoding",
    "sending",
    "limits",
    "stopping",
    "accounts",
    "forecast",
)
SETTINGS: Mapping[str, Setting] = {
    name: known for group in _GROUPS for name, known in _SETTINGS.items() if known.group == group
}
"""Every setting by its name, in the order of the help."""

REMOVED = {"batch": "choose {engine} batch, which submits the requests in batches and records them in a journal"}
"""Settings that were removed, with what replaces each."""


def not_a_setting(name: str) -> SettingError:
    """Return the error of a name that no setting has: what replaced it where it was removed, else the nearest one."""
    if name in REMOVED:
        return SettingError(f"{{{name}}}: removed; {REMOVED[name]}")
    return SettingError(f"no setting is called {name!r}{suggestion(name, SETTINGS)}")
