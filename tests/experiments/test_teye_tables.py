"""Our results beside the MCBN paper's: means, errors, stars and verdicts of made-up runs."""

import numpy as np
import pytest
from scipy import stats

from experiments.teye_tables import Cell, compare
from experiments.teye_tables.cells import paper_fact

from .made_up_runs import runs


def only(cells, **wanted):
    (found,) = [cell for cell in cells if all(getattr(cell, name) == value for name, value in wanted.items())]
    return found


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
