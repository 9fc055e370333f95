"""The report: one self-contained HTML file of one or several runs.

`write_report` writes it. `read_report_runs` reads runs for it, and `folder_runs` takes a run that has just been made.
The page works without a network connection.
"""

from refusal_index.render.report.page import WrittenReport, is_report, write_report
from refusal_index.render.report.runs import ReportRun, folder_runs, read_report_runs

__all__ = ["ReportRun", "WrittenReport", "folder_runs", "is_report", "read_report_runs", "write_report"]
