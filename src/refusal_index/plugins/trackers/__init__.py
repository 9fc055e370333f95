"""Exporters to other tools' formats and to experiment trackers, one module per target.

Metrics have the same names in every target: the name in `summary.json`, prefixed with the variant and, for the end of
an interval, followed by ``low`` or ``high``, as in ``normal/refusal_index/low``.
"""
