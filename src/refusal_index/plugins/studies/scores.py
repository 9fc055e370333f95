"""Confidence scores side by side, and the prompts that a threshold on a score beats.

Methods are compared on questions for which each of them has a score and a grade. This determines which are shown: those
with the most questions first, then others that leave enough questions in common.

Refusing the questions with the lowest scores gives a curve over all refusal rates. A prompt's own refusals are one
point, on the same questions and forced answers. If it lies below the curve, the threshold gives more right answers at
the same refusal rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from refusal_index.data.outcome_table import is_trained, scores_by_method
from refusal_index.data.rates import draw_matrix, first_draws
from refusal_index.findings.draws import p_answering, usable_questions
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, style
from refusal_index.plugins.studies.curves import empirical_accuracy_refusal_curve
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study
from refusal_index.render.format import abridged
from refusal_index.stats import Estimate, compare_with_refusals
from refusal_index.stats.intervals import normal_quantile, wilson_interval

MIN_QUESTIONS = 50
"""Minimum number of common questions after adding a method, or half of all if that is less."""

P_ANSWERING = "p-answering"
TOPIC = "topic"

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
"""Names of methods in figures, if they differ from the methods' own names."""

Key = tuple[str, str | None, str | None]
"""Method, variant and pass."""


@dataclass(frozen=True, eq=False)
class ScoredMethod:
    """The scores of one method for n questions, in the order of their run."""

    method: str
    variant: str | None  # the variant of the first passes from which scores are computed; None if they apply to all
    is_trained: bool  # whether the scores come from a predictor trained on the other folds
    score: NDArray[np.float64]
    right: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """The methods of a run on the questions that all of them score."""

    run: RunResults
    name: str
    question_ids: tuple[str, ...]
    methods: tuple[ScoredMethod, ...]
    left_out: int  # number of questions that some but not all of these methods score


def scored_run(run: RunResults, name: str) -> tuple[ScoredRun | None, tuple[str, ...]]:
    """Return the scores of a run on the questions that its methods have in common.

    If scores of a method differ between prompt variants, those of the run's reference variant are used.

    - `run`, `name`: the run and its display name.
    - returned `scored`: None if no method has right and wrong answers to rank.
    - returned `notes`: sentences on what was left out.
    """
    groups = {} if run.confidence is None else scores_by_method(run.confidence)
    keys: dict[str, Key] = {}
    reference = inputs.reference_variant(run)
    for key in groups:
        if key[0] not in keys or (key[1] == reference and keys[key[0]][1] not in {None, reference}):
            keys[key[0]] = key
    chosen = {key: groups[key] for key in keys.values()}
    rows = {key: table.drop_nulls(["confidence", "wrong"]) for key, table in chosen.items()}
    questions = {key: set(table["question_id"]) for key, table in rows.items()}
    n_questions = max(map(len, questions.values()), default=0)
    shown: list[Key] = []
    shared: set[str] = set()
    notes: list[str] = []
    for key in sorted(rows, key=lambda item: -len(questions[item])):
        both = questions[key] & shared if shown else questions[key]
        reason = _too_few(chosen[key], rows[key].filter(pl.col("question_id").is_in(both)), n_questions)
        if reason is None:
            shown = [*shown, key]
            shared = both
        else:
            notes.append(f"{name}: {label(key[0])} is left out: {reason}.")
    if not shown:
        return None, tuple(notes)
    order = [item for item in rows if item in shown]
    ids = tuple(
        question_id
        for question_id in rows[order[0]]["question_id"].unique(maintain_order=True)
        if question_id in shared
    )
    left_out = len(set[str]().union(*(questions[item] for item in shown))) - len(ids)
    if left_out:
        notes.append(
            f"{name}: {left_out:,} questions are left out, which not every method shown has a score and a grade for."
        )
    methods = []
    for key in order:
        of_ids = pl.DataFrame({"question_id": ids})
        joined = of_ids.join(rows[key], on="question_id", how="left", maintain_order="left")
        right = ~joined["wrong"].to_numpy()
        methods.append(ScoredMethod(key[0], key[1], is_trained(joined), joined["confidence"].to_numpy(), right))
    return ScoredRun(run, name, ids, tuple(methods), left_out), tuple(notes)


def _too_few(rows: pl.DataFrame, usable: pl.DataFrame, n_questions: int) -> str | None:
    """Return why a method cannot be shown, None if it can."""
    without = rows["confidence"].null_count()
    if without == rows.height:
        return f"no score in {without:,} of {rows.height:,} replies"
    if usable.is_empty():
        return "no question has its score and a grade, and those of the others"
    if usable["wrong"].n_unique() < 2:
        return f"all {usable.height:,} answers are {'wrong' if usable['wrong'][0] else 'right'}"
    if usable.height < min(MIN_QUESTIONS, n_questions / 2):
        return f"it shares {usable.height:,} questions with the others, of {n_questions:,}"
    return None


