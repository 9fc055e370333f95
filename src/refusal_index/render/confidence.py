"""What the scores of a run come to, as tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from refusal_index.data.rates import too_many_missing
from refusal_index.findings.confidence_summary import AgainstRefusals, Difference, MethodSummary, Verdict
from refusal_index.render.blocks import Block, Table
from refusal_index.render.format import UNDEFINED, interval_of, listed, number, title
from refusal_index.stats import Estimate

FEW_OF_A_KIND = 20
"""Fewer right, or fewer wrong answers settle little of how a score orders them."""

OTHER_ANSWERS = 0.02
"""Difference in the share of right answers from which on the answers that were scored are said to be others."""

TRAINED = "trained on right and wrong answers"
"""Marks a method of which not all is the model's own: a probe, a classifier, a score that was calibrated."""

AGAINST = (
    "Score against refusals: of the same questions, with the same answers, as many are refused as the model refused, "
    "but those with the lowest scores. Differences are the score's less the model's, paired by question, and each "
    "interval is by itself: of twenty differences that are none, one or so looks like some."
)

ONE_BY_ONE = "Scores count every question alike and by itself, whatever clusters and weights there are."
"""Said where the other numbers allow for these."""

TARGETS = (
    "Answering from a confidence target t on, a right answer is worth 1, a wrong one -t / (1 - t), and none 0; the "
    "mean value of a question:"
)

VERDICTS: Mapping[Verdict, str] = {
    "better": "orders errors better than the refusals",
    "worse": "orders errors worse than the refusals",
    "not_told_apart": "cannot be told from the refusals",
    "undefined": "cannot be compared with the refusals",
}
"""What a score does, before the variants under which it is compared."""

SHORT: Mapping[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "not_told_apart": "not told apart",
    "undefined": UNDEFINED,
}

_REASONS = {
    "nobody_refused": "the model refused none of these questions",
    "everybody_refused": "the model refused all of these questions",
    "all_wrong": "no answer is right",
    "all_right": "no answer is wrong",
    "no_questions": "no question has a score, a grade and a first pass",
    "constant_difference": "both refuse the same questions",
}

_EMPTY = {
    "refused_wrong": "refuses no wrong answer",
    "refused_right": "refuses no right answer",
    "answered_wrong": "leaves no error",
    "answered_right": "leaves no right answer",
}
"""What it means that a cell is empty."""


def confidence_blocks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield how well each method orders and calibrates, what it scored, and in full whether it beats the refusals."""
    if not summary:
        yield "no scores"
        return
    yield measures_table(summary)
    yield from _remarks(summary)
    yield from ("", AGAINST, "", against_table(summary))
    for one in summary:
        yield from ("", verdict_sentence(one))
    yield from ("", TARGETS, "", targets_table(summary))


def measures_blocks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield the same in short, beside the other numbers of a run; nothing without scores."""
    if not summary:
        return
    yield from ("", measures_table(summary))
    yield from _remarks(summary)
    yield from ("", AGAINST)
    for one in summary:
        if one.questions:
            yield from ("", order_sentence(one))


def _remarks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    for names, remark in shared_remarks(summary):
        yield from ("", f"{listed(names)}: {remark}")


