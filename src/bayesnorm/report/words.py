"""Numbers and lists as text for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from ..plots.readable_numbers import LARGEST, LEAST, count as count, number as number

TOO_FEW = "too few to tell whether"


def percent(share: float, decimals: int = 0) -> str:
    """Write 0.91 as "91 %". Less than all never reads as 100 %, and more than none never as 0 %."""
    if share in (0.0, 1.0):
        return f"{round(100 * share)} %"
    least = 10.0 ** (-decimals - 2)
    if 0 < share < 1 and not least / 2 < share < 1 - least / 2:
        return f"over {100 * (1 - least):.{decimals}f} %" if share > 0.5 else f"under {100 * least:.{decimals}f} %"
    return f"{100 * share:.{decimals}f} %".replace("-", "−")


def fraction(value: float, decimals: int) -> str:
    """Write a number with so many decimals, and never as "−0"."""
    return format(round(value, decimals) + 0.0, f".{decimals}f").replace("-", "−")


def date(days: float) -> str:
    """Write days since 1970 as a date, with the time unless it is midnight; for the year 1, only the time."""
    from ..tabular.dates import DAY, date_text  # needs the packages for tables

    return date_text(np.datetime64(round(days * DAY), "s"))


def were(number_of: int, thing: str, which: str = "") -> str:
    """Begin a sentence about a number of things: "1 row was", "2 rows were". `which` comes before the verb."""
    return f"{count(number_of, thing)}{which} {'was' if number_of == 1 else 'were'}"


def too_few(rows: int) -> str:
    """Begin a clause about what a number of held-out rows cannot show."""
    return f"{count(rows, 'held-out row')} {'is' if rows == 1 else 'are'} {TOO_FEW}"


def listed(parts: Sequence[str]) -> str:
    """Join the parts of a list with commas, and the last one with "and"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[0].upper() + text[1:]


def shortened(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters, with "…" at the end if it was longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def duration(seconds: float) -> str:
    """Write a time: 12 s, 3.5 minutes, 2 hours."""
    if seconds < 100:
        return f"{format(seconds, '.2g')} s" if seconds < 10 else f"{round(seconds)} s"
    return f"{format(seconds / 60, '.2g')} minutes" if seconds < 6000 else f"{format(seconds / 3600, '.2g')} hours"


def column_of_numbers(values: Iterable[float], digits: int = 3, like: Iterable[float] = ()) -> list[str]:
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
        return [number(value, digits) for value in numbers]
    decimals = max(0, digits - 1 - math.floor(math.log10(middle)))
    return [number(value) if math.isinf(value) else f"{value:,.{decimals}f}".replace("-", "−") for value in numbers]


def unbroken(text: str) -> str:
    """Keep a number and its percent or plus-minus sign on one line, and a p-value as well."""
    text = text.replace(" %", "\N{NO-BREAK SPACE}%").replace("± ", "±\N{NO-BREAK SPACE}")
    return text.replace("(p = ", "(p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}").replace(
        "(p < ", "(p\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}"
    )
