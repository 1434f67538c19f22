"""Format numbers for readers, with thousands separators and no needless digits."""

from __future__ import annotations

import math

# From this size, and below this size, numbers are written with a power of ten.
LARGEST, LEAST = 1e12, 1e-4

# From this size, numbers on an axis have thousands separators; smaller ones may be years, such as 2019.
LARGE = 10_000

# Abbreviations of large numbers on an axis.
UNITS = ((1e9, " bn"), (1e6, " M"))


def number(value: object, digits: int = 4) -> str:
    """Return a number as text with this many significant digits; text is unchanged, None and NaN become a dash."""
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
    """Return "1 row" or "2 rows"; `things` is the plural if it is not formed with an s."""
    return f"{number_of:,} {thing if number_of == 1 else things or thing + 's'}"


def on_axis(value: float, step: float, largest: float = 0.0) -> str:
    """Return a number as text for an axis; millions are abbreviated to save space.

    Args:
        value: The number.
        step: The distance between ticks; 0 for a single tick.
        largest: The largest absolute number on the axis.
    """
    if step == 0 or max(abs(value), step) >= LARGEST or step < LEAST:
        return number(float(value), max(1, 1 + _place(abs(value)) - _place(step)) if step else 4)
    unit, name = next(((unit, name) for unit, name in UNITS if largest >= unit and step >= unit / 1000), (1.0, ""))
    value, step = value / unit, step / unit
    decimals = max(0, -_place(step))
    # A step such as 2.5 needs one more decimal than its first digit.
    decimals += not math.isclose(step * 10**decimals, round(step * 10**decimals), rel_tol=1e-6)
    text = f"{value:,.{decimals}f}" if abs(value) >= LARGE else f"{value:.{decimals}f}"
    if not text.strip("-0."):
        return "0" if name else text.lstrip("-")
    return (text + name).replace("-", "−")


def _place(size: float) -> int:
    """Return the position of a number's first digit: 0 for ones, -1 for tenths."""
    return math.floor(math.log10(size)) if size else 0
