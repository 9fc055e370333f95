"""Building a PreciseWikiQA set: short questions of fact that models write about sections of Wikipedia.

The procedure as pure functions: pages are read and cut into sections, sections are drawn by a seed, a model's two
replies about each are judged, and what is left is frozen in a file with a record of how it came about. Whoever carries
the requests to a model need not know any of it. The design is that of HalluLens' PreciseWikiQA; the wording is this
project's own.
"""

from refusal_index.plugins.wiki.candidates import Candidate, Lengths, draw_order, request_seed
from refusal_index.plugins.wiki.drawing import Drawing
from refusal_index.plugins.wiki.frozen import (
    BuildError,
    BuildPaths,
    Usage,
    build_record,
    finished_record,
    freeze,
    refuse_others,
    write_tried,
)
from refusal_index.plugins.wiki.pages import Pages, read_pages
from refusal_index.plugins.wiki.verdicts import Ask, Asked, BuildPrompts, Reason, Said, Tried, build_prompts, next_ask

__all__ = [
    "Ask",
    "Asked",
    "BuildError",
    "BuildPaths",
    "BuildPrompts",
    "Candidate",
    "Drawing",
    "Lengths",
    "Pages",
    "Reason",
    "Said",
    "Tried",
    "Usage",
    "build_prompts",
    "build_record",
    "draw_order",
    "finished_record",
    "freeze",
    "next_ask",
    "read_pages",
    "refuse_others",
    "request_seed",
    "write_tried",
]