def shared_remarks(summary: Sequence[MethodSummary]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what must be said beside the numbers, each remark once with all the methods that it holds for."""
    found: dict[str, list[str]] = {}
    for one in summary:
        for remark in remarks(one):
            found.setdefault(remark, []).append(name_of(one))
    yield from ((tuple(names), remark) for remark, names in found.items())


def name_of(one: MethodSummary) -> str:
    """Name a method, the variant that its scores belong to, and the pass where it is the first."""
    beside = [part for part in (one.variant, "first pass" if one.of == "first" else None) if part]
    return f"{one.method} ({', '.join(beside)})" if beside else one.method


def measures_table(summary: Sequence[MethodSummary]) -> Table:
    """Make the table of the measures, one row a method."""
    several = len({(one.model, one.dataset) for one in summary}) > 1
    heading = "model, dataset, confidence" if several else "confidence"
    columns = (heading, "answers", "right", "AUROC", "interval", "ECE", "RMS", "smooth ECE", "Brier", "AURC", "PRR")
    return Table.of(columns, (_measures(one, several=several) for one in summary), left=(heading,))


def _measures(one: MethodSummary, *, several: bool) -> Iterator[str]:
    yield title(one.model, one.dataset, name_of(one)) if several else name_of(one)
    yield f"{one.questions:,}"
    yield number(one.accuracy)
    yield from (number(one.auroc.estimate), interval_of(one.auroc))
    yield from map(number, (one.ece, one.rms_calibration_error, one.smooth_ece, one.brier.estimate, one.aurc, one.prr))


def targets_table(summary: Sequence[MethodSummary]) -> Table:
    """Make the table of the value at each confidence target, one row a method."""
    heading = "target"
    targets = list(dict.fromkeys(target for one in summary for target in one.targets))
    columns = (heading, *(cell for target in targets for cell in (target, f"interval of {target}")))
    rows = ((name_of(one), *_values(one, targets)) for one in summary)
    return Table.of(columns, rows, left=(heading,))


def _values(one: MethodSummary, targets: Iterable[str]) -> Iterator[str]:
    for target in targets:
        found = one.targets[target]
        yield from (number(found.estimate), interval_of(found))


def remarks(one: MethodSummary) -> Iterator[str]:
    """Yield what must be said beside a method's numbers: whose they are, what is missing, what they rest on."""
    if one.is_trained:
        yield (
            f"{TRAINED}, so that not all it says is the model's own; each answer was scored by a fit without it. "
            "Scores of different fits stand together, which pulls the AUROC of one that knows nothing below 0.5."
        )
    if one.over_topic is not None and one.over_topic.low is not None:
        yield f"AUROC less that of the topic alone, over the same answers: {_plain(one.over_topic)}."
    missing = missing_words(one)
    if missing is not None:
        yield f"{missing}; they are left out, and not filled in."
    unasked = one.asked - one.questions - one.without_score - one.without_grade
    if one.questions and too_many_missing(unasked, one.asked):
        yield f"it scored {one.questions:,} of the {one.asked:,} questions that were asked, and speaks for these alone."
    yield from _few(one)
    yield from _of_other_answers(one)


def _plain(found: Estimate) -> str:
    return f"{found.estimate:+.3f} {interval_of(found)}"


def missing_words(one: MethodSummary) -> str | None:
    """Say for how many answers a method has no score, or no grade; None where it has all."""
    asked = one.questions + one.without_score + one.without_grade
    said = []
    if one.without_score:
        said.append(f"no score in {one.without_score:,} of {asked:,} replies")
    if one.without_grade:
        said.append(f"no grade of {one.without_grade:,} answers with a score")
    return ", ".join(said) or None


def _few(one: MethodSummary) -> Iterator[str]:
    wrong = one.questions - one.right
    if one.questions and min(one.right, wrong) < FEW_OF_A_KIND:
        count, kind = min((one.right, "right"), (wrong, "wrong"))
        verb = "is" if count == 1 else "are"
        yield f"{count:,} of its {one.questions:,} answers {verb} {kind}: too few to settle much."


def _of_other_answers(one: MethodSummary) -> Iterator[str]:
    for each in one.against:
        own, scored = each.own_accuracy, each.accuracy
        if own is not None and scored is not None and abs(own - scored) >= OTHER_ANSWERS:
            under = f"under {each.variant}, " if each.variant else ""
            yield (
                f"{under}the run's own answers to these questions are right in {share(own)}, the answers scored here "
                f"in {share(scored)}: the model answers otherwise when it must. Both sides are compared by the "
                "latter, so that their RI is not the run's."
            )


def against_table(summary: Sequence[MethodSummary]) -> Table:
    """Make the table of scores against refusals, one row a method and variant."""
    columns = (
        "confidence",
        "refusals of",
        "n",
        "refused",
        "RI by score",
        "by refusals",
        "difference",
        "interval",
    )
    errors = ("errors of answered by score", "by refusals ", "difference ", "interval ", "verdict")
    rows = ((name_of(one), *_against(each)) for one in summary for each in one.against)
    return Table.of((*columns, *errors), rows, left=("confidence", "refusals of", "verdict"))


def _against(one: AgainstRefusals) -> Iterator[str]:
    yield one.variant or "all"
    yield f"{one.questions:,}"
    yield f"{one.refused:,}"
    for found in (one.refusal_index, one.answered_error_rate):
        yield from (number(found.score), number(found.refusals))
        yield from (number(found.difference.estimate), interval_of(found.difference))
    yield SHORT[one.verdict]


def verdict_sentence(one: MethodSummary) -> str:
    """Say whether a score orders errors better than the refusals do, variants of a kind together."""
    return _sentence(one, _reason)


def order_sentence(one: MethodSummary) -> str:
    """Say the same with the differences and their intervals."""
    return _sentence(one, _numbers)


def _sentence(one: MethodSummary, beside: Callable[[AgainstRefusals], str]) -> str:
    """Say what a score does, and in brackets beside each variant what `beside` has to say."""
    found = {verdict: [each for each in one.against if each.verdict == verdict] for verdict in VERDICTS}
    parts = []
    for verdict, held in found.items():
        each = [f"{one.variant or ''} {beside(one)}".strip() for one in held]
        under = " under" if any(one.variant for one in held) else ""
        if held:
            parts.append(f"{VERDICTS[verdict]}{under} {listed(each)}".rstrip())
    return f"{name_of(one)} {'; it '.join(parts) or 'has no refusals to be compared with'}."


def _reason(one: AgainstRefusals) -> str:
    return f"({reason_words(one)})" if one.verdict == "undefined" else ""


def _numbers(one: AgainstRefusals) -> str:
    if one.verdict == "undefined":
        return _reason(one)
    named = (("RI", one.refusal_index), ("errors among the answers given", one.answered_error_rate))
    return f"({', '.join(f'{name} {_signed(found)}' for name, found in named)})"


def _signed(found: Difference) -> str:
    if found.difference.estimate is None:
        return "undefined"
    ends = "without an interval" if found.difference.low is None else interval_of(found.difference)
    return f"{found.difference.estimate:+.3f} {ends}"


def told(one: AgainstRefusals, method: str) -> str:
    """Say in full what was compared under one variant, and what came out."""
    under = f"Under {one.variant}" if one.variant else "Here"
    if one.verdict == "undefined":
        return f"{under} there is nothing to compare: {reason_words(one)}."
    index, errors = one.refusal_index, one.answered_error_rate
    return (
        f"{under} the model refused {one.refused:,} of {one.questions:,} questions. Refusing instead the "
        f"{one.refused:,} with the lowest {method} turns RI from {number(index.refusals)} into "
        f"{number(index.score)} ({_difference(index)}), and the share of errors among the answers given from "
        f"{share(errors.refusals)} into {share(errors.score)} ({_points(errors)}): {_CONCLUSIONS[one.verdict]}."
    )


_CONCLUSIONS: Mapping[Verdict, str] = {
    "better": "the score orders errors better",
    "worse": "the score orders errors worse",
    "not_told_apart": "the two cannot be told apart",
}


def _difference(found: Difference) -> str:
    if found.difference.low is None:
        return "at its limit, where there is no interval"
    return f"{found.difference.estimate:+.3f} {interval_of(found.difference)}"


def _points(found: Difference) -> str:
    values = (found.difference.estimate, found.difference.low, found.difference.high)
    estimate, low, high = (None if value is None else 100 * value for value in values)
    if estimate is None or low is None or high is None:
        return "without an interval"
    return f"{estimate:+.1f} points [{low:.1f}, {high:.1f}]"


def reason_words(one: AgainstRefusals) -> str:
    """Say why a score cannot be compared with the refusals.

    The reasons are those of `refusal_index.stats.ScoreDifference`: of a margin, or of each of the two that has a cell
    without a question.
    """
    reason = one.refusal_index.difference.reason or one.answered_error_rate.difference.reason or ""
    if reason in _REASONS:
        return _REASONS[reason]
    said = []
    for part in reason.split(";"):
        who, _, cells = part.partition(":zero_cell:")
        whose = {"score": "the score", "refusals": "the model"}.get(who, who)
        said += [f"{whose} {_EMPTY.get(cell, cell)}" for cell in cells.split("+")]
    return f"{listed(said)}, so that there is no interval"


def share(value: float | None) -> str:
    """Show a share in per cent, to a tenth of a point."""
    return UNDEFINED if value is None else f"{100 * value:.1f} %"
