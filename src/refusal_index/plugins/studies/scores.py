"""What most studies start from: which run stands for a model, which variant for a run, metrics and the joint index.

Scores of confidence side by side: every method of a run on the same questions, and how methods are shown.

A method shows only beside others on questions that each of them has a score and a grade for. Which are shown follows
from that: those with the most questions first, then whichever leaves enough of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from refusal_index.data.confidence import is_trained, scores_by_method
from refusal_index.data.rates import contingency_table, variant_metrics
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import draw_matrix, first_draws
from refusal_index.findings.draws import joint_index, p_answering, usable_questions
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions, study_text
from refusal_index.render.format import abridged
from refusal_index.stats import ContingencyTable, Estimate, refusal_index
from refusal_index.stats.baseline import Payoffs

INDEX = "refusal_index"

COMPARED = ("correct_rate", "refusal_rate", "correct_given_attempted", "f_score", "weighted_score", INDEX)
"""The metrics of the paper's tables, in their order."""

ALL = "all"
"""What the only variant of outcomes without names of variants is called."""


@dataclass(frozen=True)
class VariantScores:
    """One variant of a run."""

    variant: str  # its name
    table: ContingencyTable  # counts of the scored questions, first draws only
    metrics: Mapping[str, Estimate]  # by name
    unscored: int  # questions without a grade


@dataclass(frozen=True)
class RunIndex:
    """The Refusal Index of a run over all its variants: the joint estimate, or that of its only variant."""

    index: Estimate  # the number
    mean: float | None  # the mean of the variants' own indices, as the paper averages; None where none is defined
    variants: int  # how many variants entered


def variant_scores(run: ComparedRun, options: StudyOptions) -> tuple[VariantScores, ...]:
    """Return every metric of every variant, in the order of the run."""
    return tuple(
        _variant_scores(variant or ALL, first_draws(outcomes), options) for variant, outcomes in run.variants.items()
    )


def run_index(run: ComparedRun, options: StudyOptions) -> RunIndex:
    """Estimate the Refusal Index of a run over all its variants."""
    own = [scores.metrics[INDEX] for scores in variant_scores(run, options)]
    defined = [one.estimate for one in own if one.estimate is not None]
    mean = fmean(defined) if defined else None
    joint = joint_index(list(run.variants.values()), options.confidence_level)
    if joint is None:
        return RunIndex(own[0], mean, len(defined))
    return RunIndex(joint.index, mean, len(own) - len(joint.result.left_out))


def mean_of(scores: Sequence[VariantScores], name: str) -> float | None:
    """Return the mean of a metric over the variants in which it is defined; None where there is none."""
    values = [one.metrics[name].estimate for one in scores]
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def of_one_dataset(runs: Sequence[ComparedRun]) -> tuple[tuple[ComparedRun, ...], tuple[str, ...]]:
    """Keep the runs on the dataset that most of them share, the first of several; say which are left out.

    What is kept is called by its model where that tells it apart, since all are on one dataset. Raises NotPossibleError
    if there are no runs.
    """
    if not runs:
        raise NotPossibleError("It needs one run or more.")
    counted = Counter(run.dataset for run in runs)
    chosen = max(counted, key=lambda dataset: counted[dataset])
    left_out = [run.label for run in runs if run.dataset != chosen]
    note = study_text("shared", "one_dataset", dataset=dataset_name(chosen), left_out=abridged(left_out))
    kept = [run for run in runs if run.dataset == chosen]
    models = Counter(run.model for run in kept)
    named = (replace(run, label=run.model) if run.model and models[run.model] == 1 else run for run in kept)
    return tuple(named), (note,) if left_out else ()


def dataset_name(dataset: str | None) -> str:
    """Return what to call a dataset that may have no name."""
    return dataset or "a dataset without a name"


def level_text(options: StudyOptions) -> str:
    """Return the confidence level as a caption says it, ``95 %``."""
    return f"{options.confidence_level * 100:g} %"


def questions_text(runs: Sequence[ComparedRun]) -> str:
    """Say how many questions the runs asked, ``1,000 questions``."""
    asked = sorted({outcomes["question_id"].n_unique() for run in runs for outcomes in run.variants.values()})
    return f"{asked[0]:,} questions" if len(asked) == 1 else f"{asked[0]:,} to {asked[-1]:,} questions"


