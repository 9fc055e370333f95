"""The settings of a run: one frozen tree, built from the command line, TOML or Python.

Every leaf is a setting whose name is the same as option, TOML key and argument. `SETTINGS` lists them. Settings that
affect replies or grades are part of the identity of a run's folder, as `Identity` describes. After a change here,
``python docs/make_settings.py`` writes `refusal_index.runs.arguments` and the page of settings.
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
    read_path,
    read_paths,
    read_texts,
    reads_pairs,
    setting,
    settings_in,
)

DEFAULT_MODEL = "almanac/base"
DEFAULT_GRADER = "openai/gpt-4o-mini"
MAX_DRAWS = 1_000_000
"""Most samples per question."""

COMPARABILITY_VERSION = 4
"""Raised whenever a change makes new results incomparable with earlier ones; independent of the package's version."""


PRICE = parses(Price, "dollars per million tokens in and out, for instance 2.5,10")
WEIGHTS = parses(
    TruthfulnessWeights,
    "three numbers from 0, not all 0, for a right answer, a refusal and (subtracted) a wrong answer, for instance "
    f"{TruthfulnessWeights()}",
)


@dataclass(frozen=True)
class Questions:
    """Which questions are asked."""

    dataset: str | None = setting(
        None,
        "Dataset name, as listed by 'refusal-index ls', hf:ORG/NAME from the Hugging Face Hub, or two as in A+B. "
        "[default: almanac, or own with --data]",
        identity="derived",
        metavar="NAME",
        scope="dataset",
        is_common=True,
    )
    data: tuple[Path, ...] = setting(
        (),
        "Local file of questions. When combining datasets, one per dataset that needs a file. Repeatable.",
        identity="derived",
        argument="str | Path | Sequence[str | Path]",
        metavar="FILE",
        reader=read_paths,
        scope="dataset",
        is_common=True,
    )
    column: tuple[tuple[str, str], ...] = setting(
        (),
        "Name a column of your own file or of a dataset of the Hub, as in question=problem. Repeatable.",
        identity="derived",
        argument="Mapping[str, str] | str | Sequence[str]",
        metavar="ROLE=NAME",
        reader=reads_pairs("ROLE=NAME, for instance question=problem"),
        scope="dataset",
        is_common=True,
    )
    encoding: str = setting(
        "utf-8",
        "Encoding of your own text file, such as latin-1 or cp1252.",
        identity="derived",
        scope="dataset",
    )
    limit: int | None = setting(
        None,
        "Number of questions, sampled at random. [default: 1000 for the almanac, else all]",
        identity="derived",
        scope="dataset",
        is_common=True,
    )


@dataclass(frozen=True)
class Prompting:
    """How the questions are worded."""

    prompts: str = setting(
        "default",
        "Prompt set, as listed by 'refusal-index ls', or a TOML file.",
        identity="derived",
        metavar="SET",
        scope="dataset",
    )
    variants: tuple[str, ...] = setting(
        ("all",),
        "Prompts of the set to use, separated by commas, or 'all'; 'normal+' adds the paraphrases of normal.",
        identity="no",
        argument="str | Sequence[str]",
        metavar="NAMES",
        reader=read_texts,
        scope="run",
        is_common=True,
        not_in=("gate",),
    )
    placement: Literal["user", "system"] = setting(
        "user", "Message that holds the instruction: 'user' or 'system'.", identity="always"
    )
    think: str = setting(
        "",
        "Text to append to each prompt, such as /no_think, for models that have such a switch.",
        identity="always",
        is_one_models_own=True,
        to_json=lambda text: text or None,
    )


