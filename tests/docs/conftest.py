"""The browser that the report's tests drive shows pages of the site, too."""

from tests.render.conftest import chromium

__all__ = ["chromium"]
