"""Results as text, tables and pages: the only place where numbers are formatted and sentences are written.

Functions take a result and yield blocks: a `Table` or a paragraph, an empty one for space. Blocks are not escaped; the
code that prints or embeds them does that.
"""