def caption(name: str, options: StudyOptions, runs: Sequence[ComparedRun] = (), /, **values: Any) -> str:
    """Fill in the caption of a study.

    - `runs`: whose dataset and number of questions the caption names.
    - `values`: what it names besides these, the confidence level and the penalty.
    """
    if runs:
        values |= {"dataset": dataset_name(runs[0].dataset), "questions": questions_text(runs)}
    return study_text(name, level=level_text(options), penalty=f"{options.penalty:g}", **values)


def _variant_scores(variant: str, outcomes: pl.DataFrame, options: StudyOptions) -> VariantScores:
    table = contingency_table(outcomes)
    found = variant_metrics(outcomes, Payoffs(options.penalty), options.confidence_level)
    return VariantScores(variant, table, {one.name: one for one in found}, outcomes.height - table.n)


@dataclass(frozen=True)
class DefinedTable:
    """One variant of a run whose Refusal Index is defined: what to call the run, the variant, and its counts."""

    run: ComparedRun
    name: str
    variant: str | None
    table: ContingencyTable

    @property
    def where(self) -> dict[str, str | None]:
        """The columns that say whose row it is."""
        return {"model": self.name, "dataset": self.run.dataset, "variant": self.variant or ALL}


def chosen_runs(runs: Sequence[ComparedRun]) -> tuple[tuple[ComparedRun, ...], tuple[str, ...]]:
    """Pick one run of each model and dataset, the one with the most graded questions, and say what is left out.

    - returned `chosen`: in the order of the runs.
    - returned `notes`: a sentence for each run left out.
    """
    best: dict[tuple[str, str | None], ComparedRun] = {}
    for run in runs:
        key = model_name(run), run.dataset
        if key not in best or _graded(run) > _graded(best[key]):
            best[key] = run
    notes = (
        f"{run.label} is left out: {best[model_name(run), run.dataset].label} has no fewer graded questions of the "
        "same model and dataset."
        for run in runs
        if best[model_name(run), run.dataset] is not run
    )
    return tuple(run for run in runs if best[model_name(run), run.dataset] is run), tuple(notes)


def model_name(run: ComparedRun) -> str:
    """Return what to call a run's model."""
    return run.model or run.label


