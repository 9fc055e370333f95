"""A gate's verdict as text: why in one sentence, every guard, what is missing, and what changed most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refusal_index.data.errors import shortened
from refusal_index.data.run_json import Stop
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS
from refusal_index.findings.gate import GateResult, GuardResult
from refusal_index.findings.metrics import CORRECTED, METRICS
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.format import UNDEFINED, listed, number, percent, reason_text
from refusal_index.render.format import pvalue as shown_pvalue

WORDS = {
    "answered_right": "right",
    "answered_wrong": "wrong",
    "refused_right": "refused, though known",
    "refused_wrong": "refused, rightly",
}
"""What a model did with a question."""

NO_CHANGES = {
    "single_responses": "Single responses cannot show that any one question changed: each may come out differently "
    "when it is asked again. Sample every question often in both runs (run --draws 10) to see which changed.",
    "too_few_samples": "With so few samples per question, and so many questions, no single change stands out from "
    "sampling noise; ten samples in both runs show one (run --draws 10).",
}
"""Why no changed questions are listed."""


@shows(GateResult)
def gate_blocks(found: GateResult) -> Iterator[Block]:
    """Yield the verdict, the guards, what to do where it is open, and what changed most."""
    yield f"{found.verdict.upper()}: {sentence(found)}"
    yield ""
    yield judged(found)
    if found.guards:
        yield ""
        yield guard_table(found)
    for line in notes(found):
        yield ""
        yield line
    if found.changed:
        yield ""
        yield "Changed by more than sampling noise, most changed first:"
        yield changed_table(found)


def gate_document(found: GateResult) -> dict[str, Any]:
    """Give all of a verdict as JSON holds it, with the reason in words."""
    document = found.to_document()
    return {"gate_version": document["gate_version"], "verdict": found.verdict, "why": sentence(found), **document}


def sentence(found: GateResult) -> str:
    """Say why in one sentence."""
    by_verdict = {
        verdict: [one for one in found.guards if one.test.verdict == verdict]
        for verdict in ("pass", "fail", "inconclusive")
    }
    if not found.is_judged:
        return _unjudged(found)
    if found.verdict == "fail":
        return f"{'; '.join(_failed(one) for one in by_verdict['fail'])}."
    if by_verdict["inconclusive"]:
        return f"{'; '.join(_open(one) for one in by_verdict['inconclusive'])}."
    level = percent(round(1 - found.alpha, 6))
    return f"every guard lies within its limit with {level} confidence; nearest to it is {_nearest(found)}."


def notes(found: GateResult) -> Iterator[str]:
    """Yield what else there is to know, one sentence or two each."""
    if found.is_one_run:
        yield "Candidate and baseline are one run, or copies of it: no model is compared with another."
    if found.looked is not None:
        yield found.looked
    if found.baseline is None and not found.candidate.settings:
        yield "The table does not record what was asked: questions that are missing from it cannot be seen."
    stop = None if found.baseline is None else Stop.read(found.baseline.about)
    if stop is not None:
        yield f"Of the baseline: {stop.sentence}"
    if found.verdict == "inconclusive" and found.guards and found.is_judged:
        yield more_questions(found)
    short = [f"{percent(round(share, 4))} of the {one}'s" for one, share in found.missing.items() if share]
    if short and not found.within_look:
        yield f"Absent or without a grade: {listed(short)} questions, or of their repeated samples."
    if found.settings_that_differ and found.guards:
        verb = "differs" if len(found.settings_that_differ) == 1 else "differ"
        yield (
            f"The runs were not asked alike: {', '.join(found.settings_that_differ)} {verb}. The difference may come "
            "from there."
        )
    if found.no_changes is not None and found.guards and not found.changed:
        yield NO_CHANGES[found.no_changes]


def more_questions(found: GateResult) -> str:
    """Say how many more questions would settle an inconclusive verdict."""
    more = found.more_questions
    if more is None:
        return "More questions would not settle it: an estimate lies exactly on its limit, or cannot be computed."
    return f"About {more:,} more questions would settle it with a chance of 80 %, if the numbers stay as they are."


def guard_table(found: GateResult) -> Table:
    """Return every guard as a row."""
    sure = percent(round(1 - found.alpha, 6))
    columns = (
        "guard",
        "baseline",
        "candidate",
        "difference",
        f"at worst ({sure})",
        "limit",
        "p beyond, Holm",
        "verdict",
    )
    return Table.of(columns, map(_cells, found.guards), left=("guard", "verdict"))


def changed_table(found: GateResult) -> Table:
    """Return the questions that changed most as rows."""
    rows = (
        (
            one.question_id,
            f"{WORDS[one.baseline]} ({one.draws_baseline})",
            f"{WORDS[one.candidate]} ({one.draws_candidate})",
            shortened(one.question)[1:-1] if one.question else UNDEFINED,
        )
        for one in found.changed
    )
    return Table.of(names := ("question_id", "before", "now", "question"), rows, left=names)


def guard_name(one: GuardResult) -> str:
    """Return what a guard is called, as in tables of metrics."""
    return METRICS[one.named.guard.name].column


def allowed(one: GuardResult) -> str:
    """Say what a guard allows."""
    guard = one.named.guard
    if one.named.against_baseline:
        return f"{abs(guard.limit):g} {'lower' if guard.higher_is_better else 'higher'}"
    return f"{'at least' if guard.higher_is_better else 'at most'} {guard.limit:g}"


def reason_of(one: GuardResult) -> str:
    """Say why a guard's number is none."""
    if one.named.guard.name == CORRECTED and one.named.reason == NO_REPEATED_QUESTIONS:
        where = " in both runs" if one.named.against_baseline else ""
        return f"no question was sampled more than once{where} (run --draws 2)"
    said = (one.named.reason or "it has no interval").replace("first:", "candidate: ").replace("second:", "baseline: ")
    return reason_text(said)


