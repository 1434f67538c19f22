"""Our results beside the MCBN paper's: means, errors, stars and verdicts of made-up runs, and how they are shown."""

from __future__ import annotations

import csv
import itertools
import json
import sys

import numpy as np
import pytest
from scipy import stats

from bayesnorm.bench import Store, Unit
from bayesnorm.data import UCI_SETS
from bayesnorm.errors import BayesNormError
from bayesnorm.experiments.paper_facts import fact
from bayesnorm.experiments.teye_tables import TABLES, Cell, compare, markdown, read_rows, render, verdicts
from bayesnorm.experiments.teye_tables.__main__ import main
from bayesnorm.experiments.teye_tables.cells import paper_fact

FAMILIES = {"MCDropout": ("dropout", 0.05), "DO": ("dropout", 0.05), "MNF": ("mnf", "")}
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


def runs(dataset, method, *, splits=5, seeds=5, chosen=1, setting=None, seed=0, **means):
    """Rows of 25 runs whose scores scatter about given means, (mean, standard error) each; exactly those."""
    family, usual = FAMILIES.get(method, ("bn", 64))
    noise = np.random.default_rng(seed).normal(size=(splits * seeds, len(means)))
    noise = (noise - noise.mean(0)) / noise.std(0, ddof=1) * len(noise) ** 0.5
    values = {name: mean + error * noise[:, i] for i, (name, (mean, error)) in enumerate(means.items())}
    return [
        {
            "preset": "paper",
            "dataset": dataset,
            "family": family,
            "setting": usual if setting is None else setting,
            "split": split,
            "seed": one,
            "method": method,
            "chosen": chosen,
            **{name: float(column[i]) for name, column in values.items()},
        }
        for i, (split, one) in enumerate(itertools.product(range(1, splits + 1), range(1, seeds + 1)))
    ]


def the_papers(change=0.0):
    """Rows whose means and errors are the paper's; all means moved by `change` of those errors."""
    rows = []
    for dataset, method in itertools.product(UCI_SETS, ("MCBN", "MCDropout", "MNF", "BN", "DO")):
        means = {}
        for table, names in {4: ["normalised_crps"], 5: ["normalised_pll"], 6: ["crps", "pll"], 7: ["rmse"]}.items():
            for name in names:
                if known := paper_fact(table, dataset, method, name):
                    error = known.standard_error
                    means[name] = (known.value + change * error, error)
        rows += runs(dataset, method, **means)
    return rows


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


@pytest.mark.parametrize(
    ("table", "metric", "change", "expected"),
    [
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
    ],
)
def test_which_way_is_better(table, metric, change, expected):
    theirs = paper_fact(table, "boston", "MCBN", metric)
    rows = runs("boston", "MCBN", **{metric: (theirs.value + change, theirs.standard_error)})
    assert only(compare(table, rows), dataset="boston", method="MCBN", metric=metric).verdict == expected
    same = runs("boston", "MCBN", **{metric: (theirs.value, theirs.standard_error)})
    assert only(compare(table, same), dataset="boston", method="MCBN", metric=metric).verdict == "same"


@pytest.mark.parametrize("sign", [-1, 1])
def test_same_ends_at_two_errors_of_the_difference_and_half_a_digit(sign):
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


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_failed_run_is_not_hidden(bad):
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


def test_tables_over_draws_need_to_know_the_draws():
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
    with pytest.raises(BayesNormError, match="table: 3 was given; one of 1, 4, 5"):
        compare(3, rows)
    with pytest.raises(BayesNormError, match="MCBN on boston, split 1, seed 1 is there twice"):
        compare(6, rows + rows[:1])
    with pytest.raises(BayesNormError, match="presets 'paper', 'quick'"):
        compare(6, [*rows, {**rows[0], "preset": "quick"}])
    with pytest.raises(BayesNormError, match="one has no chosen"):
        compare(6, [{name: value for name, value in rows[0].items() if name != "chosen"}])
    with pytest.raises(BayesNormError, match="crps is 'low'; a number"):
        compare(6, [{**rows[0], "crps": "low"}])


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


