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
    """What a gate should demand cannot be used as given."""


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
            _check_metrics(name, getattr(self, name))
        for metric, margin in self.margins.items():
            _check_margin(metric, margin)
        _check_bounds(self.at_least, self.at_most)
        _check_share("alpha", self.alpha, 0.5)
        _check_share("max_missing", self.max_missing, 1, from_zero=True)
        if self.variant is not None and not isinstance(self.variant, str):
            raise PolicyError(f"variant: expected the name of a prompt variant, got {shortened(self.variant)}")
        if self.metric not in INDICES:
            raise PolicyError(f"metric: expected {' or '.join(INDICES)}, got {shortened(self.metric)}")
        always = {self.metric if name == INDICES[0] else name: margin for name, margin in MARGINS.items()}
        object.__setattr__(self, "margins", MappingProxyType({**always, **self.margins}))

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str) -> Self:
        """Take a policy from a document such as ``gate.toml`` holds; errors name its source."""
        known = [one.name for one in fields(cls)]
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
            one.name: dict(value) if isinstance(value := getattr(self, one.name), Mapping) else value
            for one in fields(self)
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


def _check_metrics(name: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise PolicyError(f"{name}: expected a number for each of some metrics, got {shortened(given)}")
    for metric, value in given.items():
        if metric not in METRICS:
            raise PolicyError(
                f"{name}: expected metrics out of {listed(METRICS)}, got {shortened(metric)}"
                f"{suggestion(_key_of(str(metric)), METRICS)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise PolicyError(f"{name}, {metric}: expected a number, got {shortened(value)}")
        if METRICS[metric].setting is None:  # else the range depends on the run
            _check_range(name, metric, value)


def _key_of(shown: str) -> str:
    """Return the key of a metric that is called as tables call it; anything else as it is.

    >>> _key_of("c/a"), _key_of("corrected RI"), _key_of("refusl_rate")
    ('correct_given_attempted', 'corrected_refusal_index', 'refusl_rate')
    """
    return {metric.label.casefold(): key for key, metric in METRICS.items()}.get(shown.casefold(), shown)


def _check_range(name: str, metric: str, value: float) -> None:
    high = METRICS[metric].high
    low = 0 if name == "margins" else METRICS[metric].low
    least = -high if name == "margins" else low  # of a sign that is wrong alone something better is said
    if not least <= value <= high:
        per_cent = "; is it in per cent?" if abs(value) > high == 1 else ""
        raise PolicyError(
            f"{name}, {metric}: expected a number that it can be, from {low:g} to {high:g}, got {value:g}{per_cent}"
        )


def _check_margin(metric: str, margin: float) -> None:
    if margin < 0:
        raise PolicyError(
            f"margins, {metric}: expected by how much worse the candidate may be, a number from 0, got {margin:g}; "
            f"leave out the sign: {-margin:g} allows that much"
        )


def _check_bounds(at_least: Mapping[str, float], at_most: Mapping[str, float]) -> None:
    for metric in at_least:
        if metric in at_most and at_least[metric] > at_most[metric]:
            raise PolicyError(
                f"at_least, {metric}: expected no more than its at_most, {at_most[metric]:g}, got "
                f"{at_least[metric]:g}, which no number fulfils"
            )


def _check_share(name: str, value: object, below: float, from_zero: bool = False) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 <= number < below or (number == 0 and not from_zero):
        start = "from 0" if from_zero else "above 0"
        raise PolicyError(f"{name}: expected a number {start} and below {below:g}, got {shortened(value)}")


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
        if sizes[stop.look - 1 : stop.look] != (size,):
            raise _never_planned("stopped", f"{size:,} of {stop.of:,} questions at look {stop.look} of {stop.looks}")
    elif gated is not None:
        sizes = _sizes(gated.of, gated.looks)
        if not sizes:
            raise _never_planned("gate_looks", str(gated))
        size = sizes[-1]
    else:
        return None
    return AtLook(GroupSequential(sizes, alpha), size)


def _sizes(questions: int, looks: int) -> tuple[int, ...]:
    """Return after how many questions each look is; none where nobody can have planned so many."""
    return GroupSequential.planned(questions, looks).sizes if looks <= MOST_LOOKS else ()


def _never_planned(key: str, got: str) -> RunFolderError:
    return RunFolderError(f"run.json: about, {key}: expected where a look was planned, got {got}; restore the file")
