"""Release gate: whether a candidate may replace its baseline.

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

from refusal_index.data.files import plain
from refusal_index.data.folder import RUN_ID, Asked, ComparedRun, Match, differing_settings, missing_share
from refusal_index.data.outcome_table import OWN_COLUMNS
from refusal_index.data.rates import BY_ANSWERABLE, describe, design_of, first_draws, never_forced
from refusal_index.data.run_json import Stop, is_deterministic
from refusal_index.errors import OutcomeTableError, suggestion
from refusal_index.findings.comparison import CompareOptions, PairComparison, settings_statements
from refusal_index.findings.conclusions import stopped
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS
from refusal_index.findings.gate_policy import (
    ChangedQuestion,
    NamedGuard,
    Policy,
    PolicyError,
    bound_guards,
    change_limit,
    check_reachable,
    look_of,
    margin_guards,
    most_changed,
    payoffs_of,
    split_by_answerable,
)
from refusal_index.findings.metrics import CORRECTED, Shown, Statement
from refusal_index.stats import AtLook
from refusal_index.stats.baseline import Payoffs
from refusal_index.stats.non_inferiority import (
    GuardTest,
    Verdict,
    judge_guards,
    times_if_equal,
    times_to_settle,
    verdict_of,
)

RUNS = ("candidate", "baseline")

GATE_VERSION = 2
"""Version of the JSON document; in version 1 `refusal_index` was the corrected index of runs sampled repeatedly."""


ROUNDING = 1e-12
"""An estimate this close to its limit lies on it: differences of shares such as 24/60 - 18/60 are inexact."""


@dataclass(frozen=True)
class GuardResult(NamedGuard):
    """A guarded metric and its test."""

    test: GuardTest

    @property
    def limit(self) -> Statement:
        """What the guard allows."""
        return Statement("guard_limit", "scope", {"limit": self.guard.limit, "higher": self.guard.higher_is_better})

    @property
    def statement(self) -> Statement:
        """Why it does not pass."""
        name, estimate, verdict = self.guard.name, self.guard.estimate, self.test.verdict
        if estimate is None or (verdict == "inconclusive" and self.test.worst is None):
            is_single = name == CORRECTED and self.reason == NO_REPEATED_QUESTIONS
            undefined = "guard_undefined" if verdict == "fail" else "guard_unjudged"
            code = "guard_not_sampled_twice" if is_single else undefined
            values = {"metrics": [name], "reason": self.reason, "margin": self.against_baseline}
            return Statement(code, "conclusion", values)
        if verdict == "fail":
            code = "guard_beyond"
        else:
            code = "guard_looks_beyond" if self.guard.room(estimate) < -ROUNDING else "guard_may_be_beyond"
        return Statement(code, "conclusion", {"metrics": [name]})

    def to_document(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary with unrounded numbers."""
        guard, test = self.guard, self.test
        guard_fields = {name: getattr(guard, name) for name in ("estimate", "limit", "higher_is_better")}
        test_fields = ("worst", "best", "pvalue_inside", "pvalue_beyond", "pvalue_holm", "verdict")
        return {
            "metric": guard.name,
            "kind": "margin" if self.against_baseline else "bound",
            "candidate": self.candidate,
            "baseline": self.baseline,
            **guard_fields,
            **{name: getattr(test, name) for name in test_fields},
            "reason": self.reason,
        }


