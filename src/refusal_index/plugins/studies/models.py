"""What is known of models: families, sizes, and the paper's results.

The paper's 16 rows [1]_ are context for runs on SimpleQA, rounded to two digits as they are printed. Two of them are
inconsistent: the interval of Gemma-3-12B misses its own Refusal Index, and the weighted scores are those of a penalty
of 1, while the text names 0.2.

References
----------
.. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware Refusal
   in Factual Tasks. Table "Results on SimpleQA with 95% CI".
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import polars as pl

from refusal_index.data.runs import ComparedRun
from refusal_index.errors import RefusalIndexError

PAPER = "paper"
"""In a frame's column `source`, of the paper's rows; those of one's own runs have ``run``."""
RUN = "run"
SIMPLEQA = "simpleqa"
PAPER_PENALTY = 1.0
"""Of the paper's printed weighted scores."""

KNOWN_FAMILIES = ("claude", "gemini", "gemma", "qwen", "mistral", "llama", "gpt", "deepseek", "glm", "phi", "almanac")
_COLUMNS = {"model": pl.String, "family": pl.String, "parameters_billion": pl.Float64}
_ACTIVE = "active_parameters_billion"


class ModelTableError(RefusalIndexError, ValueError):
    """A table of models that a study cannot use."""


@cache
def paper_rows() -> pl.DataFrame:
    """Return the 16 rows of the paper's results table.

    - returned: columns ``model``, ``family``, ``parameters_billion``, ``active_parameters_billion`` (null where not
      public), ``think`` and, for each metric, ``NAME``, ``NAME_low`` and ``NAME_high``.

    >>> paper_rows().select("model", "refusal_index").row(1)
    ('Qwen2.5-72B', 0.49)
    """
    return pl.read_csv((files("refusal_index.plugins.studies") / "data" / "paper_rows.csv").read_bytes())


def paper_context(runs: Sequence[ComparedRun]) -> pl.DataFrame:
    """Return the paper's rows where all runs are on SimpleQA, and none of them otherwise."""
    on_simpleqa = bool(runs) and all(run.dataset_id == SIMPLEQA for run in runs)
    return paper_rows() if on_simpleqa else paper_rows().clear()


def known_models(own_table: Path | None) -> pl.DataFrame:
    """Return what is known of models: the reader's own table first, then the paper's and the embedded ones.

    Raises ModelTableError if the reader's table cannot be read or lacks a column.
    """
    embedded = pl.read_csv((files("refusal_index.plugins.studies") / "data" / "models.csv").read_bytes())
    columns = [*_COLUMNS, _ACTIVE]
    own = [_read_models(own_table)] if own_table else []
    return pl.concat([table.select(columns) for table in (*own, embedded, paper_rows())], how="vertical_relaxed")


def find_model(model: str | None, known: pl.DataFrame) -> dict[str, object] | None:
    """Find a model by its name, or by what follows the provider's: ``openai/gpt-4.1`` is also ``GPT-4.1``."""
    if model is None:
        return None
    wanted = {model.casefold(), model.rpartition("/")[2].casefold()}
    return next((row for row in known.iter_rows(named=True) if str(row["model"]).casefold() in wanted), None)


def name_in_tables(run: ComparedRun, known: pl.DataFrame) -> str | None:
    """Return the name by which the tables may know a run's model: that of its set where they do, else its own."""
    return run.model if find_model(run.model, known) else run.model_id


def family_of(model: str | None, known: pl.DataFrame) -> str:
    """Tell a model's family: from the tables, else from a known name within its own, else from its provider.

    >>> [family_of(model, paper_rows()) for model in ("together/meta-llama-9", "acme/one", None)]
    ['Llama', 'acme', 'unknown']
    """
    row = find_model(model, known)
    if row is not None and row["family"]:
        return str(row["family"])
    if not model:
        return "unknown"
    spelt = {str(family).casefold(): str(family) for family in paper_rows()["family"]}
    within = next((name for name in KNOWN_FAMILIES if name in model.casefold()), None)
    return spelt.get(within, within) if within else model.partition("/")[0]


def _read_models(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_csv(io.BytesIO(path.read_bytes()))
        missing = [name for name in _COLUMNS if name not in table.columns]
        if not missing:
            active = pl.col(_ACTIVE) if _ACTIVE in table.columns else pl.col("parameters_billion").alias(_ACTIVE)
            return table.select(*(pl.col(name).cast(kind) for name, kind in _COLUMNS.items()), active.cast(pl.Float64))
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ModelTableError(
            f"{path}: expected a CSV table of models, which could not be read ({reason}); give a file with the "
            f"columns {', '.join(_COLUMNS)}, numbers in the last"
        ) from error
    raise ModelTableError(
        f"{path}: expected the columns {', '.join(_COLUMNS)}, got {', '.join(table.columns)}; add {missing[0]!r}"
    )
