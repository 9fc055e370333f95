"""Release gate: whether a candidate may replace its baseline.

The verdict is that of `refusal_index.stats.non_inferiority`, over the guards of a policy. Nothing is decided of a run
that lacks grades of more questions than the policy allows: what is missing may depend on what it would have been.
Questions that only the other run has count as missing too. A run that was ended early has no grade of what it refused,
unless the answer was demanded already.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.asked import Asked, missing_share
from refusal_index.data.files import plain
from refusal_index.data.folder import RUN_ID
from refusal_index.data.outcome_table import OWN_COLUMNS
from refusal_index.data.rates import (
    BY_ANSWERABLE,
    FORCED_REFUSAL_LIMIT,
    NEED_NO_GRADES,
    answerable_metrics,
    describe,
    design_of,
    first_draws,
    never_forced,
    without_grades,
)
from refusal_index.data.run_json import Stop
from refusal_index.errors import OutcomeTableError, escape, suggestion
from refusal_index.findings.changed_questions import ChangedQuestion, change_limit, most_changed
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.conclusions import stopped
from refusal_index.findings.gate_policy import Policy, PolicyError, check_reachable, look_of
from refusal_index.findings.gate_reasons import GuardResult, decisive_reasons, next_step
from refusal_index.findings.headline import refused_by_answerable
from refusal_index.findings.imputation import knows_refused_again, with_absent
from refusal_index.findings.judged_runs import JudgedRuns, RefusedAgain, TippingPoint, is_index
from refusal_index.findings.matching import Match, match_by_answerable, refusals_are_known
from refusal_index.findings.metrics import METRICS, Printable, Statement, rendering
from refusal_index.findings.run_differences import differing_settings, model_statements
from refusal_index.findings.run_results import RunResults
from refusal_index.stats import AtLook
from refusal_index.stats.non_inferiority import (
    Verdict,
    times_to_decide,
    times_to_settle,
    verdict_of,
)

RUNS = ("candidate", "baseline")

GATE_VERSION = 4
"""Version of the JSON document.

