"""Counts and rates of an imported first pass, before its refused questions are forced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.first_pass import NOT_KNOWN, FirstPass, FirstPasses
from refusal_index.data.outcome import NOT_GRADED, Grade
from refusal_index.data.outcome_table import Group, write_outcomes
from refusal_index.data.rates import answerable_metrics, too_many_missing
from refusal_index.errors import OutcomeTableError, checked_path
from refusal_index.findings.headline import refused_by_answerable
from refusal_index.findings.imported import empty_replies
from refusal_index.findings.metrics import Printable, Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.stats import ContingencyTable, Estimate, metrics


@dataclass(frozen=True, repr=False)
class ScoredFiles(Printable):
    """The results of files: outcome tables, or graded answers of other tools."""

    run: RunResults | None  # the results of what has both passes; None without any
    outcomes: pl.DataFrame  # everything that was read, as an outcome table
    first_passes: tuple[Tally, ...] = ()  # the counts and rates of each first pass without forced answers
    read: tuple[tuple[str, FirstPasses], ...] = ()  # what was read from each file of another tool

    def __repr__(self) -> str:
        results = "no forced pass" if self.run is None else repr(self.run)
        return f"<ScoredFiles: {self.outcomes.height} answers, {results}>"

    def write(self, path: str | Path) -> None:
        """Write the outcome table to a file, which ends in .parquet, .csv or .jsonl; raises OSError if it cannot."""
        write_outcomes(self.outcomes, Path(path))


RunSource = RunResults | ScoredFiles | str | Path
"""What a run is read from: its folder, an outcome table, or the results of either."""


def source_of(run: RunSource, argument: str) -> Path | RunResults:
    """Return what `read_runs` reads a run from: its folder, or its outcomes if it was read from files.

    Raises RunFolderError for anything else, and OutcomeTableError for scored files without a forced pass.
    """
    if isinstance(run, ScoredFiles):
        if run.run is None:
            raise OutcomeTableError(
                f"{argument}: expected answers with a forced pass, got {run!r}; write them with write('FILE.parquet'), "
                "and name that file to compare the rates of the first pass"
            )
        run = run.run
    if isinstance(run, RunResults):
        return run.source if run.source.is_dir() else run
    return checked_path(run, argument)


FIRST_PASS_METRICS = ("correct_given_attempted", "f_score", "weighted_score")
"""The metrics that the first pass alone decides."""


@dataclass(frozen=True)
class Tally(Group):
    """The first passes of one model on one dataset under one prompt, counted."""

    # correct, incorrect, refused: how many were graded so
    correct: int
    incorrect: int
    refused: int
    unscored: int  # how many were not graded, or answered without a word on whether that is right
    reasons: Mapping[str, int]  # number of the unscored by reason
    to_force: int  # refused questions that a forced pass has to ask
    forced: int  # refused questions whose forced answer is there
    is_read: bool  # whether the file says what any reply was read as, so that refusals were looked for
    set_aside: int  # refused questions that are marked as wrong too, for the refusal or for a forced answer
    unused_grades: int  # grades of empty replies, which are not used
    gradable: int  # replies without a grade to questions with a gold answer
    right_without_answer: int  # questions without a right answer that are graded as answered correctly
    # those of `FIRST_PASS_METRICS`, of the graded questions; empty where so many are unscored that they would mislead
    metrics: tuple[Estimate, ...]
    by_answerable: tuple[Estimate, ...]  # those of `BY_ANSWERABLE`; empty unless some question has no right answer

    @property
    def rows(self) -> int:
        """All of them."""
        return self.correct + self.incorrect + self.refused + self.unscored

    @property
    def has_both_passes(self) -> bool:
        """Whether any refused question was forced, or none has to be: refusals were looked for, and none is missing."""
        return self.forced > 0 or (self.to_force == 0 and (self.refused > 0 or self.is_read))

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Caveats to print with the counts."""
        settled = self.refused - self.to_force - self.forced
        right = {"questions": self.right_without_answer}
        unscored = {"missing": self.unscored, "asked": self.rows, "reasons": self.reasons}
        split = refused_by_answerable([self.by_answerable])
        statements = (
            (split is not None, split),
            (self.unscored, Statement("unscored_questions", "note", unscored)),
            (self.unused_grades, empty_replies(self.unused_grades)),
            (not self.metrics, Statement("too_many_unscored", "serious")),
            (self.forced, Statement("already_forced", "note", {"questions": self.forced})),
            (self.set_aside, Statement("refused_and_wrong", "note", {"questions": self.set_aside})),
            (self.right_without_answer, Statement("right_without_answer", "serious", right)),
            (settled, Statement("no_right_answer", "note", {"questions": settled})),
            (not self.refused and self.metrics, Statement("none_refused", "serious")),
        )
        return tuple(statement for applies, statement in statements if applies and statement)


