"""Our results beside the MCBN paper's: means, errors, stars and verdicts of made-up runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from bayesnorm.errors import BayesNormError
from experiments.teye_tables import Cell, compare, verdicts
from experiments.teye_tables.cells import paper_fact

from .made_up_runs import runs, the_papers

# Table 1 as the paper prints it, MCBN, MCDO and MNF, CRPS and then PLL.
TABLE_1 = {
    "boston": "8.50 **** 3.06 **** 5.88 **** 10.49 **** 5.51 **** 1.76 ns",
    "concrete": "3.91 **** 0.93 * 3.13 *** -36.36 ** 10.92 **** -2.16 ns",
    "energy": "5.75 **** 1.37 ns 1.10 ns 10.89 **** -14.28 * -33.88 ns",
    "kin8nm": "2.85 **** 1.82 **** 0.53 ns 1.68 *** -0.26 ns 0.42 ns",
    "power": "0.24 *** -0.44 **** -0.89 **** 0.33 ** 3.52 **** -0.87 ****",
    "protein": "2.66 **** 0.99 **** 0.57 **** 2.56 **** 6.23 **** 0.52 ****",
    "wine": "0.26 ** 2.00 **** 0.94 **** 0.19 * 2.91 **** 0.83 ****",
    "yacht": "-56.39 *** 21.42 **** 24.92 **** 45.58 **** -41.54 ns 46.19 ****",
}


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


def test_rounding_is_no_difference():
    """The paper prints 0.04 ± 0.00 for kin8nm."""
    for mean, expected in ((0.0449, "same"), (0.0455, "worse"), (0.0351, "same"), (0.0345, "better")):
        rows = runs("kin8nm", "MCBN", crps=(mean, 1e-5))
        assert only(compare(6, rows), dataset="kin8nm", method="MCBN", metric="crps").verdict == expected


def test_within_two_of_the_papers_errors():
    def found(mean):
        rows = runs("boston", "MCBN", crps=(mean, 0.03), pll=(mean - 3.83, 0.03))
        return [only(compare(6, rows), dataset="boston", method="MCBN", metric=m) for m in ("crps", "pll")]

    assert [cell.within_two_errors for cell in found(1.489)] == [True, True]
    assert [cell.within_two_errors for cell in found(1.491)] == [False, True]
    assert [cell.within_two_errors for cell in found(1.409)] == [True, False]
    assert [cell.verdict for cell in found(1.491)] == ["same", "same"], "by the standard error of the difference"
    missing = only(compare(6, runs("boston", "MCBN", crps=(1.0, 0.1))), dataset="wine", method="MCBN", metric="crps")
    assert not missing.within_two_errors


def test_table_1_is_the_papers_but_for_what_the_docstring_names():
    cells = compare(1, the_papers())
    differing = []
    for dataset, line in TABLE_1.items():
        words = line.split()
        printed = iter(zip(words[::2], words[1::2], strict=True))
        for metric, method in itertools.product(("normalised_crps", "normalised_pll"), ("MCBN", "MCDropout", "MNF")):
            cell = only(cells, dataset=dataset, method=method, metric=metric)
            marks = ["ns", "*", "**", "***", "****"]
            shown = (f"{cell.theirs:.2f}", marks[sum(cell.their_p <= bound for bound in (0.05, 0.01, 0.001, 0.0001))])
            value = next(printed)
            if shown != value:
                differing.append((dataset, method, metric, value, shown))
    assert differing == [
        ("kin8nm", "MNF", "normalised_crps", ("0.53", "ns"), ("0.52", "ns")),
        ("power", "MCBN", "normalised_pll", ("0.33", "**"), ("0.33", "*")),
        ("power", "MNF", "normalised_pll", ("-0.87", "****"), ("-0.86", "****")),
        ("wine", "MNF", "normalised_crps", ("0.94", "****"), ("0.93", "****")),
    ]


def test_the_papers_own_numbers_are_the_same():
    for table, count in ((1, 48), (4, 24), (5, 24), (6, 48), (7, 40)):
        cells = compare(table, the_papers())
        assert [cell.verdict for cell in cells] == ["same"] * count
        assert all(cell.within_two_errors for cell in cells)
    assert {cell.verdict for cell in compare(7, the_papers(change=10)) if cell.their_error} == {"worse"}
    assert {cell.verdict for cell in compare(5, the_papers(change=10))} == {"better"}


def test_only_chosen_rows_count():
    rows = runs("boston", "MCBN", crps=(1.45, 0.02))
    rows += runs("boston", "MCBN", crps=(9.0, 0.02), chosen=0, setting=128)
    cell = only(compare(6, rows), dataset="boston", method="MCBN", metric="crps")
    assert (cell.ours, cell.runs) == (pytest.approx(1.45), 25)


def test_rows_as_text_are_the_same_as_numbers():
    rows = the_papers()
    assert compare(6, [{name: str(value) for name, value in row.items()} for row in rows]) == compare(6, rows)


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


def test_a_failed_run_is_not_hidden():
    for bad in (float("nan"), float("-inf")):
        rows = runs("boston", "MCBN", pll=(-2.0, 0.01), normalised_pll=(20.0, 1.0))
        rows[3].update(pll=bad, normalised_pll=bad)
        raw = only(compare(6, rows), dataset="boston", method="MCBN", metric="pll")
        assert np.isnan(raw.ours)
        assert (raw.runs, raw.verdict) == (25, "worse")
        scaled = only(compare(5, rows), dataset="boston", method="MCBN", metric="normalised_pll")
        assert scaled.verdict == "worse"
        rows[3]["normalised_crps"], rows[4]["normalised_crps"] = bad, 1.0
        assert "- MCBN: 0 of 1, unclear on boston" in verdicts(rows)


def test_methods_that_the_paper_has_not():
    rows = the_papers()
    for name in ("CUBN", "MCBN centred", "MCBN M' by CRPS"):
        rows += runs("energy", name, crps=(0.3, 0.01), rmse=(0.5, 0.01), normalised_crps=(0.0, 0.1))
    of = {table: list(dict.fromkeys(cell.method for cell in compare(table, rows))) for table in (4, 6, 7)}
    assert of[4] == ["MCBN", "MCDropout", "MNF", "MCBN centred", "MCBN M' by CRPS"], "CUBN is the zero itself"
    assert of[6] == ["MCBN", "MCDropout", "MNF", "CUBN", "MCBN centred", "MCBN M' by CRPS"]
    assert of[7] == ["MCBN", "BN", "MCDropout", "DO", "MNF", "MCBN centred", "MCBN M' by CRPS"]
    cell = only(compare(4, rows), dataset="energy", method="MCBN centred")
    assert (cell.theirs, cell.verdict, cell.runs) == (None, "-", 25)


def test_precision_chosen_by_pll_is_compared_with_the_papers():
    rows = runs("boston", "MCBN", pll=(-2.38, 0.02), pll_own=(-2.0, 0.02), normalised_pll_own=(10.49, 1.35))
    cells = compare(6, rows)
    assert only(cells, dataset="boston", method="MCBN", metric="pll").verdict == "same"
    own = only(cells, dataset="boston", method="MCBN", metric="pll_own")
    assert (own.theirs, own.verdict) == (-2.38, "better")
    assert only(compare(5, rows), dataset="boston", method="MCBN", metric="normalised_pll_own").verdict == "same"
    assert {cell.metric for cell in compare(1, rows)} == {"normalised_crps", "normalised_pll"}


def test_tables_over_batch_sizes_take_all_settings():
    rows = runs("yacht", "MCBN", chosen=0, setting=32, normalised_crps=(-30.4, 5.0), normalised_pll=(0.0, 5.0))
    rows += runs("yacht", "MCBN", chosen=1, setting=64, normalised_crps=(60.0, 5.0))
    rows += runs("yacht", "MCBN centred", setting=32, normalised_crps=(0.0, 5.0))
    cells = compare(8, rows)
    assert [cell.setting for cell in cells[:8]] == [f"M = {2**k}" for k in range(3, 11)]
    assert only(cells, dataset="yacht", setting="M = 32").verdict == "same"
    assert only(cells, dataset="yacht", setting="M = 64").verdict == "better"
    assert only(cells, dataset="yacht", setting="M = 128").verdict == "-"
    assert only(compare(9, rows), dataset="yacht", setting="M = 32").verdict == "worse"  # 76.8


def test_the_papers_missing_errors_are_taken_from_our_runs():
    """25 runs with standard error 1 mean sqrt(25 / 15) for 15 runs; 7.2 in table 8, printed to one digit."""
    bound = 2 * np.hypot(1.0, np.sqrt(25 / 15)) + 0.05
    for factor, expected in ((0.999, "same"), (1.001, "better")):
        rows = runs("boston", "MCBN", setting=64, normalised_crps=(7.2 + factor * bound, 1.0))
        cell = only(compare(8, rows), dataset="boston", setting="M = 64")
        assert (cell.verdict, cell.their_error) == (expected, None)


def test_tables_over_samples_need_to_know_the_samples():
    plain = runs("boston", "MCBN", setting=128, normalised_crps=(8.0, 1.0))
    assert {cell.verdict for cell in compare(10, plain)} == {"-"}
    rows = list(plain)
    for passes, mean in ((50, 3.2), (100, 2.7), (250, 60.0)):
        told = runs("boston", "MCBN", setting=128, chosen=1, normalised_crps=(mean, 1.0))
        rows += [{**row, "passes": passes} for row in told]
    found = {cell.setting: cell for cell in compare(10, rows) if cell.dataset == "boston"}
    assert [cell.verdict for cell in found.values()] == ["same", "same", "better"]
    assert list(found) == ["T = 50", "T = 100", "T = 250"]
    assert only(compare(8, rows), dataset="boston", setting="M = 128").ours == pytest.approx(2.7)
    assert only(compare(4, rows), dataset="boston", method="MCBN").ours == pytest.approx(8.0), "the benchmark's own"
    told = [{**row, "passes": row.get("passes", 500)} for row in rows]
    assert only(compare(4, told), dataset="boston", method="MCBN").ours == pytest.approx(8.0)


def test_rows_that_cannot_be_used():
    rows = runs("boston", "MCBN", crps=(1.45, 0.02))
    with pytest.raises(BayesNormError, match=r"table must be .*one of 1, 4, 5.*, got 3"):
        compare(3, rows)
    with pytest.raises(BayesNormError, match="MCBN on boston, split 1, seed 1 occurs twice"):
        compare(6, rows + rows[:1])
    with pytest.raises(BayesNormError, match="presets 'paper', 'quick'"):
        compare(6, [*rows, {**rows[0], "preset": "quick"}])
    with pytest.raises(BayesNormError, match="one has no chosen"):
        compare(6, [{name: value for name, value in rows[0].items() if name != "chosen"}])
    with pytest.raises(BayesNormError, match="crps must be a number or empty, got 'low'"):
        compare(6, [{**rows[0], "crps": "low"}])


def told(rows, passes):
    return [{**row, "passes": passes} for row in rows]


def test_sizes_without_fewer_samples_have_the_benchmarks_own():
    """The benchmark keeps scores of fewer samples at M = 128 alone; the other sizes must not go with that."""
    for table, metric in ((8, "normalised_crps"), (9, "normalised_pll")):
        rows = []
        for name in ("boston", "yacht"):
            for size, mean in ((32, 11.0), (64, 7.0), (128, 3.0)):
                rows += runs(name, "MCBN", setting=size, **{metric: (mean, 1.0)})
        for passes, mean in ((50, 1.0), (100, 2.0)):
            rows += told(runs("boston", "MCBN", setting=128, **{metric: (mean, 1.0)}), passes)
        found = {(cell.dataset, cell.setting): cell for cell in compare(table, rows)}
        expected = {("boston", 32): 11.0, ("boston", 64): 7.0, ("boston", 128): 2.0, ("yacht", 128): 3.0}
        for (name, size), mean in expected.items():
            cell = found[name, f"M = {size}"]
            assert cell.ours == pytest.approx(mean), (name, size)
            assert cell.runs == 25
        assert found["boston", "M = 256"].runs == 0
