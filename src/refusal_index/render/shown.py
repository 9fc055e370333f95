"""Results as text, as HTML and as a report: what their methods in Python call, by the hook ``shown``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from refusal_index.errors import escape
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.dry_run import RunEstimate
from refusal_index.findings.gate import GateResult
from refusal_index.findings.metrics import Printable
from refusal_index.findings.planning import SampleSizes
from refusal_index.findings.published import PaperComparison
from refusal_index.findings.ranking import RunRanking
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sensitivity import SensitivityAnalysis
from refusal_index.findings.tallies import ScoredFiles
from refusal_index.render.comparison import pair_screen, ranking_screen
from refusal_index.render.dry_run import estimate_blocks
from refusal_index.render.format import UNDEFINED, Block, to_html, to_text, with_interval
from refusal_index.render.gate import gate_blocks
from refusal_index.render.imported import scored_blocks
from refusal_index.render.planning import decisions_blocks, sample_size_blocks
from refusal_index.render.published import published_screen
from refusal_index.render.report import write_report
from refusal_index.render.run import run_blocks, run_document, run_html
from refusal_index.render.sentences import sentence
from refusal_index.stats import Estimate

__all__ = ["estimate_text", "html_of", "run_document", "sentence", "text_of", "write_report"]


@singledispatch
def blocks_of(result: Printable) -> Iterator[Block]:
    """Yield a result as paragraphs and tables."""
    yield f"<{type(result).__name__}>"


blocks_of.register(PairComparison, pair_screen)
blocks_of.register(RunEstimate, estimate_blocks)
blocks_of.register(RunRanking, ranking_screen)
blocks_of.register(GateResult, gate_blocks)
blocks_of.register(PaperComparison, published_screen)
blocks_of.register(ScoredFiles, scored_blocks)
blocks_of.register(SampleSizes, sample_size_blocks)
blocks_of.register(SensitivityAnalysis, decisions_blocks)


@blocks_of.register
def _(result: RunResults) -> Iterator[Block]:
    yield f"RunResults({escape(str(result.source))!r})"
    yield from run_blocks(result, everything=False)


def estimate_text(result: Estimate | None) -> str:
    """Return an estimate with its interval."""
    if result is None:
        return UNDEFINED
    return with_interval(result.estimate, result.low, result.high, result.reason, 2)


def text_of(result: Printable) -> str:
    """Return a result as plain text."""
    return to_text(blocks_of(result))


def html_of(result: Printable) -> str:
    """Return a result as HTML for a notebook."""
    return run_html(result) if isinstance(result, RunResults) else to_html(blocks_of(result))
