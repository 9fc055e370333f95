"""A candidate that is asked only until a gate's verdict is certain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import RunFailedError
from refusal_index.engines.events import Progress, unwatched
from refusal_index.engines.setting import SettingError
from refusal_index.evaluation.gate import read_one
from refusal_index.evaluation.looks import in_looks, sizes_of
from refusal_index.evaluation.plan import Plan
from refusal_index.evaluation.run import Run
from refusal_index.outcomes.draws import CORRECTED
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.gate import GateResult, check_variant, decide, unjudged
from refusal_index.outcomes.gate_guards import check_reachable, payoffs_of
from refusal_index.outcomes.gate_look import looked_at
from refusal_index.outcomes.gate_policy import Policy, PolicyError
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.outcomes.stopping import GATE_LOOKS, GateLooks
from refusal_index.stats import AtLook, GroupSequential


@dataclass(frozen=True)
class Gated:
    """A run that was judged while it was asked, and the verdict.

    Attributes
    ----------
    run, verdict
        What was asked of the candidate, None where an error kept it from its next look, and what was decided at the
        last one.
    """

    run: Run | None
    verdict: GateResult

    @property
    def notes(self) -> Iterator[str]:
        """What was not asked, and why."""
        ended = self.verdict.unasked if self.run is None else self.run.ended
        if ended is not None:
            yield f"ended early: {ended}"
        if self.run is not None and self.run.missing:
            first = self.run.missing[0]
            yield (
                f"{len(self.run.missing):,} not finished, {first.variant} {first.question_id} the first: "
                f"{first.error[:200]}; the same command asks them again"
            )


def variant_to_ask(policy: Policy, baseline: ComparedRun | None) -> str:
    """Return the one prompt variant to ask a candidate with; raises PolicyError where it is not clear."""
    known = [] if baseline is None else [name for name in baseline.variants if name is not None]
    if policy.variant is None and len(known) != 1:
        told = f"a baseline of {', '.join(known) or 'no named one'}" if baseline else "none"
        raise PolicyError(f"variant: expected one prompt variant to ask with, got {told}; name it with --variant")
    return policy.variant or known[0]


def _check_draws(plan: Plan, policy: Policy) -> None:
    """Refuse to judge by the corrected index what is to be asked once; at temperature 0 it repeats RI."""
    settings, guarded = plan.settings, {*policy.margins, *policy.at_least, *policy.at_most}
    once = settings.drawing.draws in (None, 1) and settings.drawing.repeat_questions is None
    if CORRECTED in guarded and once and settings.decoding.temperature > 0:
        raise PolicyError(f"draws: expected 2 or more to judge {CORRECTED}, got 1; add --draws 2")


async def gate_while_asking(
    plan: Plan,
    baseline: ComparedRun | None,
    policy: Policy,
    progress: Progress = unwatched,
    budget: Budget | None = None,
) -> Gated:
    """Ask a candidate in looks, and stop at the first one at which the verdict is pass or fail.

    What keeps it from its next look is no verdict: it is inconclusive.

    Parameters
    ----------
    plan
        The candidate's run, of one prompt variant.
    baseline, policy
        As `refusal_index.outcomes.gate.decide` takes them.
    progress, budget
        As `carry_out` takes them.

    Raises
    ------
    RefusalIndexError
        As `carry_out` and `decide` do, and before anything is asked where the baseline is of other questions, a limit
        is one that no score can have, or the folder was looked at in another way before.
    """
    if baseline is not None:
        not_compared(plan, baseline)
    to_ask = _to_ask(plan)
    check_reachable(policy, payoffs_of([to_ask]))
    _check_draws(plan, policy)
    sizes = sizes_of(plan, plan.settings.stopping.looks)
    design = GroupSequential(sizes, policy.alpha)
    looks = GateLooks(sizes[-1], len(sizes))
    _check_planned(plan.folder, looks)
    found: list[GateResult] = []

    def judged(run: Run, asked: int, *, within_look: bool = False) -> str | None:
        look, told = AtLook(design, asked), looked_at(asked, sizes)
        candidate = read_one(run, "candidate")
        result = decide(candidate, baseline, policy, look=look, looked=told, within_look=within_look)
        found.append(result)
        return None if result.verdict == "inconclusive" else f"the gate's verdict is {result.verdict}"

    try:
        run = await in_looks(plan, sizes, judged, progress, budget, about={GATE_LOOKS: looks.to_document()})
    except RunFailedError as error:
        return Gated(None, unjudged(to_ask, baseline, policy, next(iter(plan.procedures)), str(error)))
    if run.ended is not None:
        asked = run.outcomes["question_id"].n_unique()
        judged(run, min(size for size in sizes if size >= asked), within_look=bool(run.missing) or asked not in sizes)
    return Gated(run, found[-1])


def _to_ask(plan: Plan) -> ComparedRun:
    """Return a candidate of which there are no outcomes yet."""
    settings = plan.identity
    return ComparedRun(
        settings["model"], plan.folder.path, settings["model"], plan.dataset.name, {}, settings, about=plan.about
    )


def _check_planned(folder: RunFolder, looks: GateLooks) -> None:
    """Raise SettingError where a candidate was looked at in another way: more looks err more often than stated."""
    before = GateLooks.read(folder.read_about()) if folder.run_json.exists() else None
    if before is not None and before.of == looks.of and before != looks:
        raise SettingError(
            f"{{looks}}: expected {before}, as planned before the first question of this folder, got {looks}; looks "
            "that are planned after others err more often than stated, so judge it as before, or ask into another one"
        )


def not_compared(plan: Plan, baseline: ComparedRun) -> int:
    """Return how many questions of a plan of one prompt variant the baseline lacks: they would be asked in vain.

    Raises OutcomeTableError where it lacks the variant, or more than half of the questions.
    """
    (variant,) = plan.procedures
    check_variant("baseline", baseline, variant)
    asked = {one.question_id for one in plan.dataset.questions}
    theirs = set(baseline.variants[None if baseline.has_no_variants else variant]["question_id"])
    shared = len(asked & theirs)
    if 2 * shared < len(asked):
        raise OutcomeTableError(
            f"baseline: expected at least half of the {len(asked):,} questions to ask in it, got {shared:,} shared, of "
            f"{len(theirs):,} of the baseline; ask the candidate what the baseline was asked"
        )
    return len(asked) - shared
