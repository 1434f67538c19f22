"""Read a date or time from a cell of text, in the format that the training cells decided."""

from __future__ import annotations

import datetime
import functools
import re

DAY_FIRST, MONTH_FIRST, YEAR_FIRST, TIME = "day first", "month first", "year first", "time of day"
# Numbers that represent dates: Excel's days since 1899-12-30, digits such as 20240331, 3312024 or 31032024, time since
# 1970.
SERIAL, DIGITS, SECONDS, MILLISECONDS = "serial", "digits", "seconds", "milliseconds"
MONTH_DIGITS, DAY_DIGITS = "digits, month first", "digits, day first"
WAYS = (YEAR_FIRST, DAY_FIRST, MONTH_FIRST, TIME, SERIAL, DIGITS, MONTH_DIGITS, DAY_DIGITS, SECONDS, MILLISECONDS)

# How the digits of each format are read.
DIGIT_FORMATS = {DIGITS: "%Y%m%d", MONTH_DIGITS: "%m%d%Y", DAY_DIGITS: "%d%m%Y"}

# The range of each number format: from 1954, 1979 or 1900 to about 2100.
RANGES = {SERIAL: (2e4, 8e4), DIGITS: (19000101, 21001231), MONTH_DIGITS: (1011900, 12312100)}
RANGES |= {DAY_DIGITS: (1011900, 31122100), SECONDS: (3e8, 4.2e9), MILLISECONDS: (3e11, 4.2e12)}

# Longer cells, in characters, are never dates.
LONGEST = 40

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?P<month_name>{'|'.join(MONTHS)})[a-z]*\.?"
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d{1,9})?)?\s*(?P<half>[ap])?(?(half)\.?m\.?)"
    r"\s*(?:z|utc|[+-]\d{2}:?\d{2})?"
)
# Many databases use the year 9999 for "no end".
_YEAR = r"(?P<year>(?:1[6-9]|2[01]|99)\d{2})"
_SHORT_YEAR = r"(?P<year>(?:1[6-9]|2[01]|99)\d{2}|(?<=[/.])\d{2})"
_SIGN, _MONTH_NUMBER, _DAY = r"(?P<sign>[-/.])", r"(?P<month>\d{1,2})", r"(?P<day>\d{1,2})"
_DAYS = {
    YEAR_FIRST: (
        rf"{_YEAR}{_SIGN}{_MONTH_NUMBER}(?P=sign){_DAY}",
        rf"{_YEAR}[-/]{_MONTH_NUMBER}",
        rf"{_DAY}[ .-]*{_MONTH}[ ,-]*{_YEAR}",
        rf"{_MONTH}[ -]*{_DAY}(?:,| )\s*{_YEAR}",
        rf"{_MONTH}[ -]*{_YEAR}",
    ),
    DAY_FIRST: (rf"{_DAY}{_SIGN}{_MONTH_NUMBER}(?P=sign){_SHORT_YEAR}",),
    MONTH_FIRST: (rf"{_MONTH_NUMBER}{_SIGN}{_DAY}(?P=sign){_SHORT_YEAR}",),
}


@functools.lru_cache(maxsize=2**16)
def read_date(text: str, way: str) -> datetime.datetime | None:
    """Return the date of a cell, or None if it is not a date."""
    if len(text) > LONGEST:
        return None
    try:
        if way in RANGES:
            return _date_from_number(text.strip(), way)
        plain = text.strip().lower()
        match = next((match for pattern in _patterns(way) if (match := pattern.fullmatch(plain))), None)
        return None if match is None else _date_from_parts(match.groupdict())
    except (ValueError, OverflowError):
        return None


def _date_from_number(text: str, way: str) -> datetime.datetime | None:
    """Return the date that a number represents."""
    value = float(text)
    if way in DIGIT_FORMATS:
        digits = f"{value:08.0f}" if value.is_integer() else ""
        read = datetime.datetime.strptime(digits, DIGIT_FORMATS[way]) if len(digits) == 8 else None
        return read if read is not None and 1900 <= read.year <= 2100 else None
    start = datetime.datetime(1899, 12, 30) if way == SERIAL else datetime.datetime(1970, 1, 1)
    seconds = value * {SERIAL: 86_400, SECONDS: 1, MILLISECONDS: 1e-3}[way]
    return start + datetime.timedelta(seconds=round(seconds))


def _date_from_parts(parts: dict[str, str | None]) -> datetime.datetime:
    """Return the date with the parts that a pattern matched."""
    year = int(parts.get("year") or 1)
    if len(parts.get("year") or "") == 2:
        year += 2000 if year < 69 else 1900
    name = parts.get("month_name")
    month = MONTHS.index(name) + 1 if name else int(parts.get("month") or 1)
    hour = int(parts.get("hour") or 0)
    if half := parts.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + 12 * (half == "p")
    minute, second = int(parts.get("minute") or 0), int(parts.get("second") or 0)
    return datetime.datetime(year, month, int(parts.get("day") or 1), hour, minute, second)


@functools.cache
def _patterns(way: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of the cells of a format."""
    if way == TIME:
        return (re.compile(_CLOCK),)
    days = dict.fromkeys((*_DAYS[YEAR_FIRST], *_DAYS[way]))
    return tuple(re.compile(rf"{day}(?:[t ,]\s*{_CLOCK})?") for day in days)
