"""The report: one self-contained HTML file of one or several runs.

`write_report` writes it.
The page works without a network connection.
"""

from refusal_index.render.report.page import WrittenReport, is_report, write_report

__all__ = ["WrittenReport", "is_report", "write_report"]
