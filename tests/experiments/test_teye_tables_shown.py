"""Our results beside the MCBN paper's: where rows are read from, tables on a screen and a page, and verdicts."""

import csv

from experiments.teye_tables import TABLES, markdown

from .made_up_runs import the_papers


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_commands_print(tmp_path, experiments):
    rows = the_papers()
    path = write(tmp_path / "rows.csv", rows)
    for table in TABLES:
        shown = experiments(f"teye-table{table}", "--rows", path).out
        assert shown.startswith(f"Table {table} of Teye")
        assert max(map(len, shown.splitlines())) <= 120
        assert markdown(table, rows).count("\n|") >= 10
    assert experiments("teye-verdicts", "--rows", path).out.startswith("MCBN against the paper's MCBN")
    ended = experiments("teye-verdicts", "--rows", tmp_path / "none.csv")
    assert ended.code == 1
    assert "none.csv does not exist" in ended.err
