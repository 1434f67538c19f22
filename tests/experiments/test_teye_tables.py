"""The MCBN paper's tables: the facts that it prints, our results beside them, and how both are shown."""

import csv
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from experiments.data import UCI_SETS
from experiments.paper_facts import fact, paper_facts
from experiments.teye_tables import TABLES, Cell, compare, markdown, read_rows, verdicts
from experiments.teye_tables.cells import paper_fact

from .made_up_runs import runs, the_papers


def test_every_table_is_whole():
    assert Counter((one.paper, one.table) for one in paper_facts()) == {
        ("teye2018", 2): 9,
        ("teye2018", 4): 3 * 8,
        ("teye2018", 5): 3 * 8,
        ("teye2018", 6): 2 * 3 * 8,
        ("teye2018", 7): 5 * 8,
        ("teye2018", 8): 8 * 8 - 6,  # six batch sizes are too large for their sets
        ("teye2018", 9): 8 * 8 - 6,
        ("teye2018", 10): 3 * 8,
        ("teye2018", 11): 3 * 8,
        ("mukhoti2020", 1): 19,
        ("atanov2018", 1): 26,
    }
    assert len(set(map(repr, paper_facts()))) == 354, "no cell is there twice"
    regression = [one for one in paper_facts("teye2018") if one.table != 2]
    assert {one.dataset for one in regression} == set(UCI_SETS)
    for one in regression:
        assert (one.standard_error is None) == (one.table >= 8)
        assert (one.p_value is None) == (one.table not in (4, 5))


def test_cells_read_off_the_page():
    for where, settings, expected in (
        ((4, "yacht", "MCBN", "normalised_crps_percent"), {}, (-56.39, 14.27, 5.94e-4)),
        ((4, "energy", "MCDO", "normalised_crps_percent"), {}, (1.37, 0.89, 0.138)),
        ((5, "concrete", "MCBN", "normalised_pll_percent"), {}, (-36.36, 12.12, 6.19e-3)),
        ((5, "power", "MCBN", "normalised_pll_percent"), {}, (0.33, 0.14, 2.72e-2)),
        ((5, "yacht", "MNF", "normalised_pll_percent"), {}, (46.19, 4.45, 2.47e-7)),
        ((6, "boston", "MCBN", "crps"), {}, (1.45, 0.02, None)),
        ((6, "yacht", "MCDO", "crps"), {}, (0.32, 0.01, None)),
        ((6, "yacht", "MCDO", "pll"), {}, (-2.57, 0.69, None)),
        ((7, "concrete", "BN", "rmse"), {}, (4.89, 0.08, None)),
        ((7, "yacht", "DO", "rmse"), {}, (0.72, 0.04, None)),
        ((8, "energy", "MCBN", "normalised_crps_percent"), {"batch_size": 128}, (11.1, None, None)),
        ((9, "concrete", "MCBN", "normalised_pll_percent"), {"batch_size": 16}, (-528.4, None, None)),
        ((10, "wine", "MCBN", "normalised_crps_percent"), {"passes": 100}, (-0.4, None, None)),
        ((11, "energy", "MCBN", "normalised_pll_percent"), {"passes": 50}, (-47.3, None, None)),
        ((2, "cifar10", "softmax", "pll"), {}, (-0.32, None, None)),
    ):
        one = fact("teye2018", *where, **settings)
        assert (one.value, one.standard_error, one.p_value) == expected


def only(cells, **wanted):
    (result,) = [cell for cell in cells if all(getattr(cell, name) == value for name, value in wanted.items())]
    return result


def test_means_errors_and_p_values_against_numpy_and_scipy():
    rng = np.random.default_rng(1)
    values = {name: rng.normal(0.5, 1.0, 25) for name in ("normalised_crps", "crps", "rmse")}
    rows = runs("boston", "MCBN")
    for i, row in enumerate(rows):
        row.update({name: column[i] for name, column in values.items()})
    for table, name in ((4, "normalised_crps"), (6, "crps"), (7, "rmse")):
        cell = only(compare(table, rows), dataset="boston", method="MCBN", metric=name)
        assert cell.runs == 25
        assert cell.ours == pytest.approx(values[name].mean(), rel=1e-12)
        assert cell.our_error == pytest.approx(stats.sem(values[name]), rel=1e-12)
        if table == 4:
            assert cell.our_p == pytest.approx(stats.ttest_1samp(values[name], 0).pvalue, rel=1e-10)
            assert (cell.theirs, cell.their_error, cell.their_p) == (8.5, 0.86, 6.39e-10)
        else:
            assert cell.our_p is None


