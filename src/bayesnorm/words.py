"""Write numbers and lists as text for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from bayesnorm_runtime import ShortRepr as ShortRepr, format_percent as format_percent

# From this size, and below this size, numbers are written with a power of ten.
LARGEST, LEAST = 1e12, 1e-4

# From this size, numbers on an axis have thousands separators; smaller ones may be years, such as 2019.
LARGE = 10_000

# Abbreviations of large numbers on an axis.
UNITS = ((1e9, " bn"), (1e6, " M"))

# Seconds in a day.
DAY = 86_400

# Part of the clauses about rows that are too few.
TOO_FEW = "too few to tell whether"


def format_number(value: object, digits: int = 4) -> str:
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


def format_count(number_of: int, thing: str, things: str = "") -> str:
    """Return "1 row" or "2 rows"; `things` is the plural if it is not formed with an s."""
    return f"{number_of:,} {thing if number_of == 1 else things or thing + 's'}"


def format_tick(value: float, step: float, largest: float = 0.0) -> str:
    """Return a number as text for an axis; millions are abbreviated to save space.

    Args:
        value: The number.
        step: The distance between ticks; 0 for a single tick.
        largest: The largest absolute number on the axis.
    """
    if step == 0 or max(abs(value), step) >= LARGEST or step < LEAST:
        return format_number(float(value), max(1, 1 + _place(abs(value)) - _place(step)) if step else 4)
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


def format_decimals(value: float, decimals: int) -> str:
    """Write a number with so many decimals, and never as "−0"."""
    return format(round(value, decimals) + 0.0, f".{decimals}f").replace("-", "−")


def format_date(value: np.datetime64) -> str:
    """Return a date as text, with the time unless it is midnight; for a time without a date, only the time."""
    day, clock = str(value.astype("datetime64[s]")).split("T")
    clock = clock.removesuffix(":00")
    if day == "0001-01-01":
        return clock
    return day if clock == "00:00" else f"{day} {clock}"


def format_day(days: float) -> str:
    """Return days since 1970 as a date, as `format_date` does."""
    return format_date(np.datetime64(round(days * DAY), "s"))


def were(number_of: int, thing: str, which: str = "") -> str:
    """Begin a sentence about a number of things: "1 row was", "2 rows were". `which` comes before the verb."""
    return f"{format_count(number_of, thing)}{which} {'was' if number_of == 1 else 'were'}"


def too_few(rows: int) -> str:
    """Begin a clause about what a number of held-out rows cannot show."""
    return f"{format_count(rows, 'held-out row')} {'is' if rows == 1 else 'are'} {TOO_FEW}"


def join_list(parts: Sequence[str]) -> str:
    """Join the parts of a list with commas, and the last one with "and"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def capitalise(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[0].upper() + text[1:]


def truncate(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters, with "…" at the end if it was longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def format_duration(seconds: float) -> str:
    """Write a time: 12 s, 3.5 minutes, 2 hours."""
    if seconds < 100:
        return f"{format(seconds, '.2g')} s" if seconds < 10 else f"{round(seconds)} s"
    return f"{format(seconds / 60, '.2g')} minutes" if seconds < 6000 else f"{format(seconds / 3600, '.2g')} hours"


def format_column(values: Iterable[float], digits: int = 3, like: Iterable[float] = ()) -> list[str]:
    """Write the numbers of a column, all with the same number of decimals.

    Args:
        values: The numbers.
        digits: Number of significant digits of their median, which sets the decimals.
        like: Numbers whose median sets the decimals instead.
    """
    numbers = list(values)
    sizes = [abs(value) for value in (list(like) or numbers) if value and math.isfinite(value)]
    middle = median(sizes) if sizes else 1.0
    if not LEAST <= middle < LARGEST:
        return [format_number(value, digits) for value in numbers]
    decimals = max(0, digits - 1 - math.floor(math.log10(middle)))
    return [
        format_number(value) if math.isinf(value) else f"{value:,.{decimals}f}".replace("-", "−") for value in numbers
    ]


def keep_together(text: str) -> str:
    """Keep a number and its percent or plus-minus sign on one line, and a p-value as well."""
    text = text.replace(" %", "\N{NO-BREAK SPACE}%").replace("± ", "±\N{NO-BREAK SPACE}")
    return text.replace("(p = ", "(p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}").replace(
        "(p < ", "(p\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}"
    )