@pytest.mark.parametrize("table", TABLES)
def test_tables_fit_a_screen_and_show_all(table, wide_rows, tmp_path):
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


def test_a_line_of_a_table(wide_rows, tmp_path):
    path = write(tmp_path / "rows.csv", wide_rows)
    (line,) = [line for line in render(4, path).split("MCDropout")[0].splitlines() if line.startswith("  yacht")]
    assert line.split() == ["yacht", "-56.39", "±", "14.27", "***", "-56.39", "±", "14.27", "***", "same", "25"]
    (line,) = [line for line in render(7, path).split("\nBN")[0].splitlines() if line.startswith("  kin8nm")]
    assert line.split() == ["kin8nm", "0.0700", "±", "0.0000", "0.07", "±", "0.00", "same", "25"]
    (line,) = [line for line in render(1, path).split("MCDropout")[0].splitlines() if line.startswith("  power")]
    assert line.split() == ["power", "0.24", "****", "0.24", "***", "same", "0.33", "*", "0.33", "*", "same", "25"]
    assert "| power | 0.24 \\*\\*\\*\\* | 0.24 \\*\\*\\* | same |" in markdown(1, wide_rows)
    lines = render(8, path).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  concrete"))
    assert lines[start].split()[:2] == ["concrete", "ours"]
    assert lines[start].split()[2:] == ["-", "-", "-528.4±100.0", "3.9±0.2", "-528.4±100.0", "-528.4±100.0", "-", "-"]
    assert lines[start + 1].split() == ["paper", "-34.5", "6.0", "5.0", "5.1", "2.9", "1.4", "0.6", "0.0"]
    assert lines[start + 2].split() == ["-", "-", "worse", "worse", "worse", "worse", "-", "-"]


def test_counts_at_the_end(tmp_path):
    rows = [row for row in the_papers() if row["dataset"] != "protein" or row["method"] != "MCBN"]
    for row in rows:
        row["crps"] = row.get("crps", 0) + (1.0 if row["dataset"] == "boston" else 0.0)
        row["crps"] -= 0.2 if row["dataset"] == "yacht" else 0.0
    shown = " ".join(render(6, write(tmp_path / "rows.csv", rows)).split())
    assert (
        "MCBN, CRPS: better 1, same 5, worse 1, missing 1 of 8 cells; "
        "at or below the paper's plus two of its standard errors on 6."
    ) in shown
    assert "above the paper's less two of its standard errors on 7." in shown  # PLL, without protein


def test_what_the_rows_were_made_on(tmp_path):
    path = write(tmp_path / "rows.csv", the_papers())
    assert render(4, path).splitlines()[1] == "Ours: preset paper."
    head = {"machine": {"device": "H200", "torch": "2.9"}, "network_steps": 1234567, "wall_clock": 5.25}
    path.with_suffix(".json").write_text(json.dumps(head))
    shown = " ".join(render(4, path).split())  # lines are wrapped
    assert "preset paper; machine (device H200, torch 2.9), network steps 1,234,567, wall clock 5.25." in shown
    for bad in ("{", "[1]"):
        path.with_suffix(".json").write_text(bad)
        with pytest.raises(BayesNormError, match=r"rows\.json beside it"):
            render(4, path)


def test_rows_from_a_store(tmp_path):
    rows = the_papers()
    with Store(tmp_path / "one.db") as store:
        for row in rows:
            keys = ("preset", "dataset", "family", "setting", "split", "seed", "method")
            result = {name: value for name, value in row.items() if name not in keys}
            store.add_result(Unit("uci", "bayesnorm.none:none", {name: row[name] for name in keys}), result)
        assert compare(6, read_rows(store=store)) == compare(6, rows)
        assert "same" in render(6, store=store)
    assert "same" in render(6, store=tmp_path / "one.db")
    with Store(tmp_path / "lists.db") as store:
        for i, part in enumerate((rows[:500], rows[500:])):  # as the benchmark's own units are
            chosen = [{**row, "cv_rmse": 1.0 if row["chosen"] else 2.0} for row in part]
            shared = {name: part[0][name] for name in ("preset",)}
            store.add_result(Unit("uci-paper", "bayesnorm.none:none", {**shared, "part": i}), {"rows": chosen})
        store.add_result(Unit("other", "bayesnorm.none:none", {}), 1)
        assert compare(6, read_rows(store=store, experiment="uci-paper")) == compare(6, rows)
        with pytest.raises(BayesNormError, match="holds 'other', 'uci-paper'"):
            read_rows(store=store)
    with pytest.raises(BayesNormError, match="both were given"):
        read_rows("rows.csv", store=tmp_path / "one.db")
    with pytest.raises(BayesNormError, match=r"no\.db is not there"):
        read_rows(store=tmp_path / "no.db")
    assert not (tmp_path / "no.db").exists()


