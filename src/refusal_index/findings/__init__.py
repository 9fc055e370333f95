"""Findings from outcome tables: summaries, comparisons, gates and plans."""
