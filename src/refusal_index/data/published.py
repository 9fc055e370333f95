"""The values that the paper prints, each with its dataset, its table and how it was measured.

The numbers are in ``paper/``: a CSV file for each table, and ``protocol.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import polars as pl

from refusal_index.stats import Estimate

_INDEX = "refusal_index"
PRINTED_METRICS = ("correct_rate", "refusal_rate", "correct_given_attempted", "f_score", "weighted_score", _INDEX)
"""The metrics of the paper's tables, in their order."""


@dataclass(frozen=True)
class PublishedModel:
    """One row of a table: a model and its metrics, as printed."""

    name: str
    metrics: Mapping[str, Estimate]  # by name; without an interval where none is printed

    @property
    def index(self) -> Estimate:
        """Its RI."""
        return self.metrics[_INDEX]

    @property
    def has_interval(self) -> bool:
        """Whether an interval of its RI is printed."""
        return self.index.low is not None

    @property
    def misses_estimate(self) -> bool:
        """Whether the printed interval of its RI does not contain the printed RI."""
        index = self.index
        if index.estimate is None or index.low is None or index.high is None:
            return False
        return not index.low <= index.estimate <= index.high


@dataclass(frozen=True)
class PublishedResults:
    """What the paper prints for one dataset, and how it was measured."""

    dataset: str  # as datasets are named here
    label: str  # of the table in the paper's source
    caption: str  # of the table
    models: tuple[PublishedModel, ...]  # in the order of the table
    # prompts, grader_prompt_sha256: name of the prompt set, and hash of the grader's prompt, that have the paper's
    # wording; grader, temperature, top_p: the settings of the paper
    prompts: str
    grader: str
    grader_prompt_sha256: str
    temperature: float
    top_p: float
    decimals: int  # of every printed number
    penalty: float  # p of the printed weighted scores
    interval_level: float | None = None  # confidence level of the intervals; None if none is printed
    variants: tuple[str, ...] = ()  # the prompts that each number combines; empty if the paper does not say which
    questions: int | None = None  # size of the dataset; None if the paper does not give it
    own_questions: bool = False  # whether everybody who uses the dataset has other questions


@cache
def published_results() -> Mapping[str, PublishedResults]:
    """Return what the paper prints for each of its datasets, by dataset.

    >>> {name: len(results.models) for name, results in published_results().items()}["simpleqa"]
    16
    """
    protocol: dict[str, Any] = tomllib.loads(_text("protocol.toml"))
    tables = protocol.pop("tables")
    by_dataset = {}
    for dataset, values in protocol.pop("datasets").items():
        table = values.pop("table")
        described = {**protocol, **tables[table], **values}
        described["variants"] = tuple(described.get("variants", ()))
        del described["citation"]
        by_dataset[dataset] = PublishedResults(dataset=dataset, models=tuple(_models(table, dataset)), **described)
    return by_dataset


@cache
def paper_rows() -> pl.DataFrame:
    """Return the 16 rows of the paper's table on SimpleQA.

    - returned: columns ``model``, ``family``, ``parameters_billion``, ``active_parameters_billion`` (null where not
      public), ``think`` and, for each metric, ``NAME``, ``NAME_low`` and ``NAME_high``.

    >>> paper_rows().select("model", "refusal_index").row(1)
    ('Qwen2.5-72B', 0.49)
    """
    return pl.read_csv(_text("simpleqa.csv").encode())


@cache
def hallucination_rows() -> pl.DataFrame:
    """Return the five rows of the paper's table on hallucination benchmarks: RI, a column for each dataset.

    >>> hallucination_rows().select("model", "precise_wiki").row(2)
    ('Qwen2.5-72B', 0.54)
    """
    return pl.read_csv(_text("hallucination.csv").encode())


def _models(table: str, dataset: str) -> Iterator[PublishedModel]:
    if table == "hallucination":
        for name, index in hallucination_rows().select("model", dataset).iter_rows():
            yield PublishedModel(name, {_INDEX: Estimate(index, name=_INDEX)})
        return
    for row in paper_rows().iter_rows(named=True):
        metrics = {
            name: Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"], name=name) for name in PRINTED_METRICS
        }
        yield PublishedModel(row["model"], metrics)


def _text(name: str) -> str:
    return resources.files(__package__).joinpath("paper", name).read_text(encoding="utf-8")
