"""Scores of confidence side by side: every method of a run on the same questions, and how methods are shown.

A method shows only beside others on questions that each of them has a score and a grade for. Which are shown follows
from that: those with the most questions first, then whichever leaves enough of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from refusal_index.data.outcome_table import is_trained, scores_by_method
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import draw_matrix
from refusal_index.findings.draws import p_answering, usable_questions
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import reference_variant
from refusal_index.render.format import abridged

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