@dataclass(frozen=True, repr=False)
class GateResult(Shown):
    """The verdict of a gate, and its reasons.

    Attributes
    ----------
    verdict
        ``"pass"``, ``"fail"`` or ``"inconclusive"``.
    candidate, baseline
        The runs; the baseline is None if there are only fixed bounds.
    guards
        The results of all guards; empty if nothing was judged, for example between two looks.
    policy
        The policy.
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
    obstacle
        Why nothing can be decided: too few grades, none that both runs share, or asking that ended before its next
        look. None where the guards decide.
    """

    verdict: Verdict
    candidate: ComparedRun
    baseline: ComparedRun | None
    guards: tuple[GuardResult, ...]
    policy: Policy
    variant: str | None
    missing: Mapping[str, float]
    match: Match | None = None
    questions: int = 0
    changed: tuple[ChangedQuestion, ...] = ()
    no_changes: str | None = None
    sampling: Mapping[str, Any] | None = None
    look: AtLook | None = None
    obstacle: Statement | None = None

    @property
    def alpha(self) -> float:
        """The error probability over all looks together."""
        return self.policy.alpha

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The runs with more missing grades than the policy allows."""
        return _incomplete(self.missing, self.policy)

    @property
    def unasked(self) -> str | None:
        """The error that prevented the candidate's next look; None if there was none."""
        obstacle = self.obstacle
        return obstacle.values["error"] if obstacle is not None and obstacle.code == "unasked" else None

    @property
    def more_questions(self) -> int | None:
        """Number of further questions that would give a clear verdict with a probability of 80%.

        The true values are taken to equal the estimates. None if the verdict is clear, the number is unknown, or no
        verdict is possible.
        """
        times = times_to_settle([guard.test for guard in self.guards]) if self._is_open else None
        return None if times is None else math.ceil((times - 1) * self.questions)

    @property
    def questions_if_equal(self) -> int | None:
        """Number of questions with which a candidate equal to its baseline passes with a probability of 80%.

        None unless the verdict is inconclusive and the candidate may equal its baseline on every margin.
        """
        tests = [guard.test for guard in self.guards if guard.against_baseline]
        level = self.alpha if self.look is None else self.look.level
        times = times_if_equal(tests, self.alpha, level) if tests and self._is_open else None
        return None if times is None else math.ceil(times * self.questions)

    @property
    def _is_open(self) -> bool:
        """Whether the verdict is inconclusive because of the guards alone."""
        return self.verdict == "inconclusive" and bool(self.guards) and self.obstacle is None

    @property
    def level_at_look(self) -> float | None:
        """The one-sided level of the tests at this look."""
        return None if self.look is None else self.look.level

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The reasons for the verdict, what was compared, and notes."""
        return (self._conclusion(), self._scope(), *self._notes())

    def _conclusion(self) -> Statement:
        if self.obstacle is not None:
            return self.obstacle
        if self.verdict != "pass":
            return Statement("guards", "conclusion", {"guards": self._decisive()})
        return Statement("all_within", "conclusion", {"level": 1 - self.alpha})

    def _decisive(self) -> list[Statement]:
        """State why the deciding guards do not pass, grouped by reason."""
        alike: dict[tuple[str, str | None], list[Statement]] = {}
        for guard in self.guards:
            if guard.test.verdict == self.verdict:
                statement = guard.statement
                alike.setdefault((statement.code, statement.values.get("reason")), []).append(statement)
        names = [list(dict.fromkeys(statement.values["metrics"][0] for statement in same)) for same in alike.values()]
        pairs = zip(alike.values(), names, strict=True)
        return [replace(same[0], values={**same[0].values, "metrics": metrics}) for same, metrics in pairs]

    def _scope(self) -> Statement:
        """State what was compared."""
        values = {"candidate": self.candidate.label, "variant": self.variant, "questions": self.questions}
        if self._is_unexamined:
            return Statement("nothing_judged", "scope", values)
        if self.baseline is None:
            return Statement("judged_by_bounds", "scope", values)
        counts = zip(RUNS, self.match.left_out if self.match else (), strict=False)
        left_out = [(name, count) for name, count in counts if count]
        return Statement("judged", "scope", {**values, "baseline": self.baseline.label, "left_out": left_out})

    def _notes(self) -> Iterator[Statement]:
        if self.is_one_run:
            yield Statement("one_run", "serious")
        if self.look is not None:
            sizes, n_asked = self.look.design.sizes, self.look.n
            values = {"look": sizes.index(n_asked) + 1, "looks": len(sizes), "asked": n_asked, "questions": sizes[-1]}
            yield Statement("look", "scope", values)
        if self.baseline is None and not self.candidate.settings:
            yield Statement("no_sample_recorded", "serious")
        stop = None if self.baseline is None else Stop.read(self.baseline.about)
        if stop is not None:
            yield Statement("baseline_stopped", "scope", {"stop": stopped(stop)})
        if self._is_open:
            needed = {"more": self.more_questions, "enough": self.questions_if_equal, "questions": self.questions}
            yield Statement("more_questions", "scope", needed)
        missing = [(name, share) for name, share in self.missing.items() if share]
        if missing and not self._is_unexamined:
            yield Statement("missing", "serious", {"missing": missing})
        if self.baseline is not None and self.guards:
            yield from settings_statements((self.candidate, self.baseline))
        if self.no_changes is not None and self.guards and not self.changed:
            yield Statement("too_few_samples" if self.no_changes == "too_few_samples" else "single_responses")

    @property
    def _is_unexamined(self) -> bool:
        return self.obstacle is not None and self.obstacle.code in ("unasked", "between_looks")

    @property
    def why(self) -> str:
        """The reason in words, as on the first line of the output."""
        return str(self).partition("\n")[0].partition(": ")[2]

    @property
    def is_one_run(self) -> bool:
        """Whether candidate and baseline are the same run, or copies of it."""
        if self.baseline is None:
            return False
        runs = (self.candidate, self.baseline)
        ids = {run.about.get(RUN_ID) for run in runs}
        return len({(run.source.resolve(), run.label) for run in runs}) == 1 or (len(ids) == 1 and None not in ids)

    def to_document(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary; `refusal_index.render.gate.gate_document` adds the sentences."""
        runs = (self.candidate,) if self.baseline is None else (self.candidate, self.baseline)
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
            "guards": [plain(guard.to_document()) for guard in self.guards],
            "more_questions": self.more_questions,
            "questions_if_equal": self.questions_if_equal,
            "missing": dict(self.missing),
            "sampling": self.sampling,
            "changed": [asdict(question) for question in self.changed],
            "no_changes": self.no_changes,
            "settings_that_differ": list(differing_settings(runs)),
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
    """Judge a candidate under a policy.

    Raises OutcomeTableError if the runs share no variant, or several and the policy names none, or too few questions,
    or were never forced; PolicyError if there is nothing to judge by.

    - `candidate`, `baseline`: the runs; None for fixed bounds only.
    - `look`: where the candidate is looked at several times while it is asked: at which of these looks. Without, a
      candidate that stopped early is judged at the look at which it did, and one that a gate looked at while it was
      asked at the last of these looks.
    - `within_look`: whether asking ended before that look: nothing is decided then.
    """
    if baseline is None and not (policy.at_least or policy.at_most):
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
    pair, name = _matched(tuple(runs.values()), policy, payoffs)
    variants = dict(zip(runs, pair.variants_compared[name], strict=True))
    rows = {key: run.variants[variants[key]] for key, run in runs.items()}
    compared = None if baseline is None else pair.variants[0]
    is_paired = compared is not None and compared.match.paired
    _check_answers(rows, is_paired=is_paired)
    if look is not None and rows["candidate"]["question_id"].n_unique() < look.n:
        within_look = True
    requested = {key: run.asked.get(variants[key], Asked()) for key, run in runs.items()}
    if look is not None:
        requested["candidate"] = replace(requested["candidate"], questions=look.n)
    missing = {key: missing_share(table, requested[key]) for key, table in rows.items()}
    for key, share in _absent_shares(runs, rows, requested).items():
        missing[key] = max(missing[key], share)
    obstacle = _obstacle(within_look, missing, policy, is_unpaired=compared is not None and not is_paired)
    split = split_by_answerable(list(rows.values())) if is_paired and policy.margins.keys() & BY_ANSWERABLE else None
    margins = margin_guards(compared, policy, split) if compared is not None and is_paired else ()
    guards = [*margins, *bound_guards(candidate, rows["candidate"], policy, payoffs)]
    tests = judge_guards([named.guard for named in guards], policy.alpha, look) if guards else ()
    if obstacle is not None:
        tests = tuple(replace(test, verdict="inconclusive") for test in tests)
    judged = zip(guards, tests, strict=True)
    result = GateResult(
        verdict=verdict_of(tests),
        candidate=candidate,
        baseline=baseline,
        guards=() if within_look else tuple(GuardResult(**vars(guard), test=test) for guard, test in judged),
        policy=policy,
        variant=name if any(variants.values()) else None,
        missing=missing,
        look=None if within_look else look,
        obstacle=obstacle,
    )
    if compared is None:
        scored = first_draws(rows["candidate"]).drop_nulls(["refused", "wrong"])
        return replace(result, questions=scored.height, sampling=describe(design_of(scored), OWN_COLUMNS))
    matrix = compared.match.matrix
    shared = matrix.of_questions(matrix.shared).question_ids
    both = rows["candidate"], rows["baseline"], shared, all(is_deterministic(run.settings) for run in runs.values())
    return replace(
        result,
        match=compared.match,
        questions=len(shared),
        changed=() if within_look else most_changed(*both),
        no_changes=change_limit(*both),
        sampling=describe(matrix.design, OWN_COLUMNS),
    )


