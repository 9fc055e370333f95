"""Every table, figure and proposition of the paper: what makes it here, and whether there is a recomputed value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Needs = Literal["nothing", "models", "prompts"]
"""Nothing but the printed numbers and this package; runs of models; the wording, which is not included."""


@dataclass(frozen=True)
class Item:
    """A part of the paper."""

    label: str  # in the paper's source
    title: str
    command: str  # that makes it, or shows the same
    needs: Needs
    printed: str = ""  # numbers in it that only models can give


ITEMS = (
    Item("tab:baseline_metrics", "Table: formulas of the baseline metrics", "refusal-index show RUN", "nothing"),
    Item("def:refusal_index", "Definition: Refusal Index", "refusal-index run --draws 2", "nothing"),
    Item("eq:copula", "Formula: rank correlation of a Gaussian copula", "refusal-index score FILE", "nothing"),
    Item("eq:ri-estimation", "Formula: maximum likelihood", "refusal-index score FILE", "nothing"),
    Item(
        "fig:refusal_index_illustration",
        "Figure: accuracy against refusal rate",
        "refusal-index study iso_refusal_index RUN",
        "models",
    ),
    Item("fig:two_pass_evaluation", "Figure: the two passes", "refusal-index run --dry-run", "nothing"),
    Item(
        "tab:qwen25_simpleqa_prompt_strategies",
        "Table: score variability across refusal rates",
        "refusal-index study score_variability RUN",
        "models",
    ),
    Item(
        "fig:acc_rej_plot_with_contour_lines",
        "Figure: curves of equal score",
        "refusal-index study accuracy_refusal_plane RUN",
        "models",
    ),
    Item(
        "fig:comparison_auroc",
        "Figure: metrics against the AUROC of P(Answering)",
        "refusal-index study auroc_correlation SAMPLES RUN",
        "models",
        "correlation of RI with the AUROC: 0.85, the highest of all metrics",
    ),
    Item("tab:ranking_stability", "Table: ranking stability", "refusal-index study ranking_stability RUN", "models"),
    Item(
        "fig:simpleqa_refusal_vs_accuracy_scatter",
        "Figure: RI against the correct answer rate",
        "refusal-index study index_and_accuracy RUN",
        "nothing",
    ),
    Item(
        "tab:hallu_model_comparison",
        "Table: hallucination benchmarks",
        "refusal-index study hallucination_table RUN",
        "models",
    ),
    Item(
        "fig:second_pass_prompt",
        "Figure: prompt of the forced pass",
        "refusal-index build paper-prompts PAPER --out DIR",
        "prompts",
    ),
    Item(
        "fig:first_pass_prompt_highest",
        "Figure: most cautious prompt",
        "refusal-index build paper-prompts PAPER --out DIR",
        "prompts",
    ),
    Item(
        "tab:first_pass_prompt_variants",
        "Table: first-pass prompts",
        "refusal-index build paper-prompts PAPER --out DIR",
        "prompts",
    ),
    Item(
        "fig:llm_grader_prompt",
        "Figure: the grader's prompt",
        "refusal-index build paper-prompts PAPER --out DIR",
        "prompts",
    ),
    Item("tab:copula_comparison", "Table: copula comparison", "refusal-index study copula_comparison RUN", "models"),
    Item("prop:1", "Proposition 1: endpoints", "refusal-index study iso_refusal_index RUN", "nothing"),
    Item("prop:2", "Proposition 2: monotonicity in rho", "refusal-index study iso_refusal_index RUN", "nothing"),
    Item(
        "fig:iso_ri_models",
        "Figure: curves of equal RI for six models",
        "refusal-index study iso_refusal_index RUN",
        "models",
    ),
    Item(
        "tab:simpleqa_model_comparison", "Table: results on SimpleQA", "refusal-index study results_table RUN", "models"
    ),
    Item(
        "fig:refusal_index_cv_subset",
        "Figure: variation over subsets of the questions",
        "refusal-index study sample_size RUN",
        "models",
    ),
    Item(
        "fig:prompt_acc_agreement",
        "Figure: agreement of prompts",
        "refusal-index study prompt_agreement RUN",
        "models",
        "agreement of two prompts on what both answer: more than 0.90",
    ),
    Item("fig:ri_implementation_code", "Figure: the program", "refusal-index score --rates FILE", "nothing"),
    Item(
        "tab:calibration_comparison", "Table: calibration methods", "refusal-index study calibrator_cost RUN", "nothing"
    ),
    Item(
        "fig:ece-comparison",
        "Figure: calibration of Qwen3-32B",
        "refusal-index study calibrator_comparison RUN",
        "models",
        "ECE of P(IK), APRICOT and P(Answering): 0.098, 0.039 and 0.122; AUROC of each above 0.91",
    ),
)
"""In the order of the paper."""

SECTIONS = {
    "sec:bg": "Text: background",
    "sec:refusal_index_validation": "Text: stability",
    "sec:discussion": "Text: discussion",
    "app:copula_validation": "Text: copula",
    "sec:impact_of_number_of_questions": "Text: number of questions",
    "app:external-calibration": "Text: calibration methods",
}
"""Sections whose text has claims, by label."""

TITLES = {**{item.label: item.title for item in ITEMS}, **SECTIONS}
