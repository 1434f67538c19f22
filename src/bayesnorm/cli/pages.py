"""Whether HTML pages can be written here."""

from __future__ import annotations

import importlib.util

WITHOUT_PAGE = "none: pip install jinja2 matplotlib"
"""What stands in place of a page's name."""


def can_write_pages() -> bool:
    """Return whether the packages that pages are made with are there."""
    return all(importlib.util.find_spec(name) is not None for name in ("jinja2", "matplotlib"))
