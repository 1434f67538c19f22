"""Numbers written as people read them: thousands set apart, no more decimals than mean something."""

from __future__ import annotations

import math

# Sizes from which, and below which, powers of ten say more than digits.
LARGEST, LEAST = 1e12, 1e-4

# Size from which the thousands of numbers on an axis are set apart: 2019 may be a year.
LARGE = 10_000

# Numbers that are written short beside an axis, and how.
UNITS = ((1e9, " bn"), (1e6, " M"))


def number(value: object, digits: int = 4) -> str:
    """Write a number with so many significant digits, thousands set apart; texts stay, None and NaN become a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or math.isinf(value):
        return f"{value:,}".replace("inf", "∞").replace("-", "−")
    size = abs(value)
    if size and not LEAST <= size < LARGEST:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}".replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0
    text = f"{value:,.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def count(number_of: int, thing: str, things: str = "") -> str:
    """Write a number of things: 1 row, 2 rows; `things` where these are not written with an s alone."""
    return f"{number_of:,} {thing if number_of == 1 else things or thing + 's'}"


def on_axis(value: float, step: float, largest: float = 0.0) -> str:
    """Write a number beside an axis whose ticks are so far from each other; millions short, so that they find room.

    Args:
        value: The number.
        step: The distance of two ticks; 0 where there is one.
        largest: Size of the largest number beside that axis.
    """
    if step == 0 or max(abs(value), step) >= LARGEST or step < LEAST:
        return number(float(value), max(1, 1 + _place(abs(value)) - _place(step)) if step else 4)
    unit, name = next(((unit, name) for unit, name in UNITS if largest >= unit and step >= unit / 1000), (1.0, ""))
    value, step = value / unit, step / unit
    decimals = max(0, -_place(step))
    # A step of 2.5 takes one more than its first digit says.
    decimals += not math.isclose(step * 10**decimals, round(step * 10**decimals), rel_tol=1e-6)
    text = f"{value:,.{decimals}f}" if abs(value) >= LARGE else f"{value:.{decimals}f}"
    if not text.strip("-0."):
        return "0" if name else text.lstrip("-")
    return (text + name).replace("-", "−")


def _place(size: float) -> int:
    """Return the place of a number's first digit: 0 for ones, -1 for tenths."""
    return math.floor(math.log10(size)) if size else 0
