"""A release gate: whether a candidate may take the place of its baseline.

The verdict is that of `refusal_index.stats.non_inferiority`, over the guards of a policy. Nothing is decided of a run
that lacks grades of more questions than the policy allows: what is missing may depend on what it would have been.
Questions that only the other run has count as missing too. A run that was ended early has no grade of what it refused,
unless the answer was demanded already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError, suggestion
from refusal_index.data.files import plain
from refusal_index.data.folder import RUN_ID, Asked, missing_share
from refusal_index.data.rates import never_forced
from refusal_index.data.run_json import Stop, is_deterministic
from refusal_index.data.runs import ComparedRun, Match, differing_settings
from refusal_index.data.sampling import OWN_COLUMNS, describe, design_of, first_draws
from refusal_index.findings.comparison import VariantComparison, compare_pair
from refusal_index.findings.conclusions import stopped
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS
from refusal_index.findings.gate_guards import (
    ChangedQuestion,
    NamedGuard,
    bound_guards,
    change_limit,
    check_reachable,
    margin_guards,
    most_changed,
    payoffs_of,
)
from refusal_index.findings.gate_policy import Policy, PolicyError, look_of
from refusal_index.findings.matching import CompareOptions, settings_statements
from refusal_index.findings.metrics import CORRECTED
from refusal_index.findings.shown import Shown
from refusal_index.findings.statement import Statement
from refusal_index.stats import AtLook
from refusal_index.stats.baseline import Payoffs
from refusal_index.stats.non_inferiority import GuardTest, Verdict, judge_guards, times_to_settle, verdict_of

RUNS = ("candidate", "baseline")

GATE_VERSION = 2
"""Version of the JSON document; in version 1 `refusal_index` was the corrected index of runs sampled repeatedly."""


@dataclass(frozen=True)
class GuardResult:
    """A guard with what came of it."""

    named: NamedGuard
    test: GuardTest

    @property
    def limit(self) -> Statement:
        """What the guard allows."""
        guard = self.named.guard
        values = {"limit": guard.limit, "higher": guard.higher_is_better, "margin": self.named.against_baseline}
        return Statement("guard_limit", "scope", values)

    @property
    def statement(self) -> Statement:
        """What was decided of it."""
        named, test, guard = self.named, self.test, self.named.guard
        values = {
            "metric": guard.name,
            "margin": named.against_baseline,
            "estimate": guard.estimate,
            "worst": test.worst,
            "limit": self.limit,
            "pvalue": test.pvalue_holm,
            "reason": named.reason,
        }
        if test.verdict == "pass":
            return Statement("guard_within", "conclusion", values)
        if guard.estimate is None or (test.verdict == "inconclusive" and test.worst is None):
            if guard.name == CORRECTED and named.reason == NO_REPEATED_QUESTIONS:
                return Statement("guard_not_sampled_twice", "conclusion", values)
            return Statement("guard_undefined" if test.verdict == "fail" else "guard_unjudged", "conclusion", values)
        if test.verdict == "fail":
            return Statement("guard_beyond", "conclusion", values)
        is_beyond = guard.room(guard.estimate) < 0
        return Statement("guard_looks_beyond" if is_beyond else "guard_may_be_beyond", "conclusion", values)

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON holds it, unrounded."""
        guard, test = self.named.guard, self.test
        return {
            "metric": self.named.guard.name,
            "kind": "margin" if self.named.against_baseline else "bound",
            "candidate": self.named.candidate,
            "baseline": self.named.baseline,
            "estimate": guard.estimate,
            "limit": guard.limit,
            "higher_is_better": guard.higher_is_better,
            "worst": test.worst,
            "best": test.best,
            "pvalue_inside": test.pvalue_inside,
            "pvalue_beyond": test.pvalue_beyond,
            "pvalue_holm": test.pvalue_holm,
            "verdict": test.verdict,
            "reason": self.named.reason,
        }


