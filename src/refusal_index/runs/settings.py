"""The settings of a run: one frozen tree, built from the command line, TOML or Python.

Every leaf is a setting whose name is the same as option, TOML key and argument. `SETTINGS` lists them. Settings that
affect replies or grades are part of the identity of a run's folder: see `refusal_index.runs.plan.identity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from refusal_index.data.run_json import DEFAULT_LOOKS, MAX_LOOKS, Price, Prices, TruthfulnessWeights
from refusal_index.errors import suggestion
from refusal_index.models.settings import (
    RequestSettings,
    Setting,
    SettingError,
    parses,
    read_paths,
    read_texts,
    reads_pairs,
    setting,
    settings_in,
)
from refusal_index.protocol.replies import WORDING

DEFAULT_GRADER = "openai/gpt-4o-mini"
MAX_DRAWS = 1_000_000
"""Most samples per question."""

COMPARABILITY_VERSION = 2
"""Raised whenever a change makes new results incomparable with earlier ones; independent of the package's version."""


PRICE = parses(Price, "dollars per million tokens in and out, for instance 2.5,10")
WEIGHTS = parses(
    TruthfulnessWeights,
    "three numbers from 0, not all 0, for a right answer, a refusal and (subtracted) a wrong answer, for instance "
    f"{TruthfulnessWeights()}",
)


@dataclass(frozen=True)
class Questions:
    """Which questions are asked.

    - `dataset` NAME: Dataset name, as listed by 'refusal-index ls', or two as in A+B. [default: almanac, or own with
      --data]
    - `data` FILE: Local file of questions. When combining datasets, one per dataset that needs a file. Repeatable.
    - `column` ROLE=NAME: Name a column of your own file, as in question=problem. Repeatable.
    - `limit`: Number of questions, sampled at random. [default: 1000 for the almanac, else all]
    """

    dataset: str | None = setting(None, scope="dataset", is_common=True)
    data: tuple[Path, ...] = setting((), reader=read_paths, scope="dataset", is_common=True)
    column: tuple[tuple[str, str], ...] = setting(
        (), reader=reads_pairs("ROLE=NAME, for instance question=problem"), scope="dataset", is_common=True
    )
    limit: int | None = setting(None, scope="dataset", is_common=True)


@dataclass(frozen=True)
class Prompting:
    """How the questions are worded.

    - `prompts` SET: Prompt set, as listed by 'refusal-index ls', or a TOML file.
    - `variants` NAMES: Prompts of the set to use, separated by commas, or 'all'; 'normal+' adds the paraphrases of
      normal.
    - `placement`: Message that holds the instruction: 'user' or 'system'.
    - `think`: Text to append to each prompt, such as /no_think, for models that have such a switch.
    """

    prompts: str = setting("default", scope="dataset")
    variants: tuple[str, ...] = setting(("all",), reader=read_texts, scope="dataset", is_common=True)
    placement: Literal["user", "system"] = setting("user")
    think: str = setting("")


@dataclass(frozen=True)
class Repeats:
    """How often each question is sampled.

    - `draws`: Samples per question; with 2 or more, corrected RI is also estimated. [default: 1]
    - `answered_only`: Run the first pass only: gives the refusal rate and the share wrong when answering, but no RI.
    - `repeat_questions`: Number of questions to sample more than once. [default: all with --draws]
    """

    draws: int | None = setting(None, low=1, high=MAX_DRAWS, scope="dataset", is_common=True)
    answered_only: bool = setting(False, scope="dataset")
    repeat_questions: int | None = setting(None, low=2, scope="dataset")


@dataclass(frozen=True)
class Limits:
    """Limits of a run, after which it stops cleanly and can be resumed; None for no limit.

    - `max_requests`: Stop once the run has sent this many requests in total.
    - `max_cost`: Stop before the run costs more than this many dollars; requires --price.
    - `max_time`: Stop this command after this many seconds.
    """

    max_requests: int | None = setting(None, low=1, scope="set")
    max_cost: float | None = setting(None, low=0, scope="set")
    max_time: float | None = setting(None, low=0, scope="set")


@dataclass(frozen=True)
class Stopping:
    """When a run stops early because its results are precise enough.

    - `half_width`: Stop at the first interim analysis ('look') at which the interval of RI has at most this half-width.
      [default: ask all questions]
    - `looks`: With --half-width: number of looks, evenly spaced over the questions.
    """

    half_width: float | None = setting(None, low=0.0001, high=0.9999, scope="dataset")
    looks: int = setting(DEFAULT_LOOKS, low=1, high=MAX_LOOKS, scope="dataset")


@dataclass(frozen=True)
class Accounts:
    """Prices of tokens, and what answers are worth.

    - `price` IN,OUT: Dollars per million input and output tokens of the model, as in 2.5,10; adds the cost to the
      results.
    - `grader_price` IN,OUT: The same for the grading model; if there are two, the price of each.
    - `batch_rate`: With --engine batch: price of a batch request as a share of the normal price, such as 0.5.
    - `penalty`: Penalty for a wrong answer in the weighted score.
    - `truthfulness_weights` R,D,W: Weights of the truthfulness score: added for a right answer and for a refusal,
      subtracted for a wrong answer.
    """

    price: Price | None = setting(None, reader=PRICE)
    grader_price: Price | None = setting(None, reader=PRICE, scope="dataset")
    batch_rate: float | None = setting(None, low=0, high=1)
    penalty: float = setting(1.0, low=0, scope="set")
    truthfulness_weights: TruthfulnessWeights = setting(TruthfulnessWeights(), reader=WEIGHTS, scope="set")

    @property
    def prices(self) -> Prices:
        """Prices of the model and of the graders."""
        return Prices(self.price, self.grader_price, self.batch_rate)