def test_no_results_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BayesNormError, match=r"uci_paper\.csv is not there; `bayesnorm bench uci --preset paper"):
        render(4)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "uci_paper.csv").write_text("dataset,method\n")
    with pytest.raises(BayesNormError, match="holds no rows"):
        render(4)
    write(tmp_path / "results" / "uci_paper.csv", the_papers())
    assert "same" in render(4)


def test_verdicts_name_the_sets():
    rows = the_papers()
    chosen = "MCBN M' by CRPS"
    for dataset in UCI_SETS[:-1]:  # no yacht
        theirs = fact("teye2018", 6, dataset, "MCDO", "crps")
        rows += runs(
            dataset,
            chosen,
            crps=(theirs.value + (1.0 if dataset == "boston" else 0), 0.01),
            normalised_crps=({"wine": 0.0, "power": -5.0}.get(dataset, 5.0), 0.5),
        )
    for row in rows:
        if (row["dataset"], row["method"]) == ("energy", "MCBN"):
            row["rmse"] += 0.05  # 0.59 ± 0.02: two errors are 0.04, of the difference 0.057
        if (row["dataset"], row["method"]) == ("concrete", "MCBN"):
            row["rmse"] += 1.0
            row["pll_own"], row["normalised_pll_own"] = row["pll"] + 1, row["normalised_pll"] + 50
    said = verdicts(rows)
    lines = [line.strip() for line in said.splitlines()]
    assert max(map(len, said.splitlines())) <= 120
    assert any("raw CRPS at or below the paper's plus two standard errors: 8 of 8" in line for line in lines)
    assert any("RMSE at or below the paper's plus two standard errors: 6 of 8 sets (boston, kin8nm" in x for x in lines)
    assert "only within our own standard error or the paper's rounding: energy (0.640 ± 0.020; 0.59 ± 0.02)" in lines
    assert "not: concrete (5.780 ± 0.090; 4.78 ± 0.09)" in lines
    assert "- MCBN: 7 of 8, below 0 on yacht; the paper's 7 of 8, below 0 on yacht" in lines
    assert f"- {chosen}: 5 of 7, unclear on wine, below 0 on power" in lines
    after = said.split("against the paper's MC dropout")[1]
    assert "two standard errors: 6 of 8 sets (concrete, energy" in after
    assert "not: boston (2.410 ± 0.010; 1.41 ± 0.02)" in after
    assert "no results: yacht" in after
    assert (
        "- concrete, MCBN, PLL: -3.450 ± 0.110 (same) by CRPS, -2.450 ± 0.110 (better) by PLL; the paper -3.45 ± 0.11"
        in lines
    )
    assert any(line.startswith("- yacht, MCDropout, PLL: -2.570 ± 0.690 (same) by CRPS; the paper") for line in lines)


def test_main_prints(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "rows.csv", the_papers())
    monkeypatch.setattr(sys, "argv", ["teye_tables", "--rows", str(path)])
    main()
    printed = capsys.readouterr().out
    assert all(f"Table {table} of Teye" in printed for table in TABLES)
    assert "MCBN against the paper's MCBN" in printed
    monkeypatch.setattr(sys, "argv", ["teye_tables", "6", "--rows", str(tmp_path / "none.csv")])
    with pytest.raises(SystemExit):
        main()
    assert "none.csv is not there" in capsys.readouterr().err
