"""What can be said of first passes without a forced pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from refusal_index.data.first_pass import FirstPass
from refusal_index.data.outcome import Grade
from refusal_index.data.rates import too_many_missing
from refusal_index.findings.statement import Statement
from refusal_index.stats import ContingencyTable, Estimate, metrics

FIRST_PASS_METRICS = ("correct_given_attempted", "f_score", "weighted_score")
"""The metrics that the first pass alone decides."""


@dataclass(frozen=True)
class Tally:
    """The first passes of one model on one dataset under one prompt, counted."""

    # model, dataset, variant: whose they are; None where the file does not say
    model: str | None
    dataset: str | None
    variant: str | None
    # correct, incorrect, refused: how many were graded so
    correct: int
    incorrect: int
    refused: int
    unscored: int  # how many were not graded, or answered without a word on whether that is right
    reasons: Mapping[str, int]  # number of the unscored by reason
    to_force: int  # refused questions that a forced pass has to ask
    forced: int  # refused questions whose forced answer is there
    set_aside: int  # refused questions that are marked as wrong too, for the refusal or for a forced answer
    # those of `FIRST_PASS_METRICS`, of the graded questions; empty where so many are unscored that they would mislead
    metrics: tuple[Estimate, ...]

    @property
    def rows(self) -> int:
        """All of them."""
        return self.correct + self.incorrect + self.refused + self.unscored

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Caveats to print with the counts."""
        settled = self.refused - self.to_force - self.forced
        unscored = {"missing": self.unscored, "asked": self.rows, "reasons": self.reasons}
        each = (
            (self.unscored, Statement("unscored_questions", "note", unscored)),
            (not self.metrics, Statement("too_many_unscored", "grave")),
            (self.forced, Statement("already_forced", "note", {"questions": self.forced})),
            (self.set_aside, Statement("refused_and_wrong", "note", {"questions": self.set_aside})),
            (settled, Statement("no_right_answer", "note", {"questions": settled})),
            (not self.refused, Statement("none_refused", "grave")),
        )
        return tuple(statement for applies, statement in each if applies)


def tallies(passes: Iterable[FirstPass], *, penalty: float = 1.0) -> tuple[Tally, ...]:
    """Count the first passes by model, dataset and variant, in the order in which they appear.

    - `passes`: the first passes.
    - `penalty`: of the weighted score.
    """
    groups: dict[tuple[str | None, str | None, str | None], list[FirstPass]] = {}
    for first_pass in passes:
        groups.setdefault((first_pass.model, first_pass.dataset, first_pass.variant), []).append(first_pass)
    return tuple(_tally(*identification, group, penalty) for identification, group in groups.items())


def _tally(
    model: str | None, dataset: str | None, variant: str | None, group: list[FirstPass], penalty: float
) -> Tally:
    grades = Counter(first_pass.grade for first_pass in group)
    correct, incorrect, refused = (grades[grade] for grade in (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED))
    unscored = [first_pass for first_pass in group if first_pass.grade in (None, Grade.UNSCORED)]
    # The forced answers decide between the cells of the refused, and no metric of the first pass looks at them.
    estimates = metrics(ContingencyTable(refused, 0, incorrect, correct), penalty=penalty)
    by_name = {} if too_many_missing(len(unscored), len(group)) else {metric.name: metric for metric in estimates}
    forced = [
        first_pass
        for first_pass in group
        if first_pass.grade is Grade.REFUSED and first_pass.question.gold is not None and first_pass.forced is not None
    ]
    return Tally(
        *(model, dataset, variant),
        *(correct, incorrect, refused, len(unscored)),
        reasons=dict(Counter(first_pass.outcome().unscored_reason or "" for first_pass in unscored).most_common()),
        to_force=sum(first_pass.needs_forcing for first_pass in group),
        forced=len(forced),
        set_aside=sum(first_pass.set_aside is not None for first_pass in group),
        metrics=tuple(by_name[name] for name in FIRST_PASS_METRICS if name in by_name),
    )


COUNTS = ("correct", "incorrect", "refused", "unscored")


def tally_document(tally: Tally) -> dict[str, Any]:
    """Return a tally as JSON holds it."""
    fields = ("estimate", "low", "high", "status")
    return {
        **{name: getattr(tally, name) for name in ("model", "dataset", "variant")},
        "n": tally.rows,
        **{name: getattr(tally, name) for name in COUNTS},
        "reasons": dict(tally.reasons),
        "metrics": {metric.name: {name: getattr(metric, name) for name in fields} for metric in tally.metrics},
        "force_requests": tally.to_force,
        "forced": tally.forced,
    }
