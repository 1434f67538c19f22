"""`python -m experiments known-noise` on a table that is fitted in a moment."""

import json

from experiments import known_noise


def test_what_is_said_stands_beside_the_truth(experiments, tmp_path, monkeypatch):
    quick = {"encoding": "plain", "hidden": (20,), "dropout_rate": 0.0, "weight_decay": 0.01, "max_epochs": 40}
    monkeypatch.setitem(known_noise.OPTIONS, "quick", {**quick, "members": 3})
    monkeypatch.setattr(known_noise, "NEW_ROWS", 200)
    ended = experiments("known-noise", "--out", tmp_path)
    assert ended.code == 0, ended.err
    (row,) = json.loads((tmp_path / "known_noise.json").read_text())["rows"]
    assert row["noise"] == 1.0
    assert 0.3 < row["said_noise"] < row["rmse"], "noise is a part of the error"
    assert row["said_share"] < 1
    assert row["rmse"] ** 2 > row["uncertainty"] ** 2
    assert f"{row['rows']:,} rows" in ended.out
    again = experiments("known-noise", "--table", "friedman", "--out", tmp_path)
    assert again.out.strip() in ended.out
    assert experiments("known-noise", "--table", "iris").code == 2
