"""What the steps of a training show, in sentences: what a test shows, and how much may hide where it shows nothing."""

from __future__ import annotations

from collections.abc import Iterator

from refusal_index.outcomes.panel import TESTED, PanelOfSteps
from refusal_index.outcomes.presentation.blocks import listed
from refusal_index.report.tables import count, number, percent
from refusal_index.stats.change_point import Split

REFUSALS, ERRORS, INDEX = TESTED

CHANGES = {
    REFUSALS: ("it refuses more", "it refuses less"),
    ERRORS: ("it knows less", "it knows more"),
    INDEX: ("its refusals follow its knowledge more closely", "its refusals follow its knowledge less closely"),
}
"""What is said of a metric that rose, and of one that fell."""

SUBJECTS = {
    REFUSALS: "how often it refuses",
    ERRORS: "how often it is wrong when it must answer",
    INDEX: "how closely its refusals follow its knowledge",
}


def headline(found: PanelOfSteps) -> str:
    """Say in one sentence what changed since when."""
    changed = [metric for metric in TESTED if found.changed(metric)]
    if not changed:
        return f"No change is shown over these {len(found.runs)} steps{_but(found)}."
    said = listed([_change(found, metric) for metric in changed])
    return f"{said[0].upper()}{said[1:]}{_no_better(found)}."


def details(found: PanelOfSteps, level: str) -> Iterator[str]:
    """Give the size of each change, and what may hide where none is shown; then what all of it rests on."""
    for metric in TESTED:
        yield _detail(found, metric)
    share = percent(1 - found.metrics[INDEX].confidence_level)
    yield (
        "All splits and all three of these are held against chance together: where nothing changed, the chance of "
        f"saying any of it is at most {share}. The {level} bands hold for all steps of a metric at once. "
        f"{_rests_on(found)}"
    )


def _detail(found: PanelOfSteps, metric: str) -> str:
    split, steps = _split(found, metric), len(found.runs)
    left_out = _left_out(found, metric)
    if split is None:
        return f"Nothing can be said of {SUBJECTS[metric]}: {steps - left_out} of {steps} steps have an interval of it."
    without = f" Left out: {count(left_out, 'step')} without an interval." if left_out else ""
    since = f"step {_step(found, split)}"
    if found.changed(metric):
        means = (
            f"{_value(metric, split.before)} on average before {since} and {_value(metric, split.after)} from there on"
        )
        more = "" if found.changed_at_once(metric) else " It changes before or after that too: this is no single jump."
        return f"{_name(metric)} is {means}: {_by(metric, split)}.{more}{without}"
    by = f"from {since} on it differs by {_by(metric, split)} on average"
    return f"No change is shown in {SUBJECTS[metric]}: {by}.{without}"


def _change(found: PanelOfSteps, metric: str) -> str:
    split = found.metrics[metric].change
    if split is None:  # what is not known did not change
        return ""
    rose, fell = CHANGES[metric]
    about = "" if found.changed_at_once(metric) else "about "
    return f"{rose if split.estimate > 0 else fell} since {about}step {_step(found, split)}"


def _no_better(found: PanelOfSteps) -> str:
    """Say of a model that changed that its index is not shown to have, which is what one would like to know."""
    if found.changed(INDEX) or not (found.changed(REFUSALS) or found.changed(ERRORS)):
        return ""
    if _split(found, INDEX) is None or (found.changed(REFUSALS) and _across(found, INDEX) is None):
        return "; whether it knows better what it does not know cannot be said"
    return "; that it knows better, or worse, what it does not know is not shown"


def _but(found: PanelOfSteps) -> str:
    """Say what a sentence on all steps does not hold for."""
    steps, left_out = len(found.runs), {metric: _left_out(found, metric) for metric in TESTED}
    said = [
        f"{SUBJECTS[metric]} at {'any' if number == steps else f'{number:,}'}"
        for metric, number in left_out.items()
        if number
    ]
    return f", but nothing can be said of {listed(said)} of them" if said else ""


def _left_out(found: PanelOfSteps, metric: str) -> int:
    return len(found.runs) - len(found.metrics[metric].rows)


def _split(found: PanelOfSteps, metric: str) -> Split | None:
    """Return where a metric is cut in two: at its own change, else where the refusals changed, so that both compare."""
    own = found.metrics[metric].change
    return own if found.changed(metric) or not found.changed(REFUSALS) else _across(found, metric) or own


def _across(found: PanelOfSteps, metric: str) -> Split | None:
    """Return the split of a metric at which the refusals changed, or at the first step after it that has the metric."""
    own, change = found.metrics[metric], found.metrics[REFUSALS].change
    parts = zip(own.rows, own.splits, strict=False)  # the last step before a split, and the split
    return next((one for last, one in parts if change and last < change.row <= one.row), None)


def _step(found: PanelOfSteps, split: Split) -> str:
    return f"{found.steps[split.row]:,}"


def _name(metric: str) -> str:
    return {REFUSALS: "The refusal rate", ERRORS: "The error rate", INDEX: "The index"}[metric]


def _value(metric: str, value: float) -> str:
    return number(value, 2) if metric == INDEX else percent(value)


def _by(metric: str, split: Split) -> str:
    if metric == INDEX:
        return f"{_signed(split.estimate)} ({_signed(split.low)} to {_signed(split.high)})"
    low, high = (f"{_signed(100 * end, 0)}" for end in (split.low, split.high))
    return f"{_signed(100 * split.estimate, 0)} points ({low} to {high})"


def _signed(value: float, digits: int = 2) -> str:
    shown = number(value, digits)
    return f"+{shown}" if value > 0 and float(shown) != 0 else shown


def _rests_on(found: PanelOfSteps) -> str:
    questions = count(len(found.match.matrix.question_ids), "question")
    if not found.match.paired:
        return f"The steps were not all asked the same of these {questions}, which makes differences less certain."
    return (
        f"All steps are compared on the same {questions}; that another training would have gone the same way, no "
        "single one can show."
    )
