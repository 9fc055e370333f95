"""``python -m benchmarks.confidence``: how well each method of confidence orders and calibrates, on an embedded model.

The model answers its held-out questions under the forced prompt at temperature 0, so that the answer that is scored is
its likeliest. What is trained is scored out of fold, with folds by entity and by question. Methods that need draws take
five beside the answer, at the usual temperature.
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
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="almanac/base")
    parser.add_argument("--questions", type=int, default=2280, help="asked at temperature 0")
    parser.add_argument("--drawn", type=int, default=400, help="drawn repeatedly")
    parser.add_argument("--draws", type=int, default=6, help="the first is the answer")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        here = Path(folder)
        greedy = {"limit": chosen.questions, "temperature": 0.0}
        for group in ("entity", "none"):
            _measured(here / "greedy", chosen.model, (*GREEDY, *TRAINED), group, **greedy)
        drawn = {"limit": chosen.drawn, "draws": chosen.draws, "logprobs": True}
        _measured(here / "drawn", chosen.model, DRAWN, **drawn)


def _measured(out: Path, model: str, methods: Sequence[str], group: str = "auto", **settings: float) -> None:
    started = time.monotonic()
    run = ri.evaluate(model, variants="low", out=out, **settings)
    table = ri.confidence_scores(run, methods, group=group)
    folds = "" if group == "auto" else f", folds by {group if group != 'none' else 'question'}"
    print(f"\n{model}, {settings}{folds}: {time.monotonic() - started:.0f} s")
    print("\n".join(_lines(summarise_confidence(table, pl.DataFrame(run.outcomes)))))


def _lines(found: Sequence[MethodSummary]) -> Iterator[str]:
    yield f"{'method':<22}{'answers':>8}{'right':>7}{'AUROC':>7}  {'95 % interval':<16}{'ECE':>6}{'Brier':>7}"
    for one in found:
        area, brier = one.auroc, one.brier.estimate
        yield (
            f"{one.method:<22}{one.questions:>8,}{one.accuracy:>7.3f}{area.estimate:>7.3f}  "
            f"[{area.low:.3f}, {area.high:.3f}]  {one.ece:>6.3f}{brier:>7.3f}"
        )


if __name__ == "__main__":
    main()