def display_names(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Return what to call each run: its model, where that says it, else its label."""
    names = [model_name(run) for run in runs]
    return tuple(run.label if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True))


def reference_variant(run: ComparedRun) -> str | None:
    """Return the variant that stands for a run where one has to: ``normal``, else the first."""
    return "normal" if "normal" in run.variants else next(iter(run.variants))


def table_of(run: ComparedRun, variant: str | None) -> ContingencyTable:
    """Count the first draws of one variant."""
    return contingency_table(first_draws(run.variants[variant]))


def defined_tables(
    runs: Sequence[ComparedRun], *, only_reference: bool = False
) -> tuple[list[DefinedTable], tuple[str, ...]]:
    """Count every variant of some runs, or the one that stands for each, and say which has no index.

    - returned `tables`: those whose Refusal Index is defined.
    - returned `notes`: a sentence for each of the others.
    """
    tables, notes = [], []
    for run, name in zip(runs, display_names(runs), strict=True):
        for variant in [reference_variant(run)] if only_reference else run.variants:
            table = table_of(run, variant)
            found = refusal_index(table)
            if found.status == "undefined":
                notes.append(f"{name}, {variant or ALL} is left out: its index is undefined ({found.reason}).")
            else:
                tables.append(DefinedTable(run, name, variant, table))
    return tables, tuple(notes)


def _graded(run: ComparedRun) -> int:
    return sum(table_of(run, variant).n for variant in run.variants)


FEWEST = 50
"""Questions that a further method must leave for the comparison, or half of what there is where that is less."""

P_ANSWERING, TOPIC = "p-answering", "topic"

LABELS: Mapping[str, str] = {
    P_ANSWERING: "P(Answering)",
    "p-ik": "P(IK)",
    "p-true": "P(True)",
    "apricot": "APRICOT",
    TOPIC: "topic alone",
    "likelihood-platt": "likelihood, Platt",
    "likelihood-isotonic": "likelihood, isotonic",
    "verbalised-number-after": "number, asked after",
    "verbalised-words-after": "words, asked after",
}
"""What figures call methods where it is not their own name."""

Key = tuple[str, str | None, str | None]
"""Method, variant and pass."""


@dataclass(frozen=True, eq=False)
class ScoredMethod:
    """The scores of one method for n questions, in the order of their run."""

    method: str
    variant: str | None  # whose first passes the scores are made of; None where they belong to all
    of: str | None  # the pass of the answers that were scored, as the column `pass` has it
    is_trained: bool  # whether a predictor that was trained on the other folds gave them
    score: NDArray[np.float64]
    right: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """The methods of a run on the questions that all of them score."""

    run: ComparedRun
    name: str
    question_ids: tuple[str, ...]
    methods: tuple[ScoredMethod, ...]
    left_out: int  # questions that some of these methods score, and not all


def scored_run(run: ComparedRun, name: str) -> tuple[ScoredRun | None, tuple[str, ...]]:
    """Put the scores of a run side by side.

    Of a method whose scores differ between prompt variants, those of the variant that stands for the run are taken.

    - `run`, `name`: the run, and what to call it.
    - returned `scored`: None where no method orders anything, as where all answers are right.
    - returned `notes`: what was left out, a sentence each.
    """
    chosen = _chosen(run)
    rows = {key: one.drop_nulls(["confidence", "wrong"]) for key, one in chosen.items()}
    questions = {key: set(one["question_id"]) for key, one in rows.items()}
    most = max(map(len, questions.values()), default=0)
    shown: list[Key] = []
    shared: set[str] = set()
    notes: list[str] = []
    for key in sorted(rows, key=lambda one: -len(questions[one])):
        both = questions[key] & shared if shown else questions[key]
        reason = _too_few(chosen[key], rows[key].filter(pl.col("question_id").is_in(both)), most)
        if reason is None:
            shown, shared = [*shown, key], both
        else:
            notes.append(f"{name}: {label(key[0])} is left out: {reason}.")
    if not shown:
        return None, tuple(notes)
    order = [one for one in rows if one in shown]
    ids = tuple(one for one in rows[order[0]]["question_id"].unique(maintain_order=True) if one in shared)
    left_out = len(set[str]().union(*(questions[one] for one in shown))) - len(ids)
    if left_out:
        notes.append(
            f"{name}: {left_out:,} questions are left out, which not every method shown has a score and a grade for."
        )
    return ScoredRun(run, name, ids, tuple(_method(one, rows[one], ids) for one in order), left_out), tuple(notes)


def _chosen(run: ComparedRun) -> dict[Key, pl.DataFrame]:
    """Keep of each method the scores that belong to all variants, else those of the one that stands for the run."""
    found: dict[str, tuple[Key, pl.DataFrame]] = {}
    groups = {} if run.confidence is None else scores_by_method(run.confidence)
    stands = reference_variant(run)
    for key, rows in groups.items():
        method, variant, _ = key
        if method not in found or (variant == stands and found[method][0][1] not in {None, stands}):
            found[method] = key, rows
    return dict(found.values())


def _too_few(rows: pl.DataFrame, usable: pl.DataFrame, most: int) -> str | None:
    """Say why a method cannot be shown; None where it can."""
    without = rows["confidence"].null_count()
    if without == rows.height:
        return f"no score in {without:,} of {rows.height:,} replies"
    if usable.is_empty():
        return "no question has its score and a grade, and those of the others"
    if usable["wrong"].n_unique() < 2:
        return f"all {usable.height:,} answers are {'wrong' if usable['wrong'][0] else 'right'}"
    if usable.height < min(FEWEST, most / 2):
        return f"it shares {usable.height:,} questions with the others, of {most:,}"
    return None


def _method(key: Key, rows: pl.DataFrame, ids: Sequence[str]) -> ScoredMethod:
    held = pl.DataFrame({"question_id": ids}).join(rows, on="question_id", how="left", maintain_order="left")
    return ScoredMethod(*key, is_trained(held), held["confidence"].to_numpy(), ~held["wrong"].to_numpy())


def drawn_run(run: ComparedRun, name: str) -> ScoredRun | None:
    """Score a run without scores by P(Answering), from the variant with the most draws; None where it has none."""
    found = {variant: draw_matrix(outcomes) for variant, outcomes in run.variants.items()}
    draws = {variant: len(matrix.refused) for variant, matrix in found.items()}
    variant = max(draws, key=lambda one: (draws[one], one == "normal"))
    if draws[variant] < 2:
        return None
    matrix = found[variant]
    score, right = p_answering(matrix)
    ids = tuple(one for one, usable in zip(matrix.question_ids, usable_questions(matrix), strict=True) if usable)
    return ScoredRun(run, name, ids, (ScoredMethod(P_ANSWERING, variant, "forced", False, score, right),), 0)


def same_answers(scored: ScoredRun) -> tuple[ScoredRun, tuple[str, ...]]:
    """Keep the methods that score the same answers: those of the most of them, with the same grade of each.

    - returned `notes`: a sentence on the others, such as a method that answers by itself along with its score.
    """
    kinds = [one.right.tobytes() for one in scored.methods]
    most = max(kinds, key=kinds.count)
    others = [label(one.method) for one, kind in zip(scored.methods, kinds, strict=True) if kind != most]
    kept = tuple(one for one, kind in zip(scored.methods, kinds, strict=True) if kind == most)
    run = ScoredRun(scored.run, scored.name, scored.question_ids, kept, scored.left_out)
    note = f"{scored.name}: left out, since they score other answers than the rest: {', '.join(others)}."
    return run, (note,) if others else ()


def label(method: str) -> str:
    """Return what to call a method.

    >>> label("p-ik"), label("likelihood")
    ('P(IK)', 'likelihood')
    """
    return LABELS.get(method, method)


def score_texts(frame: pl.DataFrame, variant: str) -> dict[str, str]:
    """Return what captions say of scores: questions by model, and whose prompts the scores are of.

    - `frame`: one or more rows of each method.
    - `variant`: the column of the prompt that scores are of; null where they belong to all prompts.
    """
    models = frame.unique(["model", "dataset"], maintain_order=True)
    whose = frame.drop_nulls(variant).unique(["model", "method"], maintain_order=True)
    return {
        "data": abridged(
            [f"{model}, {questions:,} questions" for model, questions in models["model", "questions"].rows()]
        ),
        "prompts": abridged([f"{label(method)} {prompt}" for method, prompt in whose["method", variant].rows()]),
    }


def short_labels(methods: Sequence[str], longest: int = 20) -> dict[str, str]:
    """Give every method a label that fits, as Matplotlib shows it."""
    named = {method: label(method) for method in methods}
    short = style.short_names(list(named.values()), longest)
    return {method: short[name] for method, name in named.items()}


def method_colours(methods: Iterable[str]) -> dict[str, str]:
    """Give every method its colour, by order of appearance; the topic-only baseline is grey."""
    distinct = list(dict.fromkeys(methods))
    coloured = style.model_colours([one for one in distinct if one != TOPIC])
    return {one: coloured.get(one, style.LIGHT) for one in distinct}


def line_style(method: str, *, is_trained: bool) -> str:
    """Return the line of a method: dashed where it was trained, dotted for the topic-only baseline."""
    return ":" if method == TOPIC else "--" if is_trained else "-"


def method_handles(frame: pl.DataFrame, *, are_filled: bool = False) -> list[Line2D]:
    """Return what a legend shows of methods: unless all are filled, open where a predictor was trained."""
    trained = dict(frame.group_by("method", maintain_order=True).agg(pl.col("trained").any()).iter_rows())
    names, colours, markers = short_labels(list(trained)), method_colours(trained), style.model_markers(list(trained))
    return [
        style.handle(
            *(names[method], colours[method], markers[method], line_style(method, is_trained=is_open)),
            face=style.PAPER if is_open and not are_filled else None,
        )
        for method, is_open in trained.items()
    ]


def with_ends(estimates: Mapping[str, Estimate]) -> dict[str, float | None]:
    """Return the columns of some estimates: ``NAME``, ``NAME_low`` and ``NAME_high``."""
    columns: dict[str, float | None] = {}
    for name, found in estimates.items():
        columns |= {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}
    return columns
