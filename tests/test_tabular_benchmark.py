"""The comparison on tables: scores, runs that are gone on with, and what tables say of runs that are not complete."""

import json

import numpy as np
import torch

from benchmarks.tabular_forecasts import QUANTILES, by_quantiles, normal
from benchmarks.tabular_runs import LeftOut, go_on, parser
from benchmarks.tabular_tables import Score, score_table


def test_crps_of_quantiles_is_at_most_half_a_percent_below_that_of_the_distribution():
    y = np.random.default_rng(0).normal(size=4_000)
    forecast = normal(np.zeros_like(y), np.ones_like(y))
    assert 0.995 < forecast.extra(y)["crps_from_quantiles"] / forecast.crps(y) < 1


def test_crossing_quantiles_are_sorted_and_their_mean_is_the_mean():
    crossing = (QUANTILES + 2)[None, ::-1].repeat(3, axis=0)
    forecast = by_quantiles(crossing)
    np.testing.assert_allclose([forecast.lower[0], forecast.mean[0], forecast.upper[0]], [2.05, 2.5, 2.95])


def test_a_second_run_goes_on_with_what_is_missing(tmp_path, capsys):
    def options(*arguments):
        names = parser("", ["a", "b"], ["slow", "fast", "absent"], str(tmp_path / "found.json"))
        return names.parse_args([*arguments, "--threads", str(torch.get_num_threads())])

    asked = []

    def measured(*unit):
        asked.append(unit)
        if unit[1] == "slow":
            raise LeftOut("too slow")
        return {"crps": float(unit[2])}

    needed = {"absent": "no_package_of_that_name"}
    go_on(options("--sets", "a", "--splits", "1"), measured, needed)
    assert asked == [("a", "slow", 1), ("a", "fast", 1)]
    assert "not run: absent" in capsys.readouterr().out
    # What one split left out is not tried on the others.
    rows = go_on(options("--sets", "a", "--splits", "2"), measured, needed)
    assert asked[2:] == [("a", "fast", 2)]
    assert rows == json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row.get("left out") for row in rows] == ["too slow", None, "too slow", None]
    rows = go_on(options("--sets", "a", "--splits", "2", "--models", "fast", "--again"), measured, needed)
    assert asked[3:] == [("a", "fast", 1), ("a", "fast", 2)]
    assert len(rows) == 4


def test_models_with_fewer_splits_say_so_and_are_not_the_best():
    done = {"good": [1.0, 1.2], "bad": [2.0, 2.2], "hasty": [0.5]}
    rows = [
        {"set": "a", "model": model, "split": split, "crps": value}
        for model, values in done.items()
        for split, value in enumerate(values, 1)
    ]
    lines = score_table(rows, ["a"], [*done, "none"], Score("crps", "CRPS", best=True)).splitlines()[2:]
    assert lines == ["| good | 1.10 ± 0.10 |", "| bad | 2.10 ± 0.10 |", "| hasty | 0.50 (1) |"]
    # Nobody is the best while the hasty one's mean is lower, and could stay so.
    lines = score_table(rows[:-1], ["a"], list(done), Score("crps", "CRPS", best=True)).splitlines()[2:]
    assert lines == ["| good | **1.10 ± 0.10** |", "| bad | 2.10 ± 0.10 |"]
