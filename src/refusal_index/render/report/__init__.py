"""One self-contained HTML file of a run, or several: to look at, to browse, to hand on.

`write_report` writes it; `read_report_runs` reads what it is made of, and `folder_runs` takes it from a run that has
just been made. The page works from a disk without a network.
"""

from refusal_index.render.report.page import WrittenReport, is_report, write_report
from refusal_index.render.report.runs import Found, ReportRun, folder_runs, read_report_runs

__all__ = ["Found", "ReportRun", "WrittenReport", "folder_runs", "is_report", "read_report_runs", "write_report"]
