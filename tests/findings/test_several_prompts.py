"""What several prompts say together: how far they lie apart, and when that is serious."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtri
from tests.render.making import report_run

from refusal_index.data.outcome_table import SCHEMA
from refusal_index.findings.conclusions import doubts, joint
from refusal_index.findings.draws import LARGE_SPREAD, PooledSummary
from refusal_index.findings.summary import Summary, summarise
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_document
from refusal_index.runs.writing import as_json
from refusal_index.stats import Estimate, HomogeneityTest, joint_refusal_index

BEYOND_CHANCE = HomogeneityTest(40.0, 3.0, 1e-8, "ok", None)
CHANCE = HomogeneityTest(2.0, 3.0, 0.57, "ok", None)


def tables(rhos: tuple[float, ...], n: int = 3000, error_rate: float = 0.5, seed: int = 1) -> pl.DataFrame:
    """Outcomes of prompts with an index each, over the same questions."""
    error, noise = np.random.default_rng(seed).standard_normal((2, n))
    names = [f"v{number}" for number in range(len(rhos))]
    rates = np.linspace(0.35, 0.65, len(rhos))
    frames = [
        pl.DataFrame(
            {
                "model": "m",
                "dataset": "d",
                "variant": name,
                "question_id": [str(i) for i in range(n)],
                "draw": 0,
                "refused": rho * error + math.sqrt(1 - rho**2) * noise > -ndtri(rate),
                "wrong": error > -ndtri(error_rate),
            }
        )
        for name, rho, rate in zip(names, rhos, rates, strict=True)
    ]
    return pl.concat(frames)


def pooled_of(rhos: tuple[float, ...], **options: float) -> PooledSummary:
    (pooled,) = summary_of(rhos, **options).pooled
    return pooled


def summary_of(rhos: tuple[float, ...], **options: float) -> Summary:
    return summarise(completed(tables(rhos, **options)))


def completed(table: pl.DataFrame) -> pl.DataFrame:
    """Add the columns that no number needs."""
    others = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in table.columns]
    return table.with_columns(others).select(list(SCHEMA)).cast(dict(SCHEMA))


def with_spread(estimate: float, high: float, test: HomogeneityTest) -> PooledSummary:
    between = Estimate(estimate, 0.0 if test is CHANCE else estimate / 2, high)
    return replace(pooled_of((0.5, 0.5)), between_prompts=between, homogeneity=test)


def test_spread_and_new_prompt_are_those_of_stats() -> None:
    table = tables((0.7, 0.5, 0.3))
    parts = table.partition_by("variant", maintain_order=True)
    refused, wrong = (np.stack([part[name].to_numpy() for part in parts]) for name in ("refused", "wrong"))
    expected, (pooled,) = joint_refusal_index(refused, wrong), summarise(completed(table)).pooled
    between = expected.between_prompts
    assert pooled.between_prompts.estimate == pytest.approx(between.estimate)
    assert (pooled.between_prompts.low, pooled.between_prompts.high) == pytest.approx(between.confidence_interval())
    assert (pooled.new_prompt.low, pooled.new_prompt.high) == pytest.approx(expected.prediction_interval())
    index = pooled.refusal_index
    assert (index.low, index.high) == pytest.approx(expected.confidence_interval())
    assert index.high - index.low > 2 * 1.96 * expected.standard_error


def test_json_holds_the_spread_and_the_interval_of_a_new_prompt() -> None:
    (document,) = json.loads(as_json(summary_document(summary_of((0.7, 0.5, 0.3)))))["pooled"]
    assert document["between_prompts"]["estimate"] > 0.1
    mean, new = document["refusal_index"], document["new_prompt"]
    assert new["low"] < mean["low"] < mean["high"] < new["high"]
    assert new["estimate"] == mean["estimate"]


@pytest.mark.parametrize(
    ("spread", "test", "disagree"),
    [
        (LARGE_SPREAD + 0.01, BEYOND_CHANCE, True),
        # A large run finds differences that do not matter.
        (LARGE_SPREAD - 0.01, BEYOND_CHANCE, False),
        # A small one shows spreads that are chance.
        (LARGE_SPREAD + 0.01, CHANCE, False),
    ],
)
def test_prompts_disagree_by_size_and_beyond_chance(spread: float, test: HomogeneityTest, disagree: bool) -> None:
    assert with_spread(spread, 0.3, test).disagree(0.95) is disagree


def test_prompts_that_cannot_be_compared_do_not_disagree() -> None:
    nothing = HomogeneityTest(None, None, None, "undefined", "fewer_than_two_variants")
    none = replace(pooled_of((0.5, 0.5)), between_prompts=Estimate(None, status="undefined"), homogeneity=nothing)
    assert not none.disagree(0.95)
    assert "Between prompts" not in sentence(joint(summary_of((0.5, 0.5)), none))


@pytest.mark.parametrize(
    ("spread", "high", "test", "weight", "title"),
    [
        (0.15, 0.3, BEYOND_CHANCE, "serious", "Prompts disagree"),
        (0.05, 0.08, BEYOND_CHANCE, "note", "Prompts differ"),
        (0.05, 0.2, CHANCE, "note", "Prompts may differ"),
        (0.0, 0.08, CHANCE, None, None),
    ],
)
def test_the_report_says_how_far_prompts_lie_apart_by_its_size(
    spread: float, high: float, test: HomogeneityTest, weight: str | None, title: str | None
) -> None:
    run = report_run(completed(tables((0.5, 0.5))))
    found = doubts(replace(run.summary, pooled=(with_spread(spread, high, test),)))
    said = [(one.severity, sentence(one, "title")) for one in found if one.code.startswith("prompts")]
    assert said == ([] if title is None else [(weight, title)])


def test_spread_as_a_sentence() -> None:
    pooled = replace(with_spread(0.15, 0.3, BEYOND_CHANCE), new_prompt=Estimate(0.4, 0.1, 0.7))
    summary = summary_of((0.5, 0.5))
    assert sentence(joint(summary, pooled)).endswith(
        ". RI has a standard deviation of 0.15 [0.07, 0.30] between prompts: for another prompt of this kind, it would "
        "lie between 0.10 and 0.70."
    )
    assert "up to 0.20" in sentence(joint(summary, with_spread(0.0, 0.2, CHANCE)))
