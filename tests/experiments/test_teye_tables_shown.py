"""Our results beside the MCBN paper's: where rows are read from, tables on a screen and a page, and verdicts."""

from __future__ import annotations

import csv
import itertools
import json

import pytest

from bayesnorm.errors import BayesNormError
from experiments.bench import Store, Unit
from experiments.data import UCI_SETS
from experiments.paper_facts import fact
from experiments.teye_tables import TABLES, compare, markdown, read_rows, render, verdicts
from experiments.uci import note_run

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
    assert "above the paper's minus two of its standard errors on 7." in shown  # PLL, without protein


def test_what_the_rows_were_made_on(tmp_path):
    path = write(tmp_path / "rows.csv", the_papers())
    assert render(4, path).splitlines()[1] == "Ours: preset paper."
    head = {
        "preset": "paper",
        "machine": {"device": "H200", "torch": "2.9"},
        "network_steps": 1234567,
        "wall_clock": 5.25,
    }
    path.with_suffix(".json").write_text(json.dumps(head))
    shown = " ".join(render(4, path).split())  # lines are wrapped
    assert "preset paper; machine (device H200, torch 2.9), network steps 1,234,567, wall clock 5.25." in shown
    for bad in ("{", "[1]"):
        path.with_suffix(".json").write_text(bad)
        with pytest.raises(BayesNormError, match=r"rows\.json next to it"):
            render(4, path)


def test_rows_from_a_store(tmp_path):
    rows = [row for row in the_papers() if row["dataset"] == "yacht" and row["method"] in ("MCBN", "MNF")]
    with Store(tmp_path / "one.db") as store:
        for row in rows:
            keys = ("preset", "dataset", "family", "setting", "split", "seed", "method")
            result = {name: value for name, value in row.items() if name not in keys}
            store.add_result(Unit("uci", "any:name", {name: row[name] for name in keys}), result)
        assert compare(6, read_rows(store=store)) == compare(6, rows)
        assert "same" in render(6, store=store)
    assert "same" in render(6, store=tmp_path / "one.db")
    with Store(tmp_path / "lists.db") as store:
        for i, part in enumerate((rows[:20], rows[20:])):  # as the benchmark's own units are
            chosen = [{**row, "cv_rmse": 1.0 if row["chosen"] else 2.0} for row in part]
            shared = {name: part[0][name] for name in ("preset",)}
            store.add_result(Unit("uci-paper", "any:name", {**shared, "seed": i}), {"rows": chosen})
        store.add_result(Unit("other", "any:name", {}), 1)
        assert compare(6, read_rows(store=store, experiment="uci-paper")) == compare(6, rows)
        with pytest.raises(BayesNormError, match="must be one of 'other', 'uci-paper'"):
            read_rows(store=store)
    with pytest.raises(BayesNormError, match="were both given"):
        read_rows("rows.csv", store=tmp_path / "one.db")
    with pytest.raises(BayesNormError, match=r"there is no file .*no\.db"):
        read_rows(store=tmp_path / "no.db")
    assert not (tmp_path / "no.db").exists()


def test_a_store_with_the_time_that_runs_took(tmp_path):
    """As `python -m experiments uci` leaves it."""
    with Store(tmp_path / "s.db") as store:
        part = [{**row, "cv_rmse": 1.0} for row in runs("boston", "MCBN", crps=(1.45, 0.02))]
        store.add_result(Unit("uci-paper", "any:name", {"preset": "paper", "dataset": "boston"}), {"rows": part})
        note_run(store, "paper", seconds=1.0, workers=1, finished=1)
        assert len(read_rows(store=store)) == 25


def test_files_that_other_programs_wrote(tmp_path):
    path = write(tmp_path / "rows.csv", the_papers())
    plain = render(6, path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    assert render(6, path) == plain
    for content in (b"\xff\xfe", b"x" * 200_000):
        path.write_bytes(content)
        with pytest.raises(BayesNormError, match=r"rows_path: .*rows\.csv is not a CSV file"):
            read_rows(path)


def test_no_results_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BayesNormError, match=r"uci_paper\.csv does not exist. Run `python -m experiments uci --preset paper"
    ):
        render(4)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "uci_paper.csv").write_text("dataset,method\n")
    with pytest.raises(BayesNormError, match="has no rows"):
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


def test_the_batch_size_of_training_may_be_chosen_by_crps_too():
    def at(size, cv_crps, normalised_crps):
        found = runs("yacht", "MCBN", chosen=int(size == 32), setting=size, normalised_crps=(normalised_crps, 1.0))
        return [row | {"cv_crps": cv_crps} for row in found]

    rows = at(32, 0.9, -50.0) + at(64, 0.7, 20.0) + at(128, 0.8, -30.0) + at(256, float("nan"), -30.0)
    lines = verdicts(rows).splitlines()
    assert "- MCBN: 0 of 1, below 0 on yacht; the paper's 7 of 8, below 0 on yacht" in lines
    assert "- MCBN, M of training by CRPS: 1 of 1" in lines
    untold = verdicts([{**row, "cv_crps": None} for row in rows])
    assert "of training" not in untold


def test_commands_print(tmp_path, experiments):
    path = write(tmp_path / "rows.csv", the_papers())
    for table in TABLES:
        assert experiments(f"teye-table{table}", "--rows", path).out.startswith(f"Table {table} of Teye")
    assert experiments("teye-verdicts", "--rows", path).out.startswith("MCBN against the paper's MCBN")
    ended = experiments("teye-verdicts", "--rows", tmp_path / "none.csv")
    assert ended.code == 1
    assert "none.csv does not exist" in ended.err
