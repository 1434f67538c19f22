"""Several targets in one run: a model for each, none of them an input of another."""

import csv
import io
import json

import pytest

from bayesnorm.cli.fitting import split_target_names
from bayesnorm.cli.run_folder import read_runs, target_folders
from bayesnorm.cli.tables import open_table
from bayesnorm.errors import FileFormatError

from ..sealed_runs import seal
from .conftest import QUICK, houses, write_csv

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")


def test_from_fit_to_report(bayesnorm, refuses, tmp_path, monkeypatch):
    data, run = write_csv(tmp_path / "t.csv", houses(40)), tmp_path / "run"
    written = []
    monkeypatch.setattr("bayesnorm.report.write_report", lambda _, path: written.append(path.relative_to(tmp_path)))
    ended = bayesnorm("fit", data, "--target", "price,town", "--out", run, *QUICK)
    assert ended.code == 0, ended.err
    assert [line.split()[1] for line in ended.out.splitlines() if line.startswith("target")] == ["price", "town"]
    facts = [json.loads((run / target / "run.json").read_text()) for target in ("price", "town")]
    assert [fact["task"] for fact in facts] == ["regression", "classification"]
    for fact in facts:
        assert [column["name"] for column in fact["columns"]] == ["area", "age"]
        assert "--target price,town" in fact["command"]
    new = write_csv(tmp_path / "new.csv", [["age", "area"], [40, 100], [40, 1e9]])
    rows = [*csv.DictReader(io.StringIO(bayesnorm("predict", run, new).out))]
    assert list(rows[0])[:2] == ["row", "price mean"]
    assert rows[0].keys() >= {"price lower", "town predicted", "town p(Ede)", "unusual", "reason"}
    assert [row["unusual"] for row in rows] == ["False", "True"]
    assert "area above" in rows[1]["reason"]
    alone = [*csv.DictReader(io.StringIO(bayesnorm("predict", run / "price", new).out))]
    assert alone[0]["mean"] == rows[0]["price mean"]
    told = json.loads(bayesnorm("predict", run, new, "--out", tmp_path / "p.csv", "--json").out)
    assert told["task"] == {"price": "regression", "town": "classification"}
    written.clear()
    assert bayesnorm("report", run).code == bayesnorm("drift", run, new).code == 0
    assert {str(path) for path in written} >= {"run/price/report.html", "run/town/report.html"}
    assert "has 2. Use the folder of one target" in refuses("report", run, "--out", tmp_path / "page.html")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--target", "price,twon"), "--target: "),
        (("--target", ","), "--target: "),
        (("--target", "price", "--target", "town", "--keep", "town"), "--keep and --drop both name 'town'"),
        (("--target", "area", "--target", "price", "--task", "classification"), "'area' has 40 different values"),
    ],
)
def test_what_is_wrong_with_one_is_said_before_any_is_trained(refuses, table, tmp_path, options, says):
    ended = refuses("fit", table, *options, "--out", tmp_path / "run", "--quiet", code=2 if "--keep" in options else 1)
    assert says in ended
    assert not (tmp_path / "run").exists()


def test_a_name_with_a_comma_and_the_same_name_twice_are_one_target(tmp_path):
    file = open_table(write_csv(tmp_path / "t.csv", [['"price, net"', "a", "b"], [1, 2, 3]]))
    assert split_target_names(file, ["price, net", "b, a", "b"]) == ["price, net", "b", "a"]


def test_folders_of_targets(tmp_path):
    assert target_folders(["a b", "a_b", "A_B", "../x", "%"]) == {
        "a b": "a_b",
        "a_b": "a_b_2",
        "A_B": "A_B_3",
        "../x": "x",
        "%": "target",
    }
    facts = {"format": "bayesnorm-run", "version": 1, "targets": {"a": "../x", "b": "y"}}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    seal(tmp_path)
    with pytest.raises(FileFormatError, match="the name of a folder in it"):
        read_runs(tmp_path)