def _obstacle(
    within_look: bool, missing: Mapping[str, float], policy: Policy, *, is_unpaired: bool
) -> Statement | None:
    """State why no verdict is possible; None if the guards decide."""
    if within_look:
        return Statement("between_looks", "conclusion")
    if incomplete := _incomplete(missing, policy):
        values = {"missing": [(name, missing[name]) for name in incomplete], "limit": policy.max_missing}
        return Statement("too_many_missing", "conclusion", values)
    return Statement("too_few_shared", "conclusion") if is_unpaired else None


def _incomplete(missing: Mapping[str, float], policy: Policy) -> tuple[str, ...]:
    """Return the runs with more missing grades than the policy allows."""
    return tuple(name for name, share in missing.items() if share > policy.max_missing)


def _matched(runs: tuple[ComparedRun, ...], policy: Policy, payoffs: Payoffs) -> tuple[PairComparison, str]:
    """Match candidate and baseline by question, and return the variant to judge; a single run has only its own."""
    variant = None if len(runs) == 1 and runs[0].has_no_variants else policy.variant
    options = CompareOptions(variant=variant, penalty=payoffs.penalty, truthfulness_weights=payoffs.truthfulness)
    pair = PairComparison(runs, options)
    names = list(pair.variants_compared)
    if len(names) > 1:
        raise OutcomeTableError(
            f"expected one prompt to judge, got {', '.join(names)}; choose the one closest to your product's prompt, "
            f"as in --variants {names[0]} ('variant' in Python or a policy file)"
        )
    return pair, names[0]


