"""Our results beside the MCBN paper's: where rows are read from, tables on a screen and a page, and verdicts."""

import csv
import itertools

import pytest

from experiments.data import UCI_SETS
from experiments.teye_tables import TABLES, markdown, render

from .made_up_runs import runs, the_papers


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def wide_rows():
    """The paper's numbers, methods of ours, all batch sizes, and one PLL of a network that went astray."""
    rows = the_papers()
    for dataset, method in itertools.product(UCI_SETS, ("CUBN", "MCBN M' by CRPS", "MCBN M' by ELBO", "StochasticBN")):
        rows += runs(dataset, method, crps=(0.3, 0.01), pll=(-1234.5, 567.8), normalised_pll=(-1234.5, 567.8))
    for size in (32, 128, 256):
        rows += runs(
            "concrete", "MCBN", chosen=0, setting=size, normalised_crps=(-528.4, 100.0), normalised_pll=(-999.9, 99.9)
        )
    for row in rows:
        row["pll_own"], row["normalised_pll_own"] = row.get("pll"), row.get("normalised_pll")
    return rows


def test_tables_fit_a_screen_and_show_all(wide_rows, tmp_path):
    for table in TABLES:
        path = write(tmp_path / "rows.csv", wide_rows)
        shown = render(table, rows_path=path)
        assert max(map(len, shown.splitlines())) <= 120
        assert shown.startswith(f"Table {table} of Teye et al. 2018: ")
        assert all(name in shown for name in UCI_SETS)
        page = markdown(table, wide_rows)
        lines = [line for line in page.splitlines() if line.startswith("|")]
        assert len(lines) >= 10
        for block in page.split("\n\n"):
            assert len({line.count("|") for line in block.splitlines() if line.startswith("|")}) <= 1


def test_commands_print(tmp_path, experiments):
    path = write(tmp_path / "rows.csv", the_papers())
    assert experiments("teye-table1", "--rows", path).out.startswith("Table 1 of Teye")
    assert experiments("teye-verdicts", "--rows", path).out.startswith("MCBN against the paper's MCBN")
    ended = experiments("teye-verdicts", "--rows", tmp_path / "none.csv")
    assert ended.code == 1
    assert "none.csv does not exist" in ended.err
