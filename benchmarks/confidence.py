"""``python -m benchmarks.confidence``: discrimination and calibration of each confidence method on an embedded model.

The model answers its held-out questions under the forced prompt at temperature 0, so the scored answer is the most
likely one. Trained methods are scored out of fold, with folds by entity and by question. Methods that sample use five
samples besides the answer, at the default temperature.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import refusal_index as ri
from refusal_index.plugins.confidence.summary import MethodSummary, summarise_confidence

GREEDY = ("likelihood", "likelihood-mean", "likelihood-min")
TRAINED = ("likelihood-platt", "likelihood-isotonic", "topic", "p-ik", "text-classifier")
DRAWN = ("p-answering", "self-consistency", "answer-entropy", "likelihood")


def main() -> None:
    """Print a table for each group of methods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="almanac/base")
    parser.add_argument("--questions", type=int, default=2280, help="questions at temperature 0")
    parser.add_argument("--drawn", type=int, default=400, help="questions sampled more than once")
    parser.add_argument("--draws", type=int, default=6, help="samples per question; the first is the answer")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        here = Path(folder)
        greedy = {"limit": chosen.questions, "temperature": 0.0}
        for group in ("entity", "none"):
            _measure(here / "greedy", chosen.model, (*GREEDY, *TRAINED), group, **greedy)
        drawn = {"limit": chosen.drawn, "draws": chosen.draws, "logprobs": True}
        _measure(here / "drawn", chosen.model, DRAWN, **drawn)


def _measure(out: Path, model: str, methods: Sequence[str], group: str = "auto", **settings: float) -> None:
    started = time.monotonic()
    run = ri.evaluate(model, variants="low", out=out, **settings)
    table = ri.confidence_scores(run, methods, group=group)
    folds = "" if group == "auto" else f", folds by {group if group != 'none' else 'question'}"
    print(f"\n{model}, {settings}{folds}: {time.monotonic() - started:.0f} s")
    print("\n".join(_lines(summarise_confidence(table, pl.DataFrame(run.outcomes)))))


def _lines(summaries: Sequence[MethodSummary]) -> Iterator[str]:
    yield f"{'method':<22}{'answers':>8}{'right':>7}{'AUROC':>7}  {'95% interval':<16}{'ECE':>6}{'Brier':>7}"
    for summary in summaries:
        area, brier = summary.auroc, summary.brier.estimate
        yield (
            f"{summary.method:<22}{summary.questions:>8,}{summary.accuracy:>7.3f}{area.estimate:>7.3f}  "
            f"[{area.low:.3f}, {area.high:.3f}]  {summary.ece:>6.3f}{brier:>7.3f}"
        )


if __name__ == "__main__":
    main()
