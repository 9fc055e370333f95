"""Outcome tables and summaries in, another tool's format out: one module a target.

A run's numbers have the same names in all of them: those of `summary.json`, with the variant before and the end of the
interval behind, as in ``normal/refusal_index/low``.
"""