In version 1 `refusal_index` was the corrected index of runs sampled repeatedly. In version 2 a guard on RI counted what
was refused again as wrong, missing answers were left out, and `questions_if_equal` was what an equal model needs. In
version 3 `changed` held no change that may be noise.
"""


@dataclass(frozen=True, repr=False)
class GateResult(Printable):
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
        The questions that changed most, those that changed by more than sampling noise first, and why no question can
        be shown to have done so.
    look
        At which look a candidate was judged that is judged while it is asked, or stopped early; else None, and between
        two looks.
    obstacle
        Why nothing can be decided: too few grades, none that both runs share, or asking that ended before its next
        look. None where the guards decide.
    refused_again
        What the forced pass refused again, by run; empty if neither refused any question again.
    knows_refused_again
        Whether the runs record which questions were refused again.
    analysis
        How the metrics were computed.
    tipping_point
        The smallest number of missing answers that would have to be in the worst cell for the candidate not to pass.
        None if none is missing, or the candidate does not pass by the answers that have a grade.
    """

    verdict: Verdict
    candidate: RunResults
    baseline: RunResults | None
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
    refused_again: Mapping[str, RefusedAgain] = field(default_factory=dict)
    knows_refused_again: bool = True
    analysis: Analysis = DEFAULT_ANALYSIS
    tipping_point: TippingPoint | None = None

    @property
    def alpha(self) -> float:
        """The error probability over all looks together."""
        return self.policy.alpha

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
    def recommended_questions(self) -> int | None:
        """Number of questions that `refusal_index.stats.non_inferiority.questions_to_decide` recommends.

        None unless the verdict is inconclusive and the candidate is not shown to be worse than its baseline.
        """
        tests = [guard.test for guard in self.guards if guard.against_baseline]
        level = self.alpha if self.look is None else self.look.level
        times = times_to_decide(tests, self.alpha, level) if tests and self._is_open else None
        return None if times is None else math.ceil(times * self.questions)

    @property
    def _is_open(self) -> bool:
        """Whether the verdict is inconclusive because there are too few questions for a guard."""
        if self.verdict != "inconclusive" or self.obstacle is not None:
            return False
        undecided = [guard for guard in self.guards if guard.test.verdict == "inconclusive"]
        return any(not guard.is_blocked for guard in undecided)

    @property
    def level_at_look(self) -> float | None:
        """The one-sided level of the tests at this look."""
        return None if self.look is None else self.look.level

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The reasons for the verdict, what was compared, and notes."""
        return (self._conclusion(), self._scope(), *self._notes())

    def _conclusion(self) -> Statement:
        """State what to do, and why."""
        conditions = {"is_one_run": self.is_one_run, "settings": self.settings_that_differ if self.guards else []}
        values = {
            "candidate": self.candidate.label,
            "baseline": None if self.baseline is None else self.baseline.label,
            "conditions": Statement("conditions", "serious", conditions),
        }
        if self.verdict == "pass":
            has_bounds = any(not guard.against_baseline for guard in self.guards)
            return Statement("gate_passes", "conclusion", {**values, "level": 1 - self.alpha, "bounds": has_bounds})
        reasons = decisive_reasons(self.guards, self.verdict) if self.obstacle is None else [self.obstacle]
        if self.verdict == "fail":
            return Statement("gate_fails", "conclusion", {**values, "reasons": reasons})
        enough = self.recommended_questions
        step = next_step(
            [reason.code for reason in reasons],
            more_would_help=self.more_questions is not None or (enough is not None and enough > self.questions),
            is_missing=any(self.missing.values()),
        )
        return Statement("gate_undecided", "conclusion", {**values, "reasons": reasons, "step": step})

    @property
    def settings_that_differ(self) -> list[str]:
        """The settings, other than the model, in which the runs differ."""
        return list(differing_settings([self.candidate] if self.baseline is None else [self.candidate, self.baseline]))

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
        yield from self._refused() if self.guards else ()
        if self.look is not None:
            sizes = self.look.design.sizes
            n_asked = self.look.n
            values = {"look": sizes.index(n_asked) + 1, "looks": len(sizes), "asked": n_asked, "questions": sizes[-1]}
            yield Statement("look", "scope", values)
        if self.baseline is None and not self.candidate.settings:
            yield Statement("no_sample_recorded", "serious")
        stop = None if self.baseline is None else Stop.read(self.baseline.about)
        if stop is not None:
            yield Statement("baseline_stopped", "scope", {"stop": stopped(stop)})
        if self._is_open:
            needed = {"more": self.more_questions, "enough": self.recommended_questions, "questions": self.questions}
            yield Statement("more_questions", "scope", needed)
        missing = [(name, share) for name, share in self.missing.items() if share]
        if missing and not self._is_unexamined:
            runs = dict(zip(RUNS, (self.candidate, self.baseline), strict=True))
            is_run = any(run.settings for name, run in runs.items() if run is not None and name in dict(missing))
            yield Statement("missing", "serious", {"missing": missing, "tipping": self.tipping_point, "is_run": is_run})
        if self.guards:
            yield from self._refused_again_statements()
        if self.baseline is not None and self.guards:
            yield from model_statements((self.candidate, self.baseline))
        if self.no_changes is not None and self.guards:
            yield Statement("too_few_samples" if self.no_changes == "too_few_samples" else "single_responses")

    def _refused(self) -> Iterator[Statement]:
        """State what either run refused of the unanswerable and answerable questions compared, if that is known."""
        runs = [run for run in (self.candidate, self.baseline) if run is not None]
        tables = [first_draws(run.tables.get(self.variant, next(iter(run.tables.values())))) for run in runs]
        if not refusals_are_known(tables):
            return
        compared = pl.col("question_id").is_in(match_by_answerable(tables).matrix.question_ids)
        for name, rows in zip(RUNS, tables, strict=False):
            rates = answerable_metrics(rows.filter(compared), self.analysis)
            if (refused := refused_by_answerable([rates], f"The {name}")) is not None:
                yield refused

    def _refused_again_statements(self) -> Iterator[Statement]:
        """State what RI leaves out, where an index is guarded."""
        if not any(is_index(guard.guard.name) for guard in self.guards):
            return
        if self.refused_again:
            paired = self.baseline is not None
            values = {"runs": self.refused_again, "limit": self.policy.max_refused_again, "paired": paired}
            are_many = any(again.share > FORCED_REFUSAL_LIMIT for again in self.refused_again.values())
            yield Statement("gate_refused_again", "serious" if are_many else "scope", values)
        if not self.knows_refused_again:
            yield Statement("gate_refused_again_unknown", "serious")

    @property
    def _is_unexamined(self) -> bool:
        return self.obstacle is not None and self.obstacle.code in ("unasked", "between_looks")

    @property
    def why(self) -> str:
        """What to do, and the reason, as on the first line of the output."""
        return escape(rendering().sentence(self.statements[0]))

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
        return {
            "gate_version": GATE_VERSION,
            "verdict": self.verdict,
            "conclusion": plain(self.statements[0]),
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
            "recommended_questions": self.recommended_questions,
            "missing": dict(self.missing),
            "tipping_point": None if self.tipping_point is None else asdict(self.tipping_point),
            "refused_again": {role: asdict(again) for role, again in self.refused_again.items()},
            "sampling": self.sampling,
            "changed": [asdict(question) for question in self.changed],
            "no_changes": self.no_changes,
            "settings_that_differ": self.settings_that_differ,
            "policy": self.policy.to_document(),
        }


def decide(
    candidate: RunResults,
    baseline: RunResults | None,
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
            "gate: expected a baseline to compare with, or fixed bounds, got neither; name a baseline "
            "(--baseline), or a bound (--at-least METRIC=NUMBER, --at-most METRIC=NUMBER)"
        )
    runs = {"candidate": candidate} if baseline is None else {"candidate": candidate, "baseline": baseline}
    for key, run in runs.items():
        check_variant(key, run, policy.variant)
    analysis = gate_analysis(runs.values(), policy)
    check_reachable(policy, analysis)
    if look is None:
        look = look_of(candidate.about, policy.alpha)
    pair, name = _matched(tuple(runs.values()), analysis)
    variants = dict(zip(runs, pair.variants_compared[name], strict=True))
    rows = {key: run.tables[variants[key]] for key, run in runs.items()}
    if baseline is None and {*policy.at_least, *policy.at_most} <= {*NEED_NO_GRADES, *BY_ANSWERABLE}:
        rows = {key: without_grades(table) for key, table in rows.items()}
    matched = None if baseline is None else pair.matches[name]
    is_paired = matched is not None and matched.paired
    _check_answers(rows, is_paired=is_paired)
    if look is not None and rows["candidate"]["question_id"].n_unique() < look.n:
        within_look = True
    requested = {key: run.asked.get(variants[key], Asked()) for key, run in runs.items()}
    if look is not None:
        requested["candidate"] = replace(requested["candidate"], questions=look.n)
    expected = _expected_questions(runs, rows, requested)
    missing = {
        key: max(missing_share(table, requested[key]), expected.missing_share(key, table))
        for key, table in rows.items()
    }
    obstacle = _obstacle(within_look, missing, policy, is_unpaired=matched is not None and not is_paired)
    completed = {key: _with_absent(key, rows, expected.ids, requested[key]) for key in rows}
    if baseline is not None:  # of its other questions, nothing is compared
        asked = completed["candidate"].select("question_id").unique()
        completed["baseline"] = completed["baseline"].join(asked, on="question_id", how="semi", maintain_order="left")
    judged = JudgedRuns(
        {key: run.with_tables({variants[key]: rows[key]}) for key, run in runs.items()},
        completed,
        policy,
        analysis,
    )
    tests = judged.tests(look)
    if obstacle is not None:
        tests = tuple(replace(test, verdict="inconclusive") for test in tests)
    guards = tuple(
        GuardResult(**vars(named), test=test, refused_again=judged.refused_too_often(named))
        for named, test in zip(judged.guards, tests, strict=True)
    )
    result = GateResult(
        verdict=verdict_of(tests),
        candidate=candidate,
        baseline=baseline,
        guards=() if within_look else guards,
        policy=policy,
        variant=name if any(variants.values()) else None,
        missing=missing,
        look=None if within_look else look,
        obstacle=obstacle,
        refused_again=judged.refused_again,
        analysis=analysis,
        knows_refused_again=all(knows_refused_again(table) for table in rows.values()),
        tipping_point=None if obstacle is not None else judged.tipping_point(look),
    )
    if matched is None:
        scored = first_draws(rows["candidate"]).drop_nulls(["refused", "wrong"])
        return replace(result, questions=scored.height, sampling=describe(design_of(scored), OWN_COLUMNS))
    matrix = matched.matrix
    shared = matrix.of_questions(matrix.shared).question_ids
    both = rows["candidate"], rows["baseline"], shared, all(run.is_deterministic for run in runs.values())
    return replace(
        result,
        match=matched,
        questions=len(shared),
        changed=() if within_look else most_changed(*both),
        no_changes=change_limit(*both),
        sampling=describe(matrix.design, OWN_COLUMNS),
    )


def _with_absent(
    role: str, rows: Mapping[str, pl.DataFrame], expected: Collection[str], requested: Asked
) -> pl.DataFrame:
    """Append to a run's rows one without a grade for each question that was to be asked and is absent."""
    n_known = len({*rows[role]["question_id"], *expected})
    others = [table for other, table in rows.items() if other != role]
    return with_absent(rows[role], expected, others, max(0, requested.questions - n_known))


