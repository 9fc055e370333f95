"""Policies of a release gate: margins, bounds, significance level and looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from refusal_index.data.analysis import Analysis
from refusal_index.data.files import plain, read_plain
from refusal_index.data.run_json import MAX_LOOKS, GateLooks, Stop
from refusal_index.data.text import parse_toml
from refusal_index.errors import RefusalIndexError, RunFolderError, listed, shortened, suggestion
from refusal_index.findings.metrics import METRICS, unknown_metric
from refusal_index.stats import AtLook, GroupSequential

MARGINS: Mapping[str, float] = MappingProxyType(
    {"refusal_index": 0.1, "correct_rate": 0.05, "correct_given_attempted": 0.05, "refusal_rate": 0.1}
)
"""Default margins: how much worse than the baseline a candidate may be.

These four are always guarded: an index alone can be kept by a model that knows less, and rates alone by one that
refuses the wrong questions. With the policy's `metric` the corrected index takes the place of RI.
"""

COARSE: Mapping[str, float] = MappingProxyType(
    {"refusal_index": 0.25, "correct_rate": 0.1, "correct_given_attempted": 0.1, "refusal_rate": 0.15}
)
"""Margins of the preset for 300 to 500 questions, with which the default ones seldom give a verdict."""

PRESETS: Mapping[str, Mapping[str, float]] = MappingProxyType({"coarse": COARSE})
"""Margins of the policies that have a name."""

INDICES = ("refusal_index", "corrected_refusal_index")
"""The indices that a policy's `metric` can select."""

MAX_BYTES = 1 << 20
"""Largest policy file, in bytes."""


class PolicyError(RefusalIndexError, ValueError):
    """Raised for an invalid policy; the message names the key."""


@dataclass(frozen=True)
class Policy:
    """The requirements of a gate.

    Attributes
    ----------
    margins
        By metric, by how much worse than the baseline the candidate may be; those of `MARGINS` are always there.
    metric
        Which index is guarded unless told otherwise: ``"refusal_index"``, or ``"corrected_refusal_index"``, for which
        both runs must have been sampled more than once. Without it the verdict is inconclusive.
    at_least, at_most
        By metric, fixed bounds of the candidate's own number, whatever the baseline.
    alpha
        Probability of passing a candidate that is beyond a limit, and that of failing one that is within all.
    max_missing
        Largest share of the questions without a grade with which there is a verdict.
    max_refused_again
        Largest share of a run's refusals that the forced pass may refuse again for RI to be judged.
    variant
        The prompt variant to judge by; None where both have only one in common.

    Examples
    --------
    >>> Policy(margins={"refusal_index": 0.15}).margins["refusal_index"]
    0.15
    """

    margins: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    alpha: float = 0.05
    max_missing: float = 0.01
    max_refused_again: float = 0.1
    variant: str | None = None
    metric: str = INDICES[0]

    def __post_init__(self) -> None:
        for name in TABLES:
            _check_numbers(name, getattr(self, name))
        for metric in self.at_least:
            if metric in self.at_most and self.at_least[metric] > self.at_most[metric]:
                raise PolicyError(
                    f"at_least, {metric}: expected no more than its at_most, {self.at_most[metric]:g}, got "
                    f"{self.at_least[metric]:g}; no value can meet both"
                )
        if not (_is_number(self.alpha) and 0 < self.alpha < 0.5):
            raise PolicyError(f"alpha: expected a number above 0 and below 0.5, got {shortened(self.alpha)}")
        for name in ("max_missing", "max_refused_again"):
            share = getattr(self, name)
            if not (_is_number(share) and 0 <= share < 1):
                raise PolicyError(f"{name}: expected a number from 0 and below 1, got {shortened(share)}")
        if self.variant is not None and not isinstance(self.variant, str):
            raise PolicyError(f"variant: expected the name of a prompt, got {shortened(self.variant)}")
        if self.metric not in INDICES:
            raise PolicyError(f"metric: expected {' or '.join(INDICES)}, got {shortened(self.metric)}")
        always = {self.metric if name == INDICES[0] else name: margin for name, margin in MARGINS.items()}
        object.__setattr__(self, "margins", MappingProxyType({**always, **self.margins}))

    @classmethod
    def from_document(cls, document: Mapping[str, Any], source: str) -> Self:
        """Parse a policy from a dictionary as in ``gate.toml``; errors name its source."""
        names = [field_.name for field_ in fields(cls)]
        for key in document:
            if key not in names:
                raise PolicyError(
                    f"{source}: expected keys from {listed(names)}, got {key!r}{suggestion(str(key), names)}"
                )
        try:
            return cls(**document)
        except PolicyError as error:
            raise PolicyError(f"{source}, {error}") from error

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values; tables are merged, and None changes nothing."""
        changes = {name: value for name, value in values.items() if value is not None}
        merged = {name: {**getattr(self, name), **changes[name]} for name in TABLES if name in changes}
        return replace(self, **{**changes, **merged})

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary."""
        return dict(plain(self))


