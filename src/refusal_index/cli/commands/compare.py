"""``refusal-index compare``: two runs question by question, or several ranked, with what cannot be told apart."""

from __future__ import annotations

from pathlib import Path

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError, one_of
from refusal_index.cli.inputs import readable_runs
from refusal_index.cli.shared_options import ConfidenceLevel, Penalty, weights_of


def compare(
    runs: list[Path],
    /,
    variant: str | None = None,
    metric: str = "refusal_index",
    adjustment: str = "max-t",
    penalty: Penalty = 1.0,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    cluster: str | None = None,
    weight: str | None = None,
    seed: int = 0,
    full: bool = False,
    json: bool = False,
) -> None:
    """Compare models over the same questions.

    Two runs: the difference of every metric, the first minus the second, with interval and p-value. Three or more: a
    ranking in which runs that share a letter cannot be told apart. Questions are matched by their ids; runs over other
    questions are compared unpaired, which is said.

    RI decides. Where all runs were sampled repeatedly (run --draws 2), the difference of corrected RI is shown below
    it, with a sentence where the two disagree.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or fewer than two that could be read.

    - `runs` RUN: Runs' folders, folders of sets, or outcome tables (.csv, .jsonl, .parquet). Two models or more in all.
    - `variant`: Compare under this prompt variant only. [default: every variant that the runs share, and all combined]
    - `metric`: What to rank by, for three runs or more.
    - `adjustment`: How a ranking allows for many comparisons: 'max-t' or 'holm'.
    - `seed`: Of the simulation behind max-t.
    - `full`: Print every metric, pair and note.
    - `json`: Print everything as JSON and nothing else.
    """
    from refusal_index.data.rates import BY_ANSWERABLE
    from refusal_index.data.run_json import TruthfulnessWeights
    from refusal_index.data.sampling import Sampling
    from refusal_index.findings.comparison import compare_pair
    from refusal_index.findings.matching import CompareOptions
    from refusal_index.findings.metrics import METRICS
    from refusal_index.findings.ranking import rank
    from refusal_index.render.comparison import pair_blocks, pair_screen, ranking_blocks, ranking_screen
    from refusal_index.render.sections import compared_sections

    options = CompareOptions(
        variant=variant,
        metric=one_of("--metric", metric, [name for name in METRICS if name not in BY_ANSWERABLE]),
        adjustment="holm" if one_of("--adjustment", adjustment, ["max-t", "holm"]) == "holm" else "max-t",
        penalty=penalty,
        truthfulness_weights=weights_of(truthfulness_weights) or TruthfulnessWeights(),
        confidence_level=confidence_level,
        seed=seed,
        sampling=Sampling(cluster, weight),
    )
    found = readable_runs(runs, options.sampling)
    if len(found.runs) < 2:
        raise OptionError(
            f"compare: expected two models or more, got {found.runs[0].label} alone; "
            "name the folder or the outcome table of another run"
        )
    if len(found.runs) == 2:
        pair = compare_pair(found.runs, options, compared_sections(found.runs, options))
        document, blocks = pair.to_document, (pair_blocks if full else pair_screen)(pair)
    else:
        ranking = rank(found.runs, options)
        document, blocks = ranking.to_document, (ranking_blocks if full else ranking_screen)(ranking)
    if json:
        console.document(document())
    else:
        console.show(blocks)
        if not full:
            console.show(["", "All metrics, pairs and notes: add --full"])
    if found.left_out:
        raise typer.Exit(INCOMPLETE)
