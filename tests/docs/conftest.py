"""The browser that the report's tests drive shows pages of the site, too."""

from tests.report.conftest import chromium

__all__ = ["chromium"]