def judged(found: GateResult) -> str:
    """Say what is compared with what."""
    where = f" under {found.variant}" if found.variant else ""
    if found.unasked is not None or found.within_look:
        return f"{found.candidate.label}{where}: nothing is judged."
    if found.baseline is None:
        return f"{found.candidate.label}{where}: {found.questions:,} questions, against fixed bounds."
    left = dict(zip(("candidate", "baseline"), found.match.left_out if found.match else (), strict=False))
    rest = [f"{count:,} of the {name}'s" for name, count in left.items() if count]
    without = f"; not compared, as the other was not asked or has no grade there: {listed(rest)}" if rest else ""
    return (
        f"{found.candidate.label} (candidate) against {found.baseline.label} (baseline){where}: {found.questions:,} "
        f"questions, each compared with itself{without}."
    )


def _cells(one: GuardResult) -> tuple[str, ...]:
    named, test = one.named, one.test
    difference = _signed(named.guard.estimate) if named.against_baseline else UNDEFINED
    worst = _signed(test.worst) if named.against_baseline else number(test.worst)
    has_none = named.guard.estimate is None or test.pvalue_beyond is None
    pvalue = UNDEFINED if has_none else shown_pvalue(test.pvalue_holm)
    numbers = (number(named.baseline), number(named.candidate), difference, worst)
    return guard_name(one), *numbers, allowed(one), pvalue, test.verdict


def _signed(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:+.3f}"


def _failed(one: GuardResult) -> str:
    if one.named.guard.estimate is None:
        return f"{guard_name(one)} does not exist: {reason_of(one)}"
    return f"{guard_name(one)} is beyond its limit ({_seen(one)}, Holm p {shown_pvalue(one.test.pvalue_holm)})"


def _open(one: GuardResult) -> str:
    guard, test = one.named.guard, one.test
    if guard.estimate is None or test.worst is None:
        return f"{guard_name(one)} cannot be judged: {reason_of(one)}"
    where = (
        "looks beyond its limit, though it may be chance"
        if guard.room(guard.estimate) < 0
        else "may be beyond its limit"
    )
    return f"{guard_name(one)} {where} ({_seen(one)})"


def _seen(one: GuardResult) -> str:
    """Say what was seen, how bad it may be, and what is allowed."""
    named, test = one.named, one.test
    if named.against_baseline:
        return f"{_signed(named.guard.estimate)}, at worst {_signed(test.worst)}, allowed {allowed(one)}"
    return f"{number(named.candidate)}, at worst {number(test.worst)}, allowed {allowed(one)}"


def _unjudged(found: GateResult) -> str:
    """Say why nothing can be decided."""
    if found.unasked is not None:
        return f"the candidate could not be asked up to its next look, and nothing is decided: {found.unasked}"
    if found.within_look:
        return "asking ended before the next look, and nothing is decided between looks; run its command again."
    if found.incomplete:
        return _incomplete(found)
    return "too few questions have a grade in both runs; run their own commands again."


def _incomplete(found: GateResult) -> str:
    """Say of which runs too much is missing to decide anything."""
    each = listed([f"{percent(round(found.missing[one], 4))} of the {one}'s" for one in found.incomplete])
    most = percent(found.policy.max_missing)
    return (
        f"{each} questions, or of their repeated samples, are absent or have no grade; above {most} the gate does not "
        "decide, because what is missing may differ from the rest; run the same command again to complete it."
    )


def _nearest(found: GateResult) -> str:
    """Name the guard that is closest to its limit."""
    one = min(found.guards, key=lambda one: -(one.test.pvalue_inside or 0.0))
    return f"{guard_name(one)} ({_seen(one)})"
