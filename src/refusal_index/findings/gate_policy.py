"""What a release gate demands: margins, bounds and significance level, and the look that is judged."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from refusal_index.data.errors import RunFolderError, listed, shortened, suggestion
from refusal_index.data.files import read_plain
from refusal_index.data.rates import MISSING_LIMIT
from refusal_index.data.run_json import MOST_LOOKS, GateLooks, Stop
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.metrics import METRICS
from refusal_index.stats import AtLook, GroupSequential

MARGINS: Mapping[str, float] = MappingProxyType(
    {"refusal_index": 0.1, "correct_rate": 0.05, "correct_given_attempted": 0.05, "refusal_rate": 0.1}
)
"""By how much worse than the baseline a candidate may be, unless told otherwise.

These four are always guarded: an index alone can be kept by a model that knows less, and rates alone by one that
refuses the wrong questions. With the policy's `metric` the corrected index takes the place of RI.
"""

INDICES = ("refusal_index", "corrected_refusal_index")
"""The indices of which a policy's `metric` names the one to guard."""

MOST_BYTES = 1 << 20
"""Most bytes of a policy."""


class PolicyError(RefusalIndexError, ValueError):
    """A gate's policy that cannot be used; the message names the key."""


@dataclass(frozen=True)
class Policy:
    """What a gate demands.

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
        Largest share of the questions without a grade with which a run can pass.
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
    max_missing: float = MISSING_LIMIT
    variant: str | None = None
    metric: str = INDICES[0]

    def __post_init__(self) -> None:
        for name in TABLES:
            _check_numbers(name, getattr(self, name))
        for metric in self.at_least:
            if metric in self.at_most and self.at_least[metric] > self.at_most[metric]:
                raise PolicyError(
                    f"at_least, {metric}: expected no more than its at_most, {self.at_most[metric]:g}, got "
                    f"{self.at_least[metric]:g}, which no number fulfils"
                )
        if not (_is_number(self.alpha) and 0 < self.alpha < 0.5):
            raise PolicyError(f"alpha: expected a number above 0 and below 0.5, got {shortened(self.alpha)}")
        if not (_is_number(self.max_missing) and 0 <= self.max_missing < 1):
            raise PolicyError(f"max_missing: expected a number from 0 and below 1, got {shortened(self.max_missing)}")
        if self.variant is not None and not isinstance(self.variant, str):
            raise PolicyError(f"variant: expected the name of a prompt variant, got {shortened(self.variant)}")
        if self.metric not in INDICES:
            raise PolicyError(f"metric: expected {' or '.join(INDICES)}, got {shortened(self.metric)}")
        always = {self.metric if name == INDICES[0] else name: margin for name, margin in MARGINS.items()}
        object.__setattr__(self, "margins", MappingProxyType({**always, **self.margins}))

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str) -> Self:
        """Take a policy from a document such as ``gate.toml`` holds; errors name its source."""
        known = [field_.name for field_ in fields(cls)]
        for key in document:
            if key not in known:
                raise PolicyError(
                    f"{source}: expected keys out of {listed(known)}, got {key!r}{suggestion(str(key), known)}"
                )
        try:
            return cls(**document)
        except PolicyError as error:
            raise PolicyError(f"{source}, {error}") from error

    @property
    def has_bounds(self) -> bool:
        """Whether it demands anything that needs no baseline."""
        return bool(self.at_least or self.at_most)

    def changed(self, **values: Any) -> Self:
        """Return it with other values: tables of numbers are added to its own, None changes nothing."""
        given = {name: value for name, value in values.items() if value is not None}
        merged = {name: {**getattr(self, name), **given[name]} for name in TABLES if name in given}
        return replace(self, **{**given, **merged})

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return {
            field_.name: dict(value) if isinstance(value := getattr(self, field_.name), Mapping) else value
            for field_ in fields(self)
        }


TABLES = ("margins", "at_least", "at_most")
"""The parts of a policy that hold a number for each of several metrics."""


def read_policy(path: Path) -> Policy:
    """Read a policy from a file of TOML; raises PolicyError if it cannot be used, naming the file and the key."""
    try:
        document = tomllib.loads(read_plain(path, MOST_BYTES).decode())
    except OSError as error:
        raise PolicyError(f"policy: {path} cannot be read ({error.strerror}); check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not valid TOML: {error}") from error
    return Policy.of(document, str(path))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_numbers(name: str, given: object) -> None:
    """Raise PolicyError unless a table of the policy holds a number that is possible for each of some metrics."""
    if not isinstance(given, Mapping):
        raise PolicyError(f"{name}: expected a number for each of some metrics, got {shortened(given)}")
    for key, value in given.items():
        if key not in METRICS:
            raise PolicyError(
                f"{name}: expected metrics out of {listed(METRICS)}, got {shortened(key)}"
                f"{suggestion(_key_of(str(key)), METRICS)}"
            )
        metric = METRICS[key]
        if not _is_number(value):
            raise PolicyError(f"{name}, {key}: expected a number, got {shortened(value)}")
        low = 0 if name == "margins" else metric.low
        least = -metric.high if name == "margins" else low  # a margin with a sign has an error of its own
        if metric.setting is None and not least <= value <= metric.high:  # else the range depends on the run
            per_cent = "; is it a percentage?" if abs(value) > metric.high == 1 else ""
            raise PolicyError(
                f"{name}, {key}: expected a number that it can be, from {low:g} to {metric.high:g}, got {value:g}"
                f"{per_cent}"
            )
        if name == "margins" and value < 0:
            raise PolicyError(
                f"margins, {key}: expected by how much worse the candidate may be, a number from 0, got {value:g}; "
                f"leave out the sign: {-value:g} allows that much"
            )


def _key_of(shown: str) -> str:
    """Return the key of a metric that is called as tables call it; anything else as it is.

    >>> _key_of("c/a"), _key_of("corrected RI"), _key_of("refusl_rate")
    ('correct_given_attempted', 'corrected_refusal_index', 'refusl_rate')
    """
    return {metric.label.casefold(): key for key, metric in METRICS.items()}.get(shown.casefold(), shown)


def look_of(about: Mapping[str, Any], alpha: float) -> AtLook | None:
    """Return the look at which a run is judged; None of one that is judged once.

    One that stopped is judged where it did, by O'Brien and Fleming's boundary over all the looks that were planned: at
    whichever of them a run stops, and by whatever rule, that errs no more often than alpha. One that a gate looked at
    while it was asked is judged as that gate does, also at its last look: another test there, with all of alpha, would
    be one too many.

    - `about`: what the run's folder says of how it was made.
    - `alpha`: probability of error of all looks together.
    """
    stop, gated = Stop.read(about), GateLooks.read(about)
    if stop is not None:
        sizes, size = _sizes(stop.of, stop.looks), stop.asked
        is_planned = sizes[stop.look - 1 : stop.look] == (size,)
        key, got = "stopped", f"{size:,} of {stop.of:,} questions at look {stop.look} of {stop.looks}"
    elif gated is not None:
        sizes = _sizes(gated.of, gated.looks)
        is_planned, size = bool(sizes), sizes[-1] if sizes else 0
        key, got = "gate_looks", str(gated)
    else:
        return None
    if not is_planned:
        raise RunFolderError(f"run.json: about, {key}: expected where a look was planned, got {got}; restore the file")
    return AtLook(GroupSequential(sizes, alpha), size)


def _sizes(questions: int, looks: int) -> tuple[int, ...]:
    """Return after how many questions each look is; none where nobody can have planned so many."""
    return GroupSequential.planned(questions, looks).sizes if looks <= MOST_LOOKS else ()