@dataclass(frozen=True, repr=False)
class GateResult(Shown):
    """What a gate decided, and why.

    Attributes
    ----------
    verdict
        ``"pass"``, ``"fail"`` or ``"inconclusive"``.
    candidate, baseline
        The runs; the last is None where there are fixed bounds only.
    guards
        Every guard with what came of it; none where nothing was judged, as between two looks.
    policy, alpha
        What was demanded, and the probability of error, of all looks together where there are several.
    variant, match
        What was judged; the match is None without a baseline, and pairs nothing where no grades are there to pair.
    missing
        Share of what was asked that has no grade, by run: ``"candidate"`` and ``"baseline"``; of the questions, of
        those that are to be compared, or of their further draws, whichever is most.
    changed, no_changes
        The questions that changed by more than sampling noise, the largest changes first, and why none can be shown.
    look
        At which look a candidate was judged that is judged while it is asked, or stopped early; else None, and between
        two looks.
    within_look
        Whether asking ended between two looks, where nothing is decided.
    unasked
        What kept the candidate from being asked up to its next look, where that was an error: nothing is judged then.
    """

    verdict: Verdict
    candidate: ComparedRun
    baseline: ComparedRun | None
    guards: tuple[GuardResult, ...]
    policy: Policy
    alpha: float
    variant: str | None
    match: Match | None
    questions: int
    missing: Mapping[str, float]
    changed: tuple[ChangedQuestion, ...] = ()
    no_changes: str | None = None
    sampling: Mapping[str, Any] | None = None
    look: AtLook | None = None
    within_look: bool = False
    unasked: str | None = None

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The runs that lack grades of more questions than the policy allows."""
        return _too_many(self.missing, self.policy)

    @property
    def is_judged(self) -> bool:
        """Whether anything can be decided: at a look, and of grades enough that both runs share."""
        paired = self.match is None or self.match.paired
        return paired and not (self.incomplete or self.within_look or self.unasked)

    @property
    def more_questions(self) -> int | None:
        """How many more questions would settle an inconclusive verdict with a chance of 80 %, if all stays as it is.

        None where it is settled, where no number would, and where nothing can be decided.
        """
        is_open = self.verdict == "inconclusive" and self.is_judged
        times = times_to_settle([one.test for one in self.guards]) if is_open else None
        return None if times is None else math.ceil((times - 1) * self.questions)

    @property
    def level_at_look(self) -> float | None:
        """The one-sided level of the tests at its look."""
        return None if self.look is None else self.look.level

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Why the verdict is what it is, what was judged, and what else there is to know."""
        return (self._conclusion(), self._scope(), *self._notes())

    def _conclusion(self) -> Statement:
        if self.unasked is not None:
            return Statement("unasked", "conclusion", {"error": self.unasked})
        if self.within_look:
            return Statement("between_looks", "conclusion")
        if self.incomplete:
            values = {
                "missing": [(name, self.missing[name]) for name in self.incomplete],
                "limit": self.policy.max_missing,
            }
            return Statement("too_many_missing", "conclusion", values)
        if not self.is_judged:
            return Statement("too_few_shared", "conclusion")
        decisive = [one.statement for one in self.guards if one.test.verdict == self.verdict]
        if self.verdict != "pass":
            return Statement("guards", "conclusion", {"guards": decisive})
        nearest = min(self.guards, key=lambda one: -(one.test.pvalue_inside or 0.0))
        return Statement("all_within", "conclusion", {"level": 1 - self.alpha, "nearest": nearest.statement})

    def _scope(self) -> Statement:
        """Say what was compared with what."""
        values = {"candidate": self.candidate.label, "variant": self.variant, "questions": self.questions}
        if self.unasked is not None or self.within_look:
            return Statement("nothing_judged", "scope", values)
        if self.baseline is None:
            return Statement("judged_by_bounds", "scope", values)
        counts = zip(RUNS, self.match.left_out if self.match else (), strict=False)
        left_out = [(name, count) for name, count in counts if count]
        return Statement("judged", "scope", {**values, "baseline": self.baseline.label, "left_out": left_out})

    def _notes(self) -> Iterator[Statement]:
        if self.is_one_run:
            yield Statement("one_run", "grave")
        if self.look is not None:
            sizes, asked = self.look.design.sizes, self.look.n
            values = {"look": sizes.index(asked) + 1, "looks": len(sizes), "asked": asked, "questions": sizes[-1]}
            yield Statement("look", "scope", values)
        if self.baseline is None and not self.candidate.settings:
            yield Statement("no_sample_recorded", "grave")
        stop = None if self.baseline is None else Stop.read(self.baseline.about)
        if stop is not None:
            yield Statement("baseline_stopped", "scope", {"stop": stopped(stop)})
        if self.verdict == "inconclusive" and self.guards and self.is_judged:
            yield Statement("more_questions", values={"more": self.more_questions})
        missing = [(name, share) for name, share in self.missing.items() if share]
        if missing and not self.within_look:
            yield Statement("missing", "grave", {"missing": missing})
        if self.baseline is not None and self.guards:
            yield from settings_statements((self.candidate, self.baseline))
        if self.no_changes is not None and self.guards and not self.changed:
            yield Statement("too_few_samples" if self.no_changes == "too_few_samples" else "single_responses")

    @property
    def why(self) -> str:
        """The reason in words, as the first line of what is printed has it."""
        return repr(self).partition("\n")[0].partition(": ")[2]

    @property
    def is_one_run(self) -> bool:
        """Whether candidate and baseline are the same run, or copies of it."""
        if self.baseline is None:
            return False
        ours, theirs = (run.about.get(RUN_ID) for run in (self.candidate, self.baseline))
        places = [(run.source.resolve(), run.label) for run in (self.candidate, self.baseline)]
        return places[0] == places[1] or (ours is not None and ours == theirs)

    @property
    def settings_that_differ(self) -> tuple[str, ...]:
        """Settings other than the model in which the runs differ."""
        return () if self.baseline is None else differing_settings((self.candidate, self.baseline))

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded; `refusal_index.render.gate.gate_document` adds the sentences."""
        return {
            "gate_version": GATE_VERSION,
            "verdict": self.verdict,
            "candidate": self.candidate.label,
            "baseline": None if self.baseline is None else self.baseline.label,
            "variant": self.variant,
            "questions": self.questions,
            "left_out": None if self.match is None else dict(zip(RUNS, self.match.left_out, strict=True)),
            "alpha": self.alpha,
            "level_at_look": self.level_at_look,
            "looked": None,
            "guards": [plain(one.to_document()) for one in self.guards],
            "more_questions": self.more_questions,
            "missing": dict(self.missing),
            "sampling": self.sampling,
            "changed": [asdict(one) for one in self.changed],
            "no_changes": self.no_changes,
            "settings_that_differ": list(self.settings_that_differ),
            "policy": self.policy.to_document(),
        }


def decide(
    candidate: ComparedRun,
    baseline: ComparedRun | None,
    policy: Policy,
    *,
    look: AtLook | None = None,
    within_look: bool = False,
) -> GateResult:
    """Judge a candidate by a policy.

    Raises OutcomeTableError if the runs share no variant, or several and the policy names none, or too few questions,
    or were never forced; PolicyError if there is nothing to judge by.

    - `candidate`, `baseline`: the runs; None for fixed bounds only.
    - `look`: where the candidate is looked at several times while it is asked: at which of these looks. Without, a
      candidate that stopped early is judged at the look at which it did, and one that a gate looked at while it was
      asked at the last of these looks.
    - `within_look`: whether asking ended before that look: nothing is decided then.
    """
    if baseline is None and not policy.has_bounds:
        raise PolicyError(
            "gate: expected a baseline to compare with, or fixed bounds, got neither; name a run with --baseline, or "
            "a bound with --at-least METRIC=NUMBER or --at-most METRIC=NUMBER"
        )
    runs = {"candidate": candidate} if baseline is None else {"candidate": candidate, "baseline": baseline}
    for key, run in runs.items():
        check_variant(key, run, policy.variant)
    payoffs = payoffs_of(list(runs.values()), policy.margins)
    check_reachable(policy, payoffs)
    if look is None:
        look = look_of(candidate.about, policy.alpha)
    found = None if baseline is None else _compared(candidate, baseline, policy, payoffs)
    names = {key: _variant(run, policy, found) for key, run in runs.items()}
    rows = {key: run.variants[names[key]] for key, run in runs.items()}
    for key, table in rows.items():
        _check_forced(key, table)
    if look is not None and rows["candidate"]["question_id"].n_unique() < look.n:
        within_look = True
    margins = margin_guards(found, policy) if found and found.match.paired else ()
    guards = [*margins, *bound_guards(candidate, rows["candidate"], policy, payoffs)]
    tests = judge_guards([one.guard for one in guards], policy.alpha, look) if guards else ()
    asked = {key: run.asked.get(names[key], Asked()) for key, run in runs.items()}
    if look is not None:
        asked["candidate"] = replace(asked["candidate"], questions=look.n)
    missing = {key: missing_share(table, asked[key]) for key, table in rows.items()}
    for key, share in _absent_shares(runs, rows, asked).items():
        missing[key] = max(missing[key], share)
    unpaired = found is not None and not found.match.paired
    if within_look or unpaired or _too_many(missing, policy):
        tests = tuple(replace(one, verdict="inconclusive") for one in tests)
    scored = first_draws(rows["candidate"]).drop_nulls(["refused", "wrong"])
    shared = found.match.matrix.of_questions(found.match.matrix.shared).question_ids if found else ()
    design = found.match.matrix.design if found else design_of(scored)
    exact = all(is_deterministic(run.settings) for run in runs.values())
    return GateResult(
        verdict=verdict_of(tests),
        candidate=candidate,
        baseline=baseline,
        guards=() if within_look else tuple(GuardResult(*one) for one in zip(guards, tests, strict=True)),
        policy=policy,
        alpha=policy.alpha,
        variant=found.name if found and any(names.values()) else names["candidate"],
        match=found.match if found else None,
        questions=len(shared) if found else scored.height,
        missing=missing,
        changed=most_changed(rows["candidate"], rows["baseline"], shared, exact) if found and not within_look else (),
        no_changes=change_limit(rows["candidate"], rows["baseline"], shared, exact) if found else None,
        sampling=describe(design, OWN_COLUMNS),
        look=None if within_look else look,
        within_look=within_look,
    )


def check_variant(which: str, run: ComparedRun, name: str | None) -> None:
    """Raise OutcomeTableError where a run, the candidate or the baseline, has not got the variant to judge by."""
    if name is None or run.has_no_variants or name in run.variants:
        return
    known = [str(one) for one in run.variants]
    raise OutcomeTableError(
        f"{which}: {run.source} has no variant {name!r}; expected one of {', '.join(known)}{suggestion(name, known)}"
    )


def unjudged(
    candidate: ComparedRun, baseline: ComparedRun | None, policy: Policy, variant: str, unasked: str
) -> GateResult:
    """Return what comes of a candidate that could not be asked up to its next look: inconclusive, with the reason.

    It takes what `decide` takes, the variant that was to be asked, and what kept it from that.
    """
    return GateResult(
        "inconclusive",
        candidate,
        baseline,
        guards=(),
        policy=policy,
        alpha=policy.alpha,
        variant=variant,
        match=None,
        questions=0,
        missing={},
        unasked=unasked,
    )


def _absent_shares(
    runs: Mapping[str, ComparedRun], rows: Mapping[str, pl.DataFrame], asked: Mapping[str, Asked]
) -> dict[str, float]:
    """Return the share of the questions to compare that have no grade, by run.

    With one dataset and seed the smaller sample is contained in the larger one, so the questions to compare are those
    of the smaller. A bare table records no sample: beside a run, the run's questions count, and of two tables every
    question in either. Samples of different datasets or seeds overlap by chance, so nothing is expected of them.
    """
    samples = {key: one for key, run in runs.items() if (one := _sample_of(run)) is not None}
    if len(runs) < 2 or len(set(samples.values())) > 1:
        return {}
    ids = {key: set(table["question_id"]) for key, table in rows.items()}
    graded = {
        key: set(first_draws(table).drop_nulls(["refused", "wrong"])["question_id"]) for key, table in rows.items()
    }
    owner = min(samples, key=lambda key: asked[key].questions, default=None)
    expected = set.union(*ids.values()) if owner is None else ids[owner]
    lacks = {key: len(expected - of_run) for key, of_run in graded.items()}
    number = len(expected)
    if owner is not None and asked[owner].questions > number:  # which ones are gone is not recorded, only how many
        lacks[owner] += asked[owner].questions - number
        number = asked[owner].questions
    return {key: count / number for key, count in lacks.items()} if number else {}


def _sample_of(run: ComparedRun) -> tuple[Any, ...] | None:
    """Identify the dataset and seed of a run's sample of questions; None where it is not recorded."""
    dataset = run.settings.get("dataset")
    return (
        (dataset.get("name"), dataset.get("sha256"), run.settings.get("seed")) if isinstance(dataset, Mapping) else None
    )


