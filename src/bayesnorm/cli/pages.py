"""Check whether the packages for HTML pages are installed."""

from __future__ import annotations

import importlib.util

WITHOUT_PAGE = "not written (pip install jinja2 matplotlib)"
"""Printed in place of a page's name."""


def can_write_pages() -> bool:
    """Return whether the packages for HTML pages are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jinja2", "matplotlib"))
