"""Pictures of the regression benchmark: what is in them, of whichever preset the results are."""

import csv
import json

import pytest

from bayesnorm.errors import BayesNormError
from experiments import teye_uncertainty

CURVE = [
    {"effective_batch_size": size, "normalised_crps_mean": score, "normalised_crps_error": 0.5}
    for size, score in ((16.0, -90.0), (64.0, -5.0), (256.0, 10.0), (8192.0, 2.0))
]


def header(preset="quick"):
    points = {"error": [0.1, -0.5, 2.0], "std": [0.5, 1.0, 1.5], "constant_std": [1.0]}
    return {
        "preset": preset,
        "curves": [{"dataset": "yacht", "setting": 32.0, "curve": CURVE}],
        "points": [{"dataset": "yacht", "family": "bn", "setting": 32.0, "points": points}],
    }


def rows(preset="quick"):
    shared = {"preset": preset, "dataset": "yacht", "method": "MCBN", "setting": "128.0"}
    scores = [("", 8.0), ("", 10.0), ("2", 1.0), ("2", 2.0)]
    found = [shared | {"passes": t, "normalised_crps": str(v), "normalised_pll": str(-v)} for t, v in scores]
    return [*found, {**found[0], "setting": "64.0"}, {**found[0], "method": "MCBN centred"}]


def test_pictures_are_drawn_of_what_there_is(tmp_path, capsys):
    table = tmp_path / "uci quick.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows()[0].keys())
        writer.writeheader()
        writer.writerows(rows())
    with pytest.raises(
        BayesNormError,
        match=r"--rows: .*uci quick\.json does not exist. Run `python -m experiments export`, which writes",
    ):
        teye_uncertainty.main(table, tmp_path / "out")
    table.with_suffix(".json").write_text(json.dumps(header()))
    teye_uncertainty.main(table, tmp_path / "out")
    drawn = ["uci_batch_size.png", "uci_samples.png", "uci_uncertainty.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == drawn
    assert sorted(line.rsplit("/", 1)[-1] for line in capsys.readouterr().out.split("\n")[:-1]) == drawn