def _too_many(missing: Mapping[str, float], policy: Policy) -> tuple[str, ...]:
    """Name the runs that lack grades of more questions than the policy allows."""
    return tuple(name for name, share in missing.items() if share > policy.max_missing)


def _compared(candidate: ComparedRun, baseline: ComparedRun, policy: Policy, payoffs: Payoffs) -> VariantComparison:
    """Compare the candidate with the baseline under the one variant to judge by, question by question.

    Where both were asked the same and lack the grades, nothing is paired.
    """
    options = CompareOptions(variant=policy.variant, penalty=payoffs.penalty, truthfulness_weights=payoffs.truthfulness)
    pair = compare_pair((candidate, baseline), options)
    if len(pair.variants) > 1:
        raise _several([one.name for one in pair.variants])
    (found,) = pair.variants
    if not found.match.paired:
        _check_same_questions(*(run.variants[_variant(run, policy, found)] for run in (candidate, baseline)))
    return found


def _check_same_questions(candidate: pl.DataFrame, baseline: pl.DataFrame) -> None:
    """Raise OutcomeTableError where two runs were asked other questions, whether these have a grade or not."""
    ours, theirs = (set(table["question_id"]) for table in (candidate, baseline))
    shared = len(ours & theirs)
    if 2 * shared < min(len(ours), len(theirs)) or not shared:
        raise OutcomeTableError(
            f"baseline: expected at least half of the {min(len(ours), len(theirs)):,} questions of the smaller run in "
            f"both, got {shared:,} shared, of {len(ours):,} of the candidate and {len(theirs):,} of the baseline; ask "
            "the candidate what the baseline was asked"
        )


def _variant(run: ComparedRun, policy: Policy, found: VariantComparison | None) -> str | None:
    """Return the variant of one run that is judged."""
    if policy.variant is not None:
        return None if run.has_no_variants else policy.variant
    if len(run.variants) == 1:
        return next(iter(run.variants))
    if found is not None:
        return found.name
    raise _several([str(name) for name in run.variants])


def _several(names: list[str]) -> OutcomeTableError:
    return OutcomeTableError(
        f"variant: expected one prompt variant to judge by, got {', '.join(names)}; name the one nearest to your "
        "product's prompt"
    )


def _check_forced(which: str, table: Any) -> None:
    if never_forced(first_draws(table)):
        raise OutcomeTableError(
            f"{which}: expected answers to what was refused, got a first pass that nobody forced, which has no index; "
            "ask for them with 'refusal-index force'"
        )