def drawn_run(run: RunResults, name: str) -> ScoredRun | None:
    """Score a run by P(Answering), from the variant with the most draws; None without repeated draws."""
    matrices = {variant: draw_matrix(outcomes) for variant, outcomes in run.tables.items()}
    draws = {variant: len(matrix.refused) for variant, matrix in matrices.items()}
    variant = max(draws, key=lambda candidate: (draws[candidate], candidate == "normal"))
    if draws[variant] < 2:
        return None
    matrix = matrices[variant]
    score, right = p_answering(matrix)
    ids = matrix.of_questions(usable_questions(matrix)).question_ids
    method = ScoredMethod(P_ANSWERING, variant, is_trained=False, score=score, right=right)
    return ScoredRun(run, name, ids, (method,), left_out=0)


def same_answers(scored: ScoredRun) -> tuple[ScoredRun, tuple[str, ...]]:
    """Keep the largest set of methods that score the same answers, with identical grades.

    - returned `notes`: a sentence on the others, such as methods whose replies contain their own answers.
    """
    kinds = [method.right.tobytes() for method in scored.methods]
    most_common = max(kinds, key=kinds.count)
    others = [label(method.method) for method, kind in zip(scored.methods, kinds, strict=True) if kind != most_common]
    methods = tuple(method for method, kind in zip(scored.methods, kinds, strict=True) if kind == most_common)
    note = f"{scored.name}: left out, since they score other answers than the rest: {', '.join(others)}."
    return replace(scored, methods=methods), (note,) if others else ()


def label(method: str) -> str:
    """Return the display name of a method.

    >>> label("p-ik"), label("likelihood")
    ('P(IK)', 'likelihood')
    """
    return LABELS.get(method, method)


def score_texts(frame: pl.DataFrame, variant: str) -> dict[str, str]:
    """Return the caption values for scores: questions per model, and the prompts of the scores.

    - `frame`: table with one or more rows of each method.
    - `variant`: the column with the prompt variant of the scores, null if they apply to all variants.
    """
    models = frame.unique(["model", "dataset"], maintain_order=True)
    distinct = frame.drop_nulls(variant).unique(["model", "method"], maintain_order=True)
    return {
        "data": abridged(
            [f"{model}, {questions:,} questions" for model, questions in models["model", "questions"].rows()]
        ),
        "prompts": abridged([f"{label(method)} {prompt}" for method, prompt in distinct["method", variant].rows()]),
    }


def method_colours(methods: Iterable[str]) -> dict[str, str]:
    """Return the colour of each method, by order of appearance; the topic-only baseline is grey."""
    distinct = list(dict.fromkeys(methods))
    coloured = style.model_colours([method for method in distinct if method != TOPIC])
    return {method: coloured.get(method, style.LIGHT) for method in distinct}


@dataclass(frozen=True)
class MethodLook:
    """Appearance of a method: open markers and dashed lines for trained predictors, dotted for the topic alone."""

    label: str
    colour: str
    marker: str
    line: str
    face: str | None  # the fill colour of its markers; None for its own colour


def method_looks(frame: pl.DataFrame) -> dict[str, MethodLook]:
    """Return the appearance of each method in a frame, in order of appearance."""
    trained = dict(frame.group_by("method", maintain_order=True).agg(pl.col("trained").any()).iter_rows())
    named = {method: label(method) for method in trained}
    short = style.short_names(list(named.values()), 20)
    colours = method_colours(trained)
    markers = [marker for _, marker in style.model_looks(list(trained)).values()]
    return {
        method: MethodLook(
            *(short[named[method]], colours[method], marker),
            line=":" if method == TOPIC else "--" if is_open else "-",
            face=style.PAPER if is_open else None,
        )
        for (method, is_open), marker in zip(trained.items(), markers, strict=True)
    }


def method_handles(frame: pl.DataFrame, *, are_filled: bool = False) -> list[Line2D]:
    """Return the legend entries of methods, with open markers for trained predictors."""
    return [
        style.handle(look.label, look.colour, look.marker, look.line, face=None if are_filled else look.face)
        for look in method_looks(frame).values()
    ]


BEATEN = "beaten"
BEATS = "beats the score"
NOT_TOLD = "not told"
"""Results of comparing a prompt's refusals with a score."""

