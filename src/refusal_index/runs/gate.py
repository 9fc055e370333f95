"""Comparing and ranking finished runs, and gating a release, also while the candidate is still being asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.asked import count_asked
from refusal_index.data.folder import RunFolder, run_around
from refusal_index.data.run_json import GATE_LOOKS, GateLooks
from refusal_index.data.run_sets import runs_below
from refusal_index.errors import OutcomeTableError, RunFolderError, checked_path, listed
from refusal_index.findings import ranking
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.gate import GateResult, check_variant, decide, gate_analysis, unjudged
from refusal_index.findings.gate_policy import PRESETS, Policy, PolicyError, check_reachable, read_policy
from refusal_index.findings.metrics import CORRECTED
from refusal_index.findings.run_results import RunResults, read_runs
from refusal_index.findings.tallies import RunSource, source_of
from refusal_index.models.settings import SettingError
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.events import Progress, ignore_events
from refusal_index.runs.execute import execute_in_looks, sizes_of
from refusal_index.runs.plan import Plan
from refusal_index.runs.store import open_store
from refusal_index.stats import AtLook, GroupSequential

__all__ = ["Policy", "PolicyError", "compare", "gate", "rank"]


def compare(*runs: RunSource | Sequence[RunSource], **options: Any) -> PairComparison | ranking.RunRanking:
    """Compare runs on the same questions, as ``refusal-index compare`` does.

    Parameters
    ----------
    runs
        Runs, their folders, outcome tables or what `refusal_index.score` returned; or one list of them.
    options
        The fields of `refusal_index.data.analysis.Analysis`. With a ``metric`` other than RI, two runs are ranked too;
        ``adjustment`` and ``seed`` apply to rankings only.

    Returns
    -------
    PairComparison or RunRanking
        Of two runs, an interval for each difference, first minus second. Of three or more, their ranking.

    Raises
    ------
    RefusalIndexError
        If one of them cannot be read, or they have no variant in common.

    Examples
    --------
    >>> import tempfile
    >>> from refusal_index import evaluate
    >>> asked = {"limit": 40, "variants": "high"}
    >>> names = ("almanac/rash", "almanac/small", "almanac/base")
    >>> runs = [evaluate(name, out=tempfile.mkdtemp(), **asked) for name in names]
    >>> compare(*runs[:2]).to_frame().height > 0
    True
    >>> len(compare(runs).ranking.runs)
    3
    """
    analysis = Analysis.of_options(options)
    given: Any = runs[0] if len(runs) == 1 else runs
    compared = compared_runs(given, analysis)
    if len(compared) < 2:
        raise SettingError(f"compare: expected two runs or more of one model and dataset each, got {len(compared)}")
    return comparison_of(compared, analysis)


def comparison_of(runs: Sequence[RunResults], analysis: Analysis) -> PairComparison | ranking.RunRanking:
    """Compare two runs, or rank them if there are more, or by another metric than RI."""
    if len(runs) > 2 or analysis.metric != DEFAULT_ANALYSIS.metric:
        return ranking.rank(runs, analysis)
    refuse_ranking_options(analysis, "two runs without a metric")
    return compare_pair(runs, analysis)


def refuse_ranking_options(analysis: Analysis, got: str) -> None:
    """Raise SettingError for an option of rankings that is given although there is no ranking."""
    for name in ("metric", "adjustment", "seed"):
        if getattr(analysis, name) != getattr(DEFAULT_ANALYSIS, name):
            raise SettingError(f"{{{name}}}: applies to a ranking of runs, got {got}; leave it out")


def rank(runs: RunSource | Sequence[RunSource], **options: Any) -> ranking.RunRanking:
    """Rank several runs by their Refusal Index, tied where no difference is significant; options as for `compare`."""
    analysis = Analysis.of_options(options)
    compared = compared_runs(runs, analysis)
    if len(compared) < 2:
        raise SettingError(f"rank: expected two runs or more, got {len(compared)}")
    return ranking.rank(compared, analysis)


def compared_runs(runs: RunSource | Sequence[RunSource], analysis: Analysis) -> tuple[RunResults, ...]:
    """Read one or several finished runs for a comparison."""
    given = [runs] if isinstance(runs, RunSource) else runs
    return read_runs([source_of(run, "runs") for run in given], analysis)


def gate(
    candidate: RunSource,
    baseline: RunSource | None = None,
    policy: Policy | str | Path | Mapping[str, Any] | None = None,
    **limits: Any,
) -> GateResult:
    """Decide whether a model may replace another, or lies within fixed bounds.

    The candidate passes if for every guard it is shown that it is not worse than the baseline by more than a margin:
    by default .1 of the Refusal Index, .05 of the correct rate and of the share of right answers among those given, and
    .1 of the refusal rate. It fails if for any guard it is shown that it is; else the verdict is inconclusive.

    RI leaves out the questions that the forced pass of either run refused again, which as wrong answers would raise it.
    To pass, a guard must also hold after the answers that are missing or were refused again are imputed, in each run in
    turn, with twice the odds of the cells that count against the verdict (delta-adjusted imputation).

    Parameters
    ----------
    candidate, baseline
        Runs, their folders, or outcome tables, of one model and dataset each. Without a baseline the policy needs
        bounds.
    policy
        A `Policy`, the name of a preset (``"coarse"``), a file such as ``gate.toml``, or its content as a dictionary:
        ``margins``, ``at_least``, ``at_most``, ``alpha``, ``max_missing``, ``max_refused_again``, ``metric`` and
        ``variant``.
    limits
        Any of these by name, in addition to the policy, as in ``at_least={"refusal_index": 0.2}``.

    Returns
    -------
    GateResult
        With ``verdict``, ``why``, ``guards``, ``changed``, ``refused_again``, ``tipping_point``, ``more_questions``,
        ``recommended_questions`` and ``to_document()``.

    Raises
    ------
    RefusalIndexError
        If a run cannot be read, the runs share no variant or less than half of the questions of the smaller one, or the
        policy cannot be used.

    References
    ----------
    Berger, R. L. (1982). Multiparameter hypothesis testing and acceptance sampling. Technometrics, 24, 295-300.
    :doi:`10.2307/1267823`

    National Research Council (2010). The Prevention and Treatment of Missing Data in Clinical Trials, chapter 5.
    :doi:`10.17226/12955`

    Examples
    --------
    >>> import tempfile
    >>> asked = {"limit": 40, "variants": "normal"}
    >>> from refusal_index import evaluate
    >>> runs = [evaluate(f"almanac/{name}", out=tempfile.mkdtemp(), **asked) for name in ("base", "base")]
    >>> gate(*runs).verdict
    'inconclusive'
    """
    other = None if baseline is None else read_run(baseline, "baseline")
    chosen = policy_of(policy)
    if limits:
        Policy.from_document(limits, "gate")  # names and values are checked
        chosen = chosen.changed(**limits)
    return decide(read_run(candidate, "candidate"), other, chosen)


def policy_of(policy: Policy | str | Path | Mapping[str, Any] | None) -> Policy:
    """Return a policy from a `Policy`, a mapping, the name of a preset or a file; raises PolicyError if none is."""
    if policy is None or isinstance(policy, Policy):
        return policy or Policy()
    if isinstance(policy, str | Path) and str(policy) in PRESETS:
        return Policy(margins=PRESETS[str(policy)])
    return (
        Policy.from_document(policy, "policy")
        if isinstance(policy, Mapping)
        else read_policy(checked_path(policy, "policy"))
    )


def read_run(run: RunSource, argument: str) -> RunResults:
    """Read a single run; raises RefusalIndexError if it cannot be read or is a set of runs."""
    source = source_of(run, argument)
    path = source.source if isinstance(source, RunResults) else whole_run(source)
    runs = runs_below(path)
    if runs:
        raise RunFolderError(
            f"{argument}: expected the folder of one run, got {path}, which holds {len(runs)}; name one of them, such "
            f"as {runs[0]}"
        )
    runs_read = read_runs([source if isinstance(source, RunResults) else path])
    if len(runs_read) != 1:
        raise OutcomeTableError(
            f"{argument}: expected one model on one dataset, got {len(runs_read)} in {path}: "
            f"{listed(compared.label for compared in runs_read)}; name one run, or split the table"
        )
    return _with_asked(runs_read[0])


def whole_run(path: Path) -> Path:
    """Return the folder of a run for its outcome table, which records neither what is missing nor an early stop."""
    around = run_around(path)
    return around if around is not None and RunFolder(around).outcomes == path.resolve() else path


def _with_asked(run: RunResults) -> RunResults:
    """Add what the run's folder records about how it was made and how many questions it asked."""
    if not run.source.is_dir():
        return run
    folder = RunFolder(run.source)
    draws = {}
    if folder.replies.exists():  # paid-for replies may stay where they are
        with open_store(folder, made=False) as store:
            draws = store.draws()
    about = folder.read_about()
    requested = {name: count_asked(draws.get(name or "", {}), run.settings, about) for name in run.tables}
    return replace(run, about=about, asked=requested)