def test_which_way_is_better():
    for table, metric, change, expected in (
        (6, "crps", -0.5, "better"),
        (6, "crps", 0.5, "worse"),
        (6, "pll", 0.5, "better"),
        (6, "pll", -0.5, "worse"),
        (7, "rmse", -0.5, "better"),
        (7, "rmse", 0.5, "worse"),
        (4, "normalised_crps", 8.0, "better"),
        (4, "normalised_crps", -8.0, "worse"),
        (5, "normalised_pll", 8.0, "better"),
        (5, "normalised_pll", -8.0, "worse"),
    ):
        theirs = paper_fact(table, "boston", "MCBN", metric)
        rows = runs("boston", "MCBN", **{metric: (theirs.value + change, theirs.standard_error)})
        assert only(compare(table, rows), dataset="boston", method="MCBN", metric=metric).verdict == expected
        same = runs("boston", "MCBN", **{metric: (theirs.value, theirs.standard_error)})
        assert only(compare(table, same), dataset="boston", method="MCBN", metric=metric).verdict == "same"


def test_same_ends_at_two_errors_of_the_difference_and_half_a_digit():
    for sign in (-1, 1):
        bound = 2 * np.hypot(0.03, 0.02) + 0.005  # the paper: 1.45 ± 0.02
        for factor, expected in ((0.999, "same"), (1.001, "better" if sign < 0 else "worse")):
            rows = runs("boston", "MCBN", crps=(1.45 + sign * factor * bound, 0.03))
            assert only(compare(6, rows), dataset="boston", method="MCBN", metric="crps").verdict == expected


def test_what_is_missing():
    rows = runs("boston", "MCBN", crps=(1.45, 0.02))
    cells = compare(6, rows)
    assert len(cells) == 3 * 8 * 2
    wine = only(cells, dataset="wine", method="MCBN", metric="crps")
    assert wine == Cell("wine", "MCBN", "crps", None, None, None, 0, 0.34, 0.0, None, "-")
    assert only(cells, dataset="boston", method="MCBN", metric="pll").verdict == "-"
    one_run = only(compare(6, rows[:1]), dataset="boston", method="MCBN", metric="crps")
    assert (one_run.ours, one_run.our_error, one_run.runs, one_run.verdict) == (rows[0]["crps"], None, 1, "-")
    rows[3]["crps"] = ""
    assert only(compare(6, rows), dataset="boston", method="MCBN", metric="crps").runs == 24
    assert all(cell.verdict == "-" for cell in compare(6, []))


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


def test_small_batches_come_from_a_file_of_their_own_and_count_in_tables_8_and_9_only(tmp_path):
    scores = {"normalised_crps": (10.0, 0.1), "normalised_pll": (5.0, 0.1), "crps": (1.0, 0.1), "rmse": (2.0, 0.1)}
    large = runs("boston", "MCBN", setting=128, **scores)
    small = runs("boston", "MCBN", setting=8, splits=3, **{**scores, "normalised_crps": (9.0, 0.1)})
    write(tmp_path / "uci_paper.csv", large)
    without = read_rows(tmp_path / "uci_paper.csv")
    write(tmp_path / "uci_small_batches.csv", [{**row, "preset": "small-batches"} for row in small])
    rows = read_rows(tmp_path / "uci_paper.csv")
    cell = only(compare(8, rows), dataset="boston", setting="M = 8")
    assert (cell.runs, round(cell.ours, 6)) == (15, 9.0)
    assert only(compare(8, rows), dataset="boston", setting="M = 128").ours == pytest.approx(10.0)
    for table in (4, 7, 10):
        assert compare(table, rows) == compare(table, without), table
    text = verdicts(rows)
    assert "CRPS %: 1 of 8 sets, boston (9.0; 10.0); no results for concrete" in text
    assert "PLL %: 0 of 8 sets; not on boston (5.0; 5.0)" in text


def test_significance_by_split_counts_each_split_once():
    scores_of_splits = [1.0, 1.2, 0.9, -0.2, 0.3]
    rows = runs("boston", "MCBN", normalised_crps=(0.0, 0.1))
    for row in rows:
        row["normalised_crps"] = scores_of_splits[row["split"] - 1] + 1e-3 * row["seed"]
    p_of_runs = stats.ttest_1samp([row["normalised_crps"] for row in rows], 0).pvalue
    p_of_splits = stats.ttest_1samp([value + 3e-3 for value in scores_of_splits], 0).pvalue
    assert p_of_runs < 0.05 / 100
    assert 0.05 < p_of_splits < 0.1
    runs_line, splits_line = (line for line in verdicts(rows).splitlines() if line.startswith("- MCBN: "))
    assert runs_line.startswith("- MCBN: 1 of 1")
    assert splits_line == "- MCBN: 0 of 1, unclear on boston"
