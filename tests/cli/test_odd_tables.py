"""Tables that are read in full, but not as their owner may think: what is said of them, and what becomes of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bayesnorm.cli.run_folder import new_run
from bayesnorm.errors import BayesNormError

from .conftest import houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install 'bayesnorm[tabular]'")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bayesnorm[tabular]'")


def with_column(lines, name, cells):
    return [[name, *lines[0]], *([cell, *line] for cell, line in zip(cells, lines[1:], strict=True))]


def test_text_that_differs_in_most_rows_is_told(fit, facts, tmp_path):
    days = np.datetime_as_string(np.datetime64("2020-01-01") + np.arange(40))
    data = write_csv(tmp_path / "t.csv", with_column(houses(40), "sold on", days))
    ended = fit(data=data)
    assert ended.code == 0
    told = "sold on holds text such as '2020-01-01' that is different in most rows"
    assert ended.err.count(told) == 1
    assert "--drop 'sold on'" in ended.err
    (warning,) = facts()["warnings"]
    assert warning.startswith(told)


def test_text_that_comes_again_is_not(regression_run):
    assert json.loads((regression_run.run / "run.json").read_text())["warnings"] == []


def test_classes_that_words_for_nothing_stand_for_are_told(fit, tmp_path):
    lines = with_column(houses(45), "risk", ["None", "low", "high"] * 15)
    ended = fit(data=write_csv(tmp_path / "t.csv", lines), target="risk")
    assert ended.code == 0
    assert (
        "15 rows without a value in risk were left out. (Words such as NA, None and null are no values.)" in ended.err
    )


@pytest.mark.parametrize(("pair", "classes"), [((0.5, 1.5), ["0.5", "1.5"]), ((1e30, -2e30), ["-2e+30", "1e+30"])])
def test_two_numbers_of_any_kind_are_classes(fit, facts, tmp_path, pair, classes):
    ended = fit(data=write_csv(tmp_path / "t.csv", with_column(houses(40), "y", pair * 20)), target="y", page=True)
    assert ended.code == 0, ended.err
    assert "warning" not in ended.err
    assert facts()["classes"] == classes


def test_one_held_out_row(fit, facts, tmp_path):
    ended = fit("--test-fraction", 0.1, data=write_csv(tmp_path / "t.csv", houses(12)), page=True)
    assert ended.code == 0
    assert "nan" not in ended.out
    assert facts()["scores"]["r2"] is None
    json.loads((tmp_path / "run" / "run.json").read_text(), parse_constant=pytest.fail)
    page = tmp_path / "run" / "report.html"
    if page.exists():
        assert ">nan<" not in page.read_text()


def test_whatever_a_table_holds_stays_text_on_the_page(fit, tmp_path):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install 'bayesnorm[report]'")
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'bayesnorm[plots]'")
    evil = "<script>alert('x')</script>"
    lines = with_column(houses(40), f"a {evil}", [f"{evil} 1", "<img src=x onerror=alert(1)>"] * 20)
    lines[0][lines[0].index("town")] = "<b>town</b>"
    data = write_csv(tmp_path / "<i>t.csv", lines)
    assert fit(data=data, target="<b>town</b>", page=True).code == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<script>") == 1
    assert not any(tag in page for tag in ("<script>alert", "<img", "<b>town", "<i>t"))
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page


def test_a_link_stays_one(fit, facts, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to("real")
    for options in ((), ("--force",)):
        assert fit("--quiet", *options).code == 0
        assert (tmp_path / "run").is_symlink()
        assert facts()["target"] == "price"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["houses.csv", "real", "run"]


def test_a_run_that_somebody_made_meanwhile_is_not_replaced(tmp_path):
    def both():
        with new_run(tmp_path / "run") as working:
            (working / "mine").touch()
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "theirs").touch()

    with pytest.raises(BayesNormError, match=r"--out: .*run was made by somebody else meanwhile"):
        both()
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "theirs"]