def _obstacle(
    within_look: bool, missing: Mapping[str, float], policy: Policy, *, is_unpaired: bool
) -> Statement | None:
    """State why no verdict is possible; None if the guards decide."""
    if within_look:
        return Statement("between_looks", "conclusion")
    shares = [(name, share) for name, share in missing.items() if share > policy.max_missing]
    if shares:
        return Statement("too_many_missing", "conclusion", {"missing": shares, "limit": policy.max_missing})
    return Statement("too_few_shared", "conclusion") if is_unpaired else None


def gate_analysis(runs: Iterable[RunResults], policy: Policy) -> Analysis:
    """Return how the metrics of a candidate and its baseline are computed: by the payoffs of the first that has any.

    Raises OutcomeTableError if the difference of a score is judged whose payoffs are not the same in both runs.
    """
    gated = list(runs)
    abouts = [run.about for run in gated]
    variant = None if all(run.has_no_variants for run in gated) else policy.variant
    analysis = Analysis(variant=variant)
    different = analysis.different_payoffs(abouts)
    for metric in METRICS.values():
        if metric.name in policy.margins and metric.setting in different:
            values = " and ".join(map(str, different[metric.setting]))
            raise OutcomeTableError(
                f"{metric.setting}: expected the same in both runs to compare {metric.name}, got {values}; leave its "
                "margin out, or run both with the same one"
            )
    for about in abouts:
        analysis = analysis.with_recorded([about])
    return analysis