def _check_answers(rows: Mapping[str, pl.DataFrame], *, is_paired: bool) -> None:
    """Raise OutcomeTableError if two runs have different questions, or one has no forced pass."""
    if len(rows) > 1 and not is_paired:
        candidate_ids, baseline_ids = (set(table["question_id"]) for table in rows.values())
        shared, smaller = len(candidate_ids & baseline_ids), min(len(candidate_ids), len(baseline_ids))
        if 2 * shared < smaller or not shared:
            raise OutcomeTableError(
                f"baseline: expected at least half of the smaller run's questions in both runs, got {shared:,} shared "
                f"(candidate {len(candidate_ids):,}, baseline {len(baseline_ids):,}); evaluate the candidate on the "
                "baseline's questions"
            )
    for key, table in rows.items():
        if never_forced(first_draws(table)):
            raise OutcomeTableError(
                f"{key}: expected forced answers to the refused questions, got a first pass only, which has no RI; ask "
                "for them with 'refusal-index force'"
            )


def check_variant(role: str, run: ComparedRun, name: str | None) -> None:
    """Raise OutcomeTableError if a run lacks the variant to judge."""
    if name is None or run.has_no_variants or name in run.variants:
        return
    names = [str(variant) for variant in run.variants]
    raise OutcomeTableError(
        f"{role}: {run.source} has no prompt {name!r}; expected one of {', '.join(names)}{suggestion(name, names)}"
    )


def unjudged(
    candidate: ComparedRun, baseline: ComparedRun | None, policy: Policy, variant: str, unasked: str
) -> GateResult:
    """Return the inconclusive verdict on a candidate whose next look failed, with the reason.

    It takes what `decide` takes, the variant that was to be asked, and what kept it from that.
    """
    obstacle = Statement("unasked", "conclusion", {"error": unasked})
    return GateResult("inconclusive", candidate, baseline, (), policy, variant, {}, obstacle=obstacle)


def _absent_shares(
    runs: Mapping[str, ComparedRun], rows: Mapping[str, pl.DataFrame], requested: Mapping[str, Asked]
) -> dict[str, float]:
    """Return the share of the compared questions without a grade, by run.

    With one dataset and seed the smaller sample is contained in the larger one, so the questions to compare are those
    of the smaller. A bare table records no sample: beside a run, the run's questions count, and of two tables every
    question in either. Samples of different datasets or seeds overlap by chance, so nothing is expected of them.
    """
    # identity of each run's sample of questions, if recorded
    samples = {
        key: (dataset.get("name"), dataset.get("sha256"), run.settings.get("seed"))
        for key, run in runs.items()
        if isinstance(dataset := run.settings.get("dataset"), Mapping)
    }
    if len(runs) < 2 or len(set(samples.values())) > 1:
        return {}
    ids = {key: set(table["question_id"]) for key, table in rows.items()}
    graded = {
        key: set(first_draws(table).drop_nulls(["refused", "wrong"])["question_id"]) for key, table in rows.items()
    }
    owner = min(samples, key=lambda key: requested[key].questions, default=None)
    expected = set.union(*ids.values()) if owner is None else ids[owner]
    lacks = {key: len(expected - ids) for key, ids in graded.items()}
    number = len(expected)
    if owner is not None and requested[owner].questions > number:  # only the number of missing questions is recorded
        lacks[owner] += requested[owner].questions - number
        number = requested[owner].questions
    return {key: count / number for key, count in lacks.items()} if number else {}