def tallies(passes: Iterable[FirstPass], analysis: Analysis = DEFAULT_ANALYSIS) -> tuple[Tally, ...]:
    """Count the first passes by model, dataset and variant, in order of appearance.

    - `passes`: the first passes.
    - `analysis`: how the metrics are computed.
    """
    groups: dict[tuple[str | None, str | None, str | None], list[FirstPass]] = {}
    for first_pass in passes:
        groups.setdefault((first_pass.model, first_pass.dataset, first_pass.variant), []).append(first_pass)
    return tuple(_tally(group, analysis) for group in groups.values())


def _tally(group: list[FirstPass], analysis: Analysis) -> Tally:
    grades = Counter(first_pass.grade for first_pass in group)
    correct, incorrect, refused = (grades[grade] for grade in (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED))
    unscored = [first_pass for first_pass in group if first_pass.grade in (None, Grade.UNSCORED)]
    # Forced answers only split the refused cells, which no first-pass metric uses.
    estimates = metrics(
        ContingencyTable(refused, 0, incorrect, correct), weighted_score_p=analysis.payoffs.weighted_score_p
    )
    by_name = {} if too_many_missing(len(unscored), len(group)) else {metric.name: metric for metric in estimates}
    answerable = [
        first_pass for first_pass in group if first_pass.grade is Grade.REFUSED and first_pass.question.gold is not None
    ]
    return Tally(
        *(group[0].model, group[0].dataset, group[0].variant),
        *(correct, incorrect, refused, len(unscored)),
        reasons=dict(Counter(first_pass.outcome().unscored_reason or "" for first_pass in unscored).most_common()),
        to_force=sum(first_pass.needs_forcing for first_pass in group),
        forced=sum(first_pass.forced is not None for first_pass in answerable),
        is_read=any(first_pass.reading is not None for first_pass in group),
        set_aside=sum(first_pass.set_aside is not None for first_pass in group),
        gradable=sum(
            first_pass.outcome().unscored_reason == NOT_GRADED
            and first_pass.reply is not None
            and first_pass.question.gold != NOT_KNOWN
            for first_pass in group
        ),
        unused_grades=sum(first_pass.unused_grades for first_pass in group),
        right_without_answer=sum(
            first_pass.grade is Grade.CORRECT and first_pass.question.gold is None for first_pass in group
        ),
        metrics=tuple(by_name[name] for name in FIRST_PASS_METRICS if name in by_name),
        by_answerable=_by_answerable(group, analysis),
    )


def _by_answerable(group: Sequence[FirstPass], analysis: Analysis) -> tuple[Estimate, ...]:
    refused = [None if first.grade is Grade.UNSCORED else first.grade is Grade.REFUSED for first in group]
    answerable = [first.answerable for first in group]
    rows = pl.DataFrame({"refused": refused, "answerable": answerable}).cast(pl.Boolean)
    split = answerable_metrics(rows, analysis)
    return split if split[0].estimate is not None else ()


COUNTS = ("correct", "incorrect", "refused", "unscored")


def tally_document(tally: Tally) -> dict[str, Any]:
    """Return a tally as a JSON-serialisable dictionary."""
    fields = ("estimate", "low", "high", "status")
    estimates = (*tally.metrics, *tally.by_answerable)
    return {
        **{name: getattr(tally, name) for name in ("model", "dataset", "variant")},
        "n": tally.rows,
        **{name: getattr(tally, name) for name in COUNTS},
        "reasons": dict(tally.reasons),
        "metrics": {metric.name: {name: getattr(metric, name) for name in fields} for metric in estimates},
        "force_requests": tally.to_force,
        "forced": tally.forced,
        "unused_grades": tally.unused_grades,
    }