TABLES = ("margins", "at_least", "at_most")
"""Tables of a policy, with a number for each metric."""


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file; raises PolicyError, naming file and key, if it is invalid."""
    try:
        document = parse_toml(read_plain(path, MAX_BYTES))
    except OSError as error:
        raise PolicyError(
            f"policy: {path} cannot be read ({error.strerror}); check the path, or name a preset: {listed(PRESETS)}"
        ) from error
    except ValueError as error:
        raise PolicyError(f"{path}: not valid TOML: {error}") from error
    return Policy.from_document(document, str(path))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_numbers(name: str, table: object) -> None:
    """Raise PolicyError unless a table of the policy holds a valid number for each metric."""
    if not isinstance(table, Mapping):
        raise PolicyError(f"{name}: expected a table of metrics and numbers, got {shortened(table)}")
    for key, value in table.items():
        if key not in METRICS:
            raise PolicyError(f"{name}: {unknown_metric(key)}")
        metric = METRICS[key]
        if not _is_number(value):
            raise PolicyError(f"{name}, {key}: expected a number, got {shortened(value)}")
        low = 0 if name == "margins" else metric.low
        lowest = -metric.high if name == "margins" else low  # margins with a sign have an error of their own
        if metric.setting is None and not lowest <= value <= metric.high:  # otherwise the range depends on the run
            per_cent = "; is it a percentage?" if abs(value) > metric.high == 1 else ""
            raise PolicyError(
                f"{name}, {key}: expected a possible value, from {low:g} to {metric.high:g}, got {value:g}{per_cent}"
            )
        if name == "margins" and value < 0:
            raise PolicyError(
                f"margins, {key}: expected by how much worse the candidate may be, a number from 0, got {value:g}; "
                f"leave out the sign: {-value:g} allows that much"
            )


def look_of(about: Mapping[str, Any], alpha: float) -> AtLook | None:
    """Return the look at which a run is judged; None for a run that is judged once.

    A run that stopped is judged at the look where it did, by O'Brien and Fleming's boundary over all planned looks: its
    error rate is at most alpha, whatever the look and the rule for stopping. A run that a gate looked at while it was
    asked is judged as that gate does, also at its last look: another test there, at the full alpha, would be one too
    many.

    - `about`: what the run's folder says of how it was made.
    - `alpha`: probability of error of all looks together.
    """
    stop = Stop.read(about)
    gated = GateLooks.read(about)
    if stop is not None:
        sizes = _sizes(stop.planned, stop.looks)
        size = stop.asked
        is_planned = sizes[stop.look - 1 : stop.look] == (size,)
        key = "stopped"
        value = f"{size:,} of {stop.planned:,} questions at look {stop.look} of {stop.looks}"
    elif gated is not None:
        sizes = _sizes(gated.questions, gated.looks)
        is_planned = bool(sizes)
        size = sizes[-1] if sizes else 0
        key = "gate_looks"
        value = str(gated)
    else:
        return None
    if not is_planned:
        raise RunFolderError(
            f"run.json: about, {key}: expected where a look was planned, got {value}; restore the file"
        )
    return AtLook(GroupSequential(sizes, alpha), size)


def _sizes(questions: int, looks: int) -> tuple[int, ...]:
    """Return the number of questions at each look; empty if the recorded plan is impossible."""
    return GroupSequential.planned(questions, looks).sizes if looks <= MAX_LOOKS else ()


def check_reachable(policy: Policy, analysis: Analysis) -> None:
    """Raise PolicyError for a limit outside a score's range."""
    for metric in METRICS.values():
        if metric.setting is None:
            continue
        low, high = metric.range(analysis)
        ranges = {"at_least": (low, high), "at_most": (low, high), "margins": (0, high - low)}
        for name, (lowest, highest) in ranges.items():
            limit = getattr(policy, name).get(metric.name)
            if limit is not None and not lowest <= limit <= highest:
                raise PolicyError(
                    f"{name}, {metric.name}: expected a number from {lowest:g} to {highest:g}, which is what it can be "
                    f"with the run's {metric.setting}, got {limit:g}; is it a percentage?"
                )