@dataclass(frozen=True)
class Repeats:
    """How often each question is sampled."""

    draws: int | None = setting(
        None,
        "Samples per question; with 2 or more, corrected RI is also estimated. [default: 1]",
        identity="no",
        low=1,
        high=MAX_DRAWS,
        scope="run",
        is_common=True,
    )
    answered_only: bool = setting(
        False,
        "Run the first pass only: gives the refusal rate and the share wrong when answering, but no RI. With --draws, "
        "a grading model grades the first sample of each question only.",
        identity="if_set",
        scope="run",
    )
    repeat_questions: int | None = setting(
        None,
        "Number of questions to sample more than once. [default: all with --draws]",
        identity="no",
        low=2,
        scope="run",
    )


@dataclass(frozen=True)
class Limits:
    """Limits of a run, after which it stops cleanly and can be resumed; None for no limit."""

    max_requests: int | None = setting(
        None, "Stop once the run has sent this many requests in total.", identity="no", low=1, scope="set"
    )
    max_cost: float | None = setting(
        None,
        "Stop before the run costs more than this many dollars; requires --price.",
        identity="no",
        low=0,
        scope="set",
    )
    max_time: float | None = setting(
        None, "Stop this command after this many seconds.", identity="no", low=0, scope="set"
    )


@dataclass(frozen=True)
class Stopping:
    """When a run stops early because its results are precise enough."""

    half_width: float | None = setting(
        None,
        "Stop at the first interim analysis ('look') at which the interval of RI has at most this half-width. "
        "[default: ask all questions]",
        identity="no",
        low=0.0001,
        high=0.9999,
        scope="dataset",
        not_in=("gate",),
    )
    looks: int = setting(
        DEFAULT_LOOKS,
        "With --half-width: number of looks, evenly spaced over the questions.",
        identity="no",
        low=1,
        high=MAX_LOOKS,
        scope="dataset",
    )


@dataclass(frozen=True)
class Accounts:
    """Prices of tokens, and payoffs of answers."""

    price: Price | None = setting(
        None,
        "Dollars per million input and output tokens of the model, as in 2.5,10; adds the cost to the results.",
        identity="no",
        argument="str | None",
        metavar="IN,OUT",
        reader=PRICE,
        is_one_models_own=True,
    )
    grader_price: Price | None = setting(
        None,
        "The same for the grading model; if there are two, the price of each.",
        identity="no",
        argument="str | None",
        metavar="IN,OUT",
        reader=PRICE,
        scope="dataset",
    )
    batch_rate: float | None = setting(
        None,
        "With --engine batch: price of a batch request as a share of the normal price, such as 0.5.",
        identity="no",
        low=0,
        high=1,
    )
    weighted_score_p: float = setting(
        1.0,
        "p of the weighted score c - p(1 - r): the share answered right minus p times the share answered.",
        identity="no",
        low=0,
        scope="set",
        not_in=("gate",),
    )
    truthfulness_weights: TruthfulnessWeights = setting(
        TruthfulnessWeights(),
        "Weights of the truthfulness score: added for a right answer and for a refusal, subtracted for a wrong answer.",
        identity="no",
        argument="str",
        metavar="R,D,W",
        reader=WEIGHTS,
        scope="set",
        not_in=("gate",),
    )

    @property
    def prices(self) -> Prices:
        """Prices of the model and of the graders."""
        return Prices(self.price, self.grader_price, self.batch_rate)


@dataclass(frozen=True)
class Forecast:
    """Assumptions of a dry run."""

    assume_refusal: float | None = setting(
        None,
        "With --dry-run: assumed share of refused questions. [default: that of an embedded model, else 0.5]",
        identity="no",
        low=0,
        high=1,
        not_in=("gate", "watch"),
    )
    reply_tokens: int | None = setting(
        None,
        "With --dry-run: assumed tokens per reply. [default: 8 for the almanac, else 50]",
        identity="no",
        low=1,
        not_in=("gate", "watch"),
    )
    seconds_per_request: float = setting(
        2.0,
        "With --dry-run: assumed duration of a request, with --max-connections in parallel.",
        identity="no",
        low=0,
        not_in=("gate", "watch"),
    )


