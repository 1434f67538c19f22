"""All numbers in the papers' tables, from `paper_tables.csv` in the same folder.

    fact("teye2018", 6, "boston", "MCBN", "crps").value            # 1.45
    paper_facts("teye2018", 8)[0].settings["batch_size"]           # 8

Papers: teye2018 (MCBN; tables 2 and 4 to 11), mukhoti2020 (batch size; table 1), atanov2018 (stochastic batch norm;
table 1). Methods keep the names of the papers (MC dropout is "MCDO" in teye2018).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from bayesnorm.errors import BayesNormError

FILE = "paper_tables.csv"
COLUMNS = ["paper", "table", "dataset", "method", "metric", "setting", "value", "standard_error", "p_value"]


@dataclass(frozen=True)
class Fact:
    """One cell of a paper's table.

    Args:
        paper: First author and year.
        table: Number of the table in the paper.
        dataset: Name of the data set, as in `experiments.data`.
        method: The paper's name of the method.
        metric: The score; normalised scores and errors are in percent.
        settings: Other settings of the cell, such as {"batch_size": 32}; numbers as int.
        value: The printed number.
        standard_error: Its standard error as printed, or None.
        p_value: Its p-value as printed, or None.
    """

    paper: str
    table: int
    dataset: str
    method: str
    metric: str
    settings: Mapping[str, int | str]
    value: float
    standard_error: float | None
    p_value: float | None


def paper_facts(paper: str | None = None, table: int | None = None) -> tuple[Fact, ...]:
    """Return all facts, or those of one paper, or of one table of it, in the order of the paper."""
    result = tuple(
        fact for fact in _all_facts() if (paper is None or fact.paper == paper) and table in (None, fact.table)
    )
    if not result:
        tables = sorted({(fact.paper, fact.table) for fact in _all_facts()})
        raise BayesNormError(
            f"paper, table: there is no {paper!r}, {table!r}. Use one of "
            f"{', '.join(f'{name!r}, {number}' for name, number in tables)}."
        )
    return result


def fact(paper: str, table: int, dataset: str, method: str, metric: str, **settings: int | str) -> Fact | None:
    """Return one cell, or None if the paper has none.

    Args:
        paper: First author and year; see `Fact` for this and the others.
        table: Number of the table.
        dataset: Name of the data set.
        method: The paper's name of the method.
        metric: Name of the score in the file.
        settings: Settings of the cell, as many as are needed to identify it.
    """
    results = [
        one
        for one in paper_facts(paper, table)
        if (one.dataset, one.method, one.metric) == (dataset, method, metric)
        and settings.items() <= one.settings.items()
    ]
    if len(results) > 1:
        raise BayesNormError(
            f"settings: {len(results)} cells of table {table} fit {dict(settings)}. Use one of "
            f"{[dict(one.settings) for one in results]}."
        )
    return results[0] if results else None


@cache
def _all_facts() -> tuple[Fact, ...]:
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    reader = csv.DictReader(text.splitlines())
    assert reader.fieldnames == COLUMNS
    return tuple(
        Fact(
            paper=row["paper"],
            table=int(row["table"]),
            dataset=row["dataset"],
            method=row["method"],
            metric=row["metric"],
            settings=MappingProxyType(dict(_setting(part) for part in row["setting"].split(";") if part)),
            value=float(row["value"]),
            standard_error=float(row["standard_error"]) if row["standard_error"] else None,
            p_value=float(row["p_value"]) if row["p_value"] else None,
        )
        for row in reader
    )


def _setting(text: str) -> tuple[str, int | str]:
    name, _, value = text.partition("=")
    return name, int(value) if value.isdigit() else value
