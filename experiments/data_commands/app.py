"""`python -m experiments data`: download, list and locate data sets, or write a table as CSV."""

from __future__ import annotations

import typer

from .data_csv import data_csv
from .data_get import data_get
from .data_list import data_list
from .data_path import data_path

app = typer.Typer(rich_markup_mode="rich")
app.command("get")(data_get)
app.command("list")(data_list)
app.command("path")(data_path)
app.command("csv")(data_csv)


@app.callback()
def data() -> None:
    """Download, list and locate the data sets of the papers, or write a table as CSV.

    \b
    python -m experiments data list
    python -m experiments data get cifar10
    """