POINTS = 200
"""Maximum number of points of a curve, in addition to its ends."""

SCHEMA = schema(
    "model dataset part method scores_of variant trained questions accuracy refusal_rate correct_rate low high "
    "by_score difference difference_low difference_high cut verdict status reason"
)
"""`part` is ``curve``, ``refusals`` or ``comparison``; `correct_rate` is by the score for a curve, else by refusals."""


@study
def score_or_refusal(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has scores and refusals to compare."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for run, name in zip(runs, inputs.display_names(runs), strict=True):
        if run.confidence is None:
            continue
        run_scored, further = scored_run(run, name)
        notes += further
        if run_scored is None:
            continue
        scored, others = same_answers(run_scored)
        notes += others
        made = list(run_rows(scored, options))
        silent = [row["variant"] for row in made if row["part"] == "refusals" and row["refusal_rate"] in {0, 1}]
        if silent:
            notes.append(f"{name}: nothing to compare under {abridged(silent)}, which refused no question or all.")
        if any(row["part"] == "comparison" for row in made):
            rows += made
    if not rows:
        raise NotPossibleError(notes=notes)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    compared = frame.filter(part="comparison")
    return Study(
        frame,
        draw,
        style.table(PRINTED, part="comparison"),
        notes,
        values={
            "comparisons": compared.height,
            "beaten": compared.filter(verdict=BEATEN).height,
            "beats": compared.filter(verdict=BEATS).height,
            "crowded": compared.height > MAX_INTERVALS,
            **score_texts(frame.filter(pl.col("part") != "refusals"), "scores_of"),
        },
    )


def run_rows(scored: ScoredRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the curve of each score, the point of each variant's refusals, and each score against each variant.

    - `scored`: a run whose methods all score the same answers.
    - `options`: confidence level of the intervals.
    """
    right = scored.methods[0].right
    level = options.analysis.confidence_level
    where = {"model": scored.name, "dataset": scored.run.dataset, "accuracy": float(right.mean())}
    of_methods = [
        {"method": method.method, "scores_of": method.variant, "trained": method.is_trained}
        for method in scored.methods
    ]
    for method, labels in zip(scored.methods, of_methods, strict=True):
        refused_rates, correct_rates = empirical_accuracy_refusal_curve(method.score, method.right)
        n = refused_rates.size
        for index in np.unique(np.linspace(0, n - 1, min(n, POINTS + 2)).round().astype(int)):
            rates = {"refusal_rate": float(refused_rates[index]), "correct_rate": float(correct_rates[index])}
            yield {**where, **labels, "part": "curve", "questions": method.right.size, **rates}
    ids = pl.DataFrame({"question_id": scored.question_ids})
    for variant, outcomes in scored.run.tables.items():
        first = first_draws(outcomes).select("question_id", "refused")
        every = ids.join(first, on="question_id", how="left", maintain_order="left")["refused"]
        is_known = every.is_not_null().to_numpy()
        refused = every.drop_nulls().to_numpy()
        if not is_known.any():
            continue
        named = {**where, "variant": variant or inputs.ALL, "questions": refused.size}
        hits = int((right[is_known] & ~refused).sum())
        refusal_rate = float(refused.mean())
        low, high = wilson_interval(hits, refused.size, normal_quantile(level))
        rates = {"refusal_rate": refusal_rate, "correct_rate": hits / refused.size}
        yield {**named, "part": "refusals", **rates, "low": low, "high": high}
        for method, labels in zip(scored.methods, of_methods, strict=True):
            comparison = compare_with_refusals(method.score[is_known], refused, ~method.right[is_known])
            if comparison.cut is None:
                continue  # the variant refused no question, or all
            difference = comparison.correct_rate
            gain = Estimate.of(difference, difference.confidence_interval(level))
            verdict = NOT_TOLD
            if gain.low is not None and gain.high is not None:
                verdict = BEATEN if gain.low > 0 else BEATS if gain.high < 0 else NOT_TOLD
            yield {
                **named,
                **labels,
                "part": "comparison",
                "refusal_rate": refusal_rate,
                "correct_rate": difference.refusals,
                "by_score": difference.score,
                **inputs.with_ends({"difference": gain}),
                "cut": comparison.cut,
                "verdict": verdict,
                "status": gain.status,
                "reason": gain.reason,
            }


PRINTED: Mapping[str, str | style.Cell] = {
    "model": "model",
    "variant": "variant",
    "score": lambda row: label(row["method"]) + (f", {row['scores_of']}" if row["scores_of"] else ""),
    "questions": "questions",
    "refused": style.fixed("refusal_rate"),
    "right by refusals": style.fixed("correct_rate"),
    "right by score": style.fixed("by_score"),
    "difference": style.ranged("difference"),
    "refusals are": "verdict",
}


MAX_INTERVALS = 40
"""Maximum number of comparisons drawn with intervals; the frame always contains them."""


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel per run with curves and refusals, and below them the gain of each score over each variant."""
    models = frame["model"].unique(maintain_order=True).to_list()
    compared = frame.filter(part="comparison")
    bands = compared.select("model", "variant").unique(maintain_order=True)
    looks = method_looks(compared)
    alone = len(models) == 1
    planes = 3.1 if alone else 2.1 * math.ceil(len(models) / style.PANELS_A_ROW)
    band = max(0.3, 0.1 * len(looks)) if compared.height <= MAX_INTERVALS else 0.27
    gains = 0.7 + band * bands.height
    above, below = style.stacked(
        figure, style.WIDTH * (1 if alone else 1.2), planes, gains, "Refusal rate", "Correct rate"
    )
    names = style.short_names(models, 22)
    titles = [""] if alone else [names[model] for model in models]
    panels = style.panel_grid(above, titles, style.PANELS_A_ROW, sharex=True, sharey=True)
    for panel, model in zip(panels, models, strict=True):
        _draw_plane(panel, frame.filter(model=model), looks)
    panels[0].set(xlim=(-0.02, 1.02), ylim=(0, None))
    _draw_gains(below.subplots(), compared, bands, looks)
    variants = frame.filter(part="refusals")["variant"].unique(maintain_order=True).to_list()
    handles = [
        style.handle(f"refusals, {style.safe_text(variant, 12)}", style.INK, "o", face=colour, markersize=5)
        for variant, colour in style.variant_colours(variants).items()
    ]
    style.outside_legend(figure, [*method_handles(compared, are_filled=True), *handles])


def _draw_plane(panel: Axes, part: pl.DataFrame, looks: Mapping[str, MethodLook]) -> None:
    accuracy = part["accuracy"][0]
    # Bounds for all orders of the questions, errors first and right answers first, and the line of random orders.
    panel.plot([0, 1 - accuracy, 1], [accuracy, accuracy, 0], color=style.PALE, linewidth=0.9, zorder=1)
    panel.plot([0, 1], [accuracy, 0], color=style.PALE, linewidth=0.9, linestyle="--", zorder=1)
    for (method,), curve in part.filter(part="curve").group_by("method", maintain_order=True):
        look = looks[str(method)]
        panel.plot(curve["refusal_rate"], curve["correct_rate"], color=look.colour, linestyle=look.line, lw=1.1)
    points = part.filter(part="refusals")
    variants = style.variant_colours(points["variant"].to_list())
    for row in points.iter_rows(named=True):
        style.mark(
            panel,
            row["refusal_rate"],
            row["correct_rate"],
            style.INK,
            ys=style.ends(row),
            face=variants[row["variant"]],
            size=6.5,
            width=0.9,
            zorder=5,
        )
    panel.grid(visible=False)


def _draw_gains(panel: Axes, compared: pl.DataFrame, bands: pl.DataFrame, looks: Mapping[str, MethodLook]) -> None:
    """Draw the difference in right answers in a band per variant, filled if the interval excludes 0."""
    panel.axvline(0, color=style.PALE, linewidth=1, zorder=1)
    with_intervals = compared.height <= MAX_INTERVALS
    spread = 0.8 if with_intervals else 0.4
    for position, (model, variant) in enumerate(bands.iter_rows()):
        part = compared.filter(model=model, variant=variant)
        for turn, row in enumerate(part.iter_rows(named=True)):
            height = position + spread * ((turn + 0.5) / part.height - 0.5)
            look = looks[row["method"]]
            xs = style.ends(row, "difference") if with_intervals else None
            face = style.PAPER if row["verdict"] == NOT_TOLD else None
            style.mark(panel, row["difference"], height, look.colour, look.marker, xs=xs, face=face, width=1)
    models = style.short_names(bands["model"].to_list(), 22)
    alone = bands["model"].n_unique() == 1
    names = ((models[model], style.safe_text(variant, 12)) for model, variant in bands.iter_rows())
    style.name_rows([panel], [variant if alone else f"{model}, {variant}" for model, variant in names], 6.5)
    for position in range(1, bands.height):
        panel.axhline(position - 0.5, color="#ececec", linewidth=0.6, zorder=0)
    title = "Right answers by the score, less those by the refusals"
    panel.set(title=title, xlabel="share of all questions, with as many refused")