def variant_to_ask(policy: Policy, baseline: RunResults | None) -> str:
    """Return the prompt variant to ask a candidate with; raises PolicyError if it is ambiguous."""
    names = [] if baseline is None else [name for name in baseline.tables if name is not None]
    if policy.variant is None and len(names) != 1:
        source = f"a baseline of {', '.join(names) or 'no named one'}" if baseline else "none"
        raise PolicyError(f"variant: expected one prompt to ask with, got {source}; name it with --variants")
    return policy.variant or names[0]


async def gate_while_asking(
    plan: Plan,
    baseline: RunResults | None,
    policy: Policy,
    progress: Progress = ignore_events,
    budget: Budget | None = None,
) -> tuple[RunResults | None, GateResult]:
    """Ask a candidate in looks, and stop at the first look with the verdict pass or fail.

    If an error prevents the next look, the verdict is inconclusive. Returns the candidate's results, None if an error
    came before the first look, and the verdict at the last look.

    Parameters
    ----------
    plan
        The candidate's run, with one prompt variant.
    baseline, policy
        The arguments of `refusal_index.findings.gate.decide`.
    progress, budget
        The arguments of `execute`.

    Raises
    ------
    RefusalIndexError
        As `execute` and `decide` do, and before anything is asked where the baseline is of other questions, a limit
        is one that no score can have, or the folder was looked at in another way before.
    """
    if baseline is not None:
        count_not_compared(plan, baseline)
    model = plan.identity["model"]
    dataset = plan.dataset.name
    to_ask = RunResults.of_tables(model, plan.folder.path, model, dataset, {}, plan.identity, about=plan.about)
    check_reachable(policy, gate_analysis([to_ask], policy))
    settings = plan.settings
    guarded = {*policy.margins, *policy.at_least, *policy.at_most}
    # at temperature 0 the corrected index equals RI
    if CORRECTED in guarded and settings.repeats.draws == 1 and not plan.is_deterministic:
        raise PolicyError(f"draws: expected 2 or more to judge {CORRECTED}, got 1; add --draws 2")
    sizes = sizes_of(plan, plan.settings.stopping.looks)
    design = GroupSequential(sizes, policy.alpha)
    looks = GateLooks(sizes[-1], len(sizes))
    before = GateLooks.read(plan.folder.read_about()) if plan.folder.run_json.exists() else None
    if before is not None and before.questions == looks.questions and before != looks:
        raise SettingError(
            f"{{looks}}: expected {before}, as planned before the first question of this folder, got {looks}; a "
            "plan changed after a look errs more often than stated, so keep the looks, or choose another folder"
        )
    results: list[GateResult] = []

    def judged(run: RunResults, n_so_far: int, *, within_look: bool = False) -> str | None:
        candidate = read_run(run, "candidate")
        result = decide(candidate, baseline, policy, look=AtLook(design, n_so_far), within_look=within_look)
        results.append(result)
        return None if result.verdict == "inconclusive" else f"the gate's verdict is {result.verdict}"

    try:
        run = await execute_in_looks(plan, sizes, judged, progress, budget, about={GATE_LOOKS: looks.to_document()})
    except RunFailedError as error:
        return None, unjudged(to_ask, baseline, policy, next(iter(plan.procedures)), str(error))
    if run.ended is not None:
        n_asked = run.outcomes["question_id"].n_unique()
        judged(
            run, min(size for size in sizes if size >= n_asked), within_look=bool(run.missing) or n_asked not in sizes
        )
    return run, results[-1]


def count_not_compared(plan: Plan, baseline: RunResults) -> int:
    """Return how many of the plan's questions the baseline lacks, so that they could not be compared.

    Raises OutcomeTableError if it lacks the variant, or more than half of the questions.
    """
    (variant,) = plan.procedures
    check_variant("baseline", baseline, variant)
    candidate_ids = {question.question_id for question in plan.dataset.questions}
    baseline_ids = set(baseline.tables[None if baseline.has_no_variants else variant]["question_id"])
    shared = len(candidate_ids & baseline_ids)
    if 2 * shared < len(candidate_ids):
        raise OutcomeTableError(
            f"baseline: expected at least half of the candidate's {len(candidate_ids):,} questions in it, got "
            f"{shared:,} of its {len(baseline_ids):,}; evaluate the candidate on the baseline's questions"
        )
    return len(candidate_ids) - shared
