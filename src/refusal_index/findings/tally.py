"""What can be said of first passes without a forced pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from refusal_index.data.imports.first_pass import FirstPass
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
        """Caveats that belong beside the counts."""
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
    for one in passes:
        groups.setdefault((one.model, one.dataset, one.variant), []).append(one)
    return tuple(_tally(*whose, group, penalty) for whose, group in groups.items())


def _tally(
    model: str | None, dataset: str | None, variant: str | None, group: list[FirstPass], penalty: float
) -> Tally:
    grades = Counter(one.grade for one in group)
    correct, incorrect, refused = (grades[grade] for grade in (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED))
    unscored = len(group) - correct - incorrect - refused
    reasons = Counter(one.outcome().unscored_reason or "" for one in group if one.grade in (None, Grade.UNSCORED))
    # The forced answers decide between the cells of the refused, and no metric of the first pass looks at them.
    table = ContingencyTable(refused, 0, incorrect, correct)
    known = not too_many_missing(unscored, len(group))
    found = {one.name: one for one in metrics(table, penalty=penalty)} if known else {}
    return Tally(
        model=model,
        dataset=dataset,
        variant=variant,
        correct=correct,
        incorrect=incorrect,
        refused=refused,
        unscored=unscored,
        reasons=dict(reasons.most_common()),
        to_force=sum(one.needs_forcing for one in group),
        forced=sum(_is_forced(one) for one in group),
        set_aside=sum(one.beyond.set_aside is not None for one in group),
        metrics=tuple(found[name] for name in FIRST_PASS_METRICS if name in found),
    )


def _is_forced(one: FirstPass) -> bool:
    return one.grade is Grade.REFUSED and one.question.gold is not None and one.beyond.forced is not None


COUNTS = ("correct", "incorrect", "refused", "unscored")


def tally_document(tally: Tally) -> dict[str, Any]:
    """Give a tally as JSON holds it."""
    return {
        "model": tally.model,
        "dataset": tally.dataset,
        "variant": tally.variant,
        "n": tally.rows,
        **{name: getattr(tally, name) for name in COUNTS},
        "reasons": dict(tally.reasons),
        "metrics": {
            one.name: {"estimate": one.estimate, "low": one.low, "high": one.high, "status": one.status}
            for one in tally.metrics
        },
        "force_requests": tally.to_force,
        "forced": tally.forced,
    }
