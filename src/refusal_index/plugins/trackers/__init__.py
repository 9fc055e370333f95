"""Exporters to files in other tools' formats (`files`) and to experiment trackers (`clients`).

Metrics have the same names in every target: the name in `summary.json`, prefixed with the variant and, for the end of
an interval, followed by ``low`` or ``high``, as in ``normal/refusal_index/low``.
"""
