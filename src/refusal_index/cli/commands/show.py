"""``refusal-index show``: everything that is known of a run or of outcome tables."""

from __future__ import annotations

from pathlib import Path

from refusal_index.cli import console
from refusal_index.cli.console import OptionError
from refusal_index.cli.shared_options import ConfidenceLevel


def show(
    files: list[Path],
    /,
    cluster: str | None = None,
    weight: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
) -> None:
    """Show every metric of a run with its interval, what they depend on, and what the run used.

    Nothing is changed. Exit status: 0 done, 2 bad input.

    - `files` RUN: One run's folder, or outcome tables (.csv, .jsonl, .parquet).
    """
    from refusal_index.data.outcome_table import read_tables
    from refusal_index.data.runs import read_outcomes_of
    from refusal_index.data.sampling import OWN_COLUMNS, Sampling
    from refusal_index.findings.summary import summarise
    from refusal_index.render.display import run_blocks
    from refusal_index.render.sections import with_sections
    from refusal_index.render.summary import summary_blocks
    from refusal_index.runs.writing import open_run

    first, sampling = files[0], Sampling(cluster, weight)
    if first.is_dir() and len(files) > 1:
        raise OptionError(
            f"show: expected one run's folder or any number of files, got {len(files)} with the folder {first} among "
            "them; name its outcomes.parquet instead"
        )
    if first.is_dir() and sampling == OWN_COLUMNS and confidence_level == 0.95:
        console.show(run_blocks(open_run(first)))
        return
    table = read_outcomes_of(first, sampling) if first.is_dir() else read_tables(files, sampling)
    summary = summarise(table, confidence_level=confidence_level, sampling=sampling)
    console.show(summary_blocks(with_sections(summary, table, first)))