def _matched(runs: tuple[RunResults, ...], analysis: Analysis) -> tuple[PairComparison, str]:
    """Match candidate and baseline by question, and return the variant to judge; tables without any have only one."""
    pair = PairComparison(runs, analysis)
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
        shared = len(candidate_ids & baseline_ids)
        smaller = min(len(candidate_ids), len(baseline_ids))
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


def check_variant(role: str, run: RunResults, name: str | None) -> None:
    """Raise OutcomeTableError if a run lacks the variant to judge."""
    if name is None or run.has_no_variants or name in run.tables:
        return
    names = [str(variant) for variant in run.tables]
    raise OutcomeTableError(
        f"{role}: {run.source} has no prompt {name!r}; expected one of {', '.join(names)}{suggestion(name, names)}"
    )


def unjudged(
    candidate: RunResults, baseline: RunResults | None, policy: Policy, variant: str, unasked: str
) -> GateResult:
    """Return the inconclusive verdict on a candidate whose next look failed, with the reason.

    It takes what `decide` takes, the variant that was to be asked, and what kept it from that.
    """
    obstacle = Statement("unasked", "conclusion", {"error": unasked})
    return GateResult("inconclusive", candidate, baseline, (), policy, variant, {}, obstacle=obstacle)


@dataclass(frozen=True)
class ExpectedQuestions:
    """The questions that every run was to be asked."""

    ids: frozenset[str]
    more: Mapping[str, int]  # by run, of how many further ones only the number is known

    def missing_share(self, role: str, rows: pl.DataFrame) -> float:
        """Return the share of them for which a run has no grade; 0 if nothing is expected."""
        graded = set(first_draws(rows).drop_nulls(["refused", "wrong"])["question_id"])
        number = len(self.ids) + max(self.more.values(), default=0)
        return (len(self.ids - graded) + self.more.get(role, 0)) / number if number else 0.0


def _expected_questions(
    runs: Mapping[str, RunResults], rows: Mapping[str, pl.DataFrame], requested: Mapping[str, Asked]
) -> ExpectedQuestions:
    """Return the questions to be compared.

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
        return ExpectedQuestions(frozenset(), {})
    owner = min(samples, key=lambda key: requested[key].questions, default=None)
    if owner is None:
        return ExpectedQuestions(frozenset().union(*(table["question_id"] for table in rows.values())), {})
    ids = frozenset(rows[owner]["question_id"])
    return ExpectedQuestions(ids, {owner: max(0, requested[owner].questions - len(ids))})
