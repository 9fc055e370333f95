"""The browser of the report tests is also used for pages of the site."""

from tests.render.conftest import chromium

__all__ = ["chromium"]
