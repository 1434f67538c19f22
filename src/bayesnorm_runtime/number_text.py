"""Read a number from a cell of text: $1,234.50, 12 %, 1.234,50 €, (3.00)."""

from __future__ import annotations

import functools
import re

PERCENT = "%"
DECIMALS = (".", ",")

CURRENCY = "[$€£¥₹₽₩₺₫₪₦₴₱฿]|USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CAD|AUD"
# Longer cells, in characters, are never numbers, because matching long runs of blanks is slow.
LONGEST_NUMBER = 60
_SEPARATORS = ".,'’ \u00a0\u202f"
# For each decimal point, the replacement of each character that can stand between digits.
_PLAIN = {point: {ord(sign): "." if sign == point else None for sign in _SEPARATORS} for point in DECIMALS}


def read_number(text: str, point: str) -> tuple[float, str] | None:
    """Return the number and the mark of a cell, or None if it is not a number."""
    match = _pattern(point).fullmatch(text.strip()) if len(text) <= LONGEST_NUMBER else None
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    if (match["before"] and match["after"]) or (match["sign"] and match["inner"]):
        return None
    digits = match["digits"].translate(_PLAIN[point])
    negative = match["open"] or (match["sign"] or match["inner"]) in ("-", "−")
    return (-float(digits) if negative else float(digits)), match["before"] or match["after"] or ""


@functools.cache
def _pattern(point: str) -> re.Pattern[str]:
    """Return the pattern of cells that contain a number with this decimal point."""
    separators = re.escape(_SEPARATORS.replace(point, ""))
    whole = rf"(?:[1-9]\d{{0,2}}(?P<separator>[{separators}])\d{{3}}(?:(?P=separator)\d{{3}})*|\d+)"
    digits = rf"(?:{whole}(?:{re.escape(point)}\d*)?|{re.escape(point)}\d+)(?:[eE][+-]?\d+)?"
    return re.compile(
        rf"(?P<open>\()?\s*(?P<sign>[+\-−])?\s*(?P<before>{CURRENCY})?\s*(?P<inner>[+\-−])?"
        rf"(?P<digits>{digits})\s*(?P<after>{CURRENCY}|%)?\s*(?P<close>\))?"
    )
