"""Results as text, tables and pages: the only place that formats numbers and words results.

Functions that take a result yield blocks: a `Table`, or a paragraph, an empty one for space. Nothing in them is
escaped; whoever shows them escapes what would be obeyed there.
"""