@dataclass(frozen=True)
class Forecast:
    """Assumptions of a dry run.

    - `assume_refusal`: With --dry-run: assumed share of refused questions. [default: that of an embedded model, else
      0.5]
    - `reply_tokens`: With --dry-run: assumed tokens per reply. [default: 8 for the almanac, else 50]
    - `seconds_per_request`: With --dry-run: assumed duration of a request, with --max-connections in parallel.
    """

    assume_refusal: float | None = setting(None, low=0, high=1)
    reply_tokens: int | None = setting(None, low=1)
    seconds_per_request: float = setting(2.0, low=0)


@dataclass(frozen=True)
class Settings(RequestSettings):
    """All settings of a run.

    Examples
    --------
    >>> settings = Settings.from_values(model="almanac/small", temperature=1, variants="low,high")
    >>> settings.decoding.temperature, settings.prompting.variants
    (1.0, ('low', 'high'))

    - `model`: Model, as PROVIDER/NAME, or your own function as python:MODULE:FUNCTION.
    - `grader`: Grader: 'exact', 'choice', 'regex', a model as PROVIDER/NAME, two models that must agree as A,B, or your
      own function as python:MODULE:FUNCTION. [default: exact for the almanac, choice for multiple choice, else
      openai/gpt-4o-mini]
    - `refusal`: How the graders exact, choice and regex recognise a refusal: 'wording' (in twelve languages), 'tag'
      (the UNANSWERED tag only), a regular expression, or your own function as python:MODULE:FUNCTION.
    - `log_to`: Log progress and results to 'wandb', 'mlflow', or both as in wandb,mlflow.
    """

    model: str = setting("almanac/base", is_common=True)
    grader: str | None = setting(None, scope="dataset", is_common=True)
    refusal: str = setting(WORDING, scope="dataset")
    log_to: tuple[str, ...] = setting((), reader=read_texts, scope="set")
    questions: Questions = field(default_factory=Questions)
    prompting: Prompting = field(default_factory=Prompting)
    repeats: Repeats = field(default_factory=Repeats)
    limits: Limits = field(default_factory=Limits)
    stopping: Stopping = field(default_factory=Stopping)
    accounts: Accounts = field(default_factory=Accounts)
    forecast: Forecast = field(default_factory=Forecast)

    @classmethod
    def from_values(cls, **values: Any) -> Self:
        """Make settings from values by name; all others keep their defaults.

        Raises
        ------
        SettingError
            If a setting is unknown, or a value has the wrong type or is out of range.
        """
        return cls().changed(**values)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values; raises the errors of `from_values`."""
        groups: dict[str | None, dict[str, Any]] = {}
        for name, value in values.items():
            known_setting = SETTINGS.get(name)
            if known_setting is None:
                raise not_a_setting(name)
            groups.setdefault(known_setting.group, {})[name] = known_setting.read(value)
        changed = groups.pop(None, {})
        for group, inside in groups.items():
            changed[str(group)] = replace(getattr(self, str(group)), **inside)
        return replace(self, **changed)

    @property
    def prices_as_sent(self) -> Prices:
        """Prices of the model and the graders for the chosen engine: in batches, multiplied by the batch rate.

        Examples
        --------
        >>> Settings.from_values(engine="batch", price="2,8", batch_rate=0.5).prices_as_sent.model
        Price(input=1.0, output=4.0)
        """
        return self.accounts.prices.in_batches if self.sending.is_in_batches else self.accounts.prices

    def value(self, name: str) -> Any:
        """Return a setting's value by name."""
        group = SETTINGS[name].group
        return getattr(self if group is None else getattr(self, group), name)


GROUPS: Mapping[str | None, str] = {
    None: "Model and grading",
    "questions": "Questions",
    "prompting": "Prompts",
    "repeats": "Sampling of questions",
    "decoding": "Generation",
    "sending": "Requests",
    "limits": "Limits",
    "stopping": "Early stopping",
    "accounts": "Costs and scores",
    "forecast": "Dry run",
}
"""The groups of settings in the order of the help, each with its title there."""

_SETTINGS = settings_in(Settings)
SETTINGS: Mapping[str, Setting] = {
    name: known_setting for group in GROUPS for name, known_setting in _SETTINGS.items() if known_setting.group == group
}
"""Every setting by its name, in the order of the help."""

REMOVED = {
    "batch": "choose {engine} batch, which submits requests in batches and keeps a journal of them",
    "until": "set {half_width} to a number",
}
"""Settings that were removed, each with what replaces it."""


def not_a_setting(name: str) -> SettingError:
    """Return the error for an unknown setting; it names the replacement of a removed setting, or the nearest name."""
    if name in REMOVED:
        return SettingError(f"{{{name}}}: removed; {REMOVED[name]}")
    return SettingError(f"no setting is called {name!r}{suggestion(name, SETTINGS)}")