@dataclass(frozen=True)
class Settings(RequestSettings):
    """All settings of a run.

    Examples
    --------
    >>> settings = Settings.from_values(model="almanac/small", temperature=1, variants="low,high")
    >>> settings.decoding.temperature, settings.prompting.variants
    (1.0, ('low', 'high'))
    """

    model: str = setting(
        DEFAULT_MODEL,
        "Model, as PROVIDER/NAME, or your own function as python:MODULE:FUNCTION.",
        identity="always",
        is_common=True,
        is_one_models_own=True,
        not_in=("watch",),
    )
    grader: str | None = setting(
        None,
        "Grader: 'exact', 'includes', 'choice', 'regex', a model as PROVIDER/NAME, two models that must agree as A,B, "
        "or your own function as python:MODULE:FUNCTION. [default: exact for the almanac, choice for multiple choice, "
        "else openai/gpt-4o-mini]",
        identity="derived",
        scope="dataset",
        is_common=True,
    )
    grader_prompt: Path | None = setting(
        None,
        "TOML file with what a grading model is asked; it must ask for A (correct), B (incorrect) or C (not "
        "attempted). [default: that of this package]",
        identity="derived",
        argument="str | Path | None",
        metavar="FILE",
        reader=read_path,
        scope="dataset",
    )
    refusal: str | None = setting(
        None,
        "How a refusal without the UNANSWERED tag is recognised: 'wording' (in twelve languages), +REGEX or @FILE to "
        "add phrases to it, 'tag' (by the tag alone), 'model:PROVIDER/NAME' to ask a model, or your own function as "
        "python:MODULE:FUNCTION. A grading model decides this itself. [default: wording]",
        identity="derived",
        argument="str | re.Pattern[str] | Callable[[str], bool] | None",
        scope="dataset",
    )
    reasoning: str | None = setting(
        None,
        "Regular expression for the model's reasoning, which is not read. Marks such as <think> are known.",
        identity="derived",
        scope="dataset",
    )
    log_to: tuple[str, ...] = setting(
        (),
        "Log progress and results to 'wandb', 'mlflow', or both as in wandb,mlflow.",
        identity="no",
        argument="str | Sequence[str]",
        reader=read_texts,
        scope="set",
        not_in=("gate",),
    )
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
                raise SettingError(f"no setting is called {name!r}{suggestion(name, SETTINGS)}")
            groups.setdefault(known_setting.group, {})[name] = known_setting.read(value)
        changed = groups.pop(None, {})
        for group, inside in groups.items():
            changed[str(group)] = replace(getattr(self, str(group)), **inside)
        return replace(self, **changed)

    def value(self, name: str) -> Any:
        """Return a setting's value by name."""
        group = SETTINGS[name].group
        return getattr(self if group is None else getattr(self, group), name)

    def recorded(self) -> dict[str, Any]:
        """Return what ``run.json`` records of the settings by value: those of decoding as one object, the root's last.

        Examples
        --------
        >>> recorded = Settings.from_values(think="/no_think", answered_only=True).recorded()
        >>> recorded["think"], recorded["answered_only"], recorded["decoding"]["top_p"]
        ('/no_think', True, 0.95)
        """
        document: dict[str, Any] = {}
        for name, known_setting in sorted(SETTINGS.items(), key=lambda entry: entry[1].group is None):
            known_setting.record(document, self.value(name))
        return document

    def restored(self, document: Mapping[str, Any]) -> Self:
        """Return a copy with the settings that ``run.json`` records by value; others stay as they are.

        A folder may come from a stranger, so a setting that names a program or a file must not be among them.
        """
        return self.changed(
            **{
                name: known_setting.restore(document)
                for name, known_setting in SETTINGS.items()
                if known_setting.identity in ("always", "if_set") and known_setting.recorded_as is None
            }
        )


GROUPS: Mapping[str | None, str] = {
    None: "Model and grading",
    "servers": "Servers",
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
