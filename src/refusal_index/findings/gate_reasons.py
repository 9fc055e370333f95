"""The result of each guard of a gate, and the reasons for a verdict: which guards decide it, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from refusal_index.findings.draws import NO_REPEATED_QUESTIONS
from refusal_index.findings.guards import NamedGuard
from refusal_index.findings.metrics import CORRECTED, METRICS, Statement
from refusal_index.stats.non_inferiority import GuardTest, Verdict

ROUNDING = 1e-12
"""An estimate this close to its limit lies on it: differences of shares such as 24/60 - 18/60 are inexact."""

Against = Literal["baseline", "bound", "reverse_bound"]
"""What a guard compares with: the baseline; a fixed bound on how bad a metric may be; one on how good it may be."""

NextStep = Literal["resume", "complete", "force_answers", "sample_twice", "ask_more", "decide"]
"""What to do after an inconclusive verdict."""


@dataclass(frozen=True)
class GuardResult(NamedGuard):
    """A guarded metric and its test."""

    test: GuardTest
    refused_again: tuple[str, ...] = ()  # the runs that refused again too often for this guard

    @property
    def is_blocked(self) -> bool:
        """Whether answers that are missing or were refused again keep the guard from a verdict."""
        return self.test.is_blocked or bool(self.refused_again)

    @property
    def against(self) -> Against:
        """What the metric is compared with."""
        if self.against_baseline:
            return "baseline"
        is_lower_worse = not METRICS[self.guard.name].lower_is_better
        return "bound" if self.guard.higher_is_better is is_lower_worse else "reverse_bound"

    @property
    def code(self) -> str:
        """Why it does not pass."""
        guard = self.guard
        test = self.test
        is_unknown = guard.estimate is None or (test.verdict == "inconclusive" and test.worst is None)
        if self.refused_again:
            code = "guard_refused_again"
        elif is_unknown and guard.name == CORRECTED and self.reason == NO_REPEATED_QUESTIONS:
            code = "guard_not_sampled_twice"
        elif is_unknown:
            code = "guard_undefined" if test.verdict == "fail" else "guard_unjudged"
        elif test.verdict == "fail":
            code = "guard_beyond"
        elif test.is_blocked:
            code = "guard_imputed"
        else:
            is_beyond = guard.distance(guard.estimate or 0.0) < -ROUNDING
            code = "guard_looks_beyond" if is_beyond else "guard_may_be_beyond"
        return code

    def to_document(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary with unrounded numbers."""
        guard = self.guard
        test = self.test
        guard_fields = {name: getattr(guard, name) for name in ("estimate", "limit", "higher_is_better")}
        test_fields = ("worst", "best", "worst_imputed", "pvalue_inside", "pvalue_beyond", "pvalue_holm", "verdict")
        return {
            "metric": guard.name,
            "kind": "margin" if self.against_baseline else "bound",
            "candidate": self.candidate,
            "baseline": self.baseline,
            **guard_fields,
            **{name: getattr(test, name) for name in test_fields},
            "reason": self.reason,
        }


def decisive_reasons(guards: Iterable[GuardResult], verdict: Verdict) -> list[Statement]:
    """State why the guards with this verdict do not pass, in one statement for each reason."""
    metrics: dict[tuple[Any, ...], list[str]] = {}
    for guard in guards:
        if guard.test.verdict == verdict:
            # codes whose sentence says why a number is undefined
            reason = guard.reason if guard.code in ("guard_undefined", "guard_unjudged") else None
            key = (guard.code, guard.against, reason, guard.refused_again)
            metrics.setdefault(key, []).append(guard.guard.name)
    reasons = []
    for (code, against, reason, runs), names in metrics.items():
        compared = {"metrics": names, "against": against}
        values = {**compared, "worse": Statement("worse", "conclusion", compared), "reason": reason, "runs": list(runs)}
        reasons.append(Statement(code, "conclusion", values))
    return reasons


def next_step(codes: Collection[str], *, more_would_help: bool, is_missing: bool) -> NextStep:
    """Return what to do after an inconclusive verdict.

    - `codes`: of the reasons.
    - `more_would_help`: whether a number of questions is known that would give a verdict.
    - `is_missing`: whether answers are missing.

    >>> next_step(["guard_may_be_beyond"], more_would_help=True, is_missing=False)
    'ask_more'
    """
    first: dict[str, NextStep] = {
        "unasked": "resume",
        "between_looks": "resume",
        "too_many_missing": "complete",
        "too_few_shared": "complete",
        "guard_refused_again": "force_answers",
        "guard_not_sampled_twice": "sample_twice",
    }
    for code, step in first.items():
        if code in codes:
            return step
    if more_would_help:
        return "ask_more"
    if set(codes) == {"guard_imputed"}:
        return "complete" if is_missing else "force_answers"
    return "decide"
