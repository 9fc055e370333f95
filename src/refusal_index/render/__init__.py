"""Results as paragraphs and tables of plain text, for a terminal, a notebook or whatever else shows text.

Every function here takes a result and yields blocks: a `Table`, or a paragraph, an empty one for space. Nothing in them
is escaped; whoever shows them does that, knowing what would be obeyed there.
"""

from refusal_index.render.blocks import (
    METRIC_COLUMNS,
    METRIC_LABELS,
    NOT_KNOWN,
    UNDEFINED,
    Block,
    Table,
    escape,
    shows,
    to_html,
    to_text,
)

__all__ = [
    "METRIC_COLUMNS",
    "METRIC_LABELS",
    "NOT_KNOWN",
    "UNDEFINED",
    "Block",
    "Table",
    "escape",
    "shows",
    "to_html",
    "to_text",
]
