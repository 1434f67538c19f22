"""Tables that are read in full, but not as their owner may think: what is said of them, and what becomes of them."""

import json

import pytest

from bayesnorm.cli.run_folder import new_run
from bayesnorm.cli.stored_report import report_from_values
from bayesnorm.errors import BayesNormError

from .conftest import houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")


def with_column(lines, name, cells):
    return [[name, *lines[0]], *([cell, *line] for cell, line in zip(cells, lines[1:], strict=True))]


def test_columns_that_are_no_features_are_told_and_left_out(bayesnorm, fit, facts, tmp_path):
    lines = houses(40)
    for name, cells in {
        "name": [f"house {row}" for row in range(40)],
        "customerId": [7 * row % 41 + 1000 * row for row in range(40)],
        "n": range(1, 41),
        "country": ["NL"] * 40,
        "remarks": [""] * 40,
    }.items():
        lines = with_column(lines, name, cells)
    data = write_csv(tmp_path / "t.csv", lines)
    ended = fit(data=data)
    assert ended.code == 0, ended.err
    reasons = {
        "remarks": "is empty",
        "country": "is 'NL' in every row",
        "n": "numbers the rows, from 1 to 40",
        "customerId": "is an id, with a different whole number in every row",
        "name": "contains text such as 'house 0' that differs in most rows",
    }
    told = [f"{name} was left out: it {reason}. (Use --keep {name} to include it.)" for name, reason in reasons.items()]
    told[0] = "remarks was left out: it is empty."
    assert facts()["left_out"] == reasons
    assert facts()["warnings"] == told
    assert all(line in ended.err for line in told)
    assert "left out" in ended.out
    assert [column["name"] for column in facts()["columns"]] == ["area", "age", "town"]
    assert json.loads((tmp_path / "run" / "report.json").read_text())["warnings"] == told
    # Rows to predict need none of them.
    new = write_csv(tmp_path / "new.csv", houses(12, seed=1))
    assert bayesnorm("predict", tmp_path / "run", new, "--out", tmp_path / "p.csv").code == 0


def test_columns_are_kept_or_read_as_their_owner_says(bayesnorm, fit, facts, tmp_path):
    lines = with_column(houses(40), "id", [3 * row for row in range(40)])
    lines = with_column(lines, "floor", ["?", "1", "2", "3"] * 10)
    lines = with_column(lines, "note", ["a", "b"] * 20)
    data = write_csv(tmp_path / "t.csv", lines)
    refused = fit(data=data)
    assert (refused.code, "--as floor=number" in refused.err) == (1, True)
    options = ("--keep", "id", "--as", "floor=number", "--as", "note=text", "--as", "age=category")
    ended = fit(*options, data=data)
    assert ended.code == 0, ended.err
    assert "10 cells of floor cannot be read as numbers and count as empty (--as)." in ended.err
    assert facts()["left_out"] == {"note": "is read as text (--as)"}
    assert "--keep id --as floor=number --as note=text --as age=category" in facts()["command"]
    assert facts()["columns"] == [
        {"name": "floor", "kind": "number", "forgiving": True},
        {"name": "id", "kind": "number"},
        {"name": "area", "kind": "number"},
        {"name": "age", "kind": "category"},
        {"name": "town", "kind": "category"},
    ]
    for command in ("predict", "drift"):  # where such cells count as empty too
        assert bayesnorm(command, tmp_path / "run", data, "--out", tmp_path / command).code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--as", "age"), "--as must be COLUMN=KIND with a kind of category, number, text, date, "),
        (("--as", "age=words"), "month-first, got 'age=words'"),
        (("--keep", "price"), "--keep: 'price' is the target"),
        (("--as", "price=text"), "--as: the target 'price' can be read as category or number only."),
        (("--as", "price=date"), "--as: the target 'price' can be read as category or number only."),
        (("--drop", "age", "--keep", "age"), "--keep and --drop both name 'age'. Use one of them."),
        (("--keep", "agee"), "has no column 'agee'. Did you mean 'age'?"),
    ],
)
def test_options_about_columns_that_cannot_be_followed(fit, options, says):
    ended = fit(*options)
    assert ended.code in (1, 2)
    assert says in ended.err


def test_numbers_stay_where_nothing_else_would(fit, facts, tmp_path):
    lines = [["x", "y"], *([row, row**2 % 17 + row / 100] for row in range(40))]
    assert fit(data=write_csv(tmp_path / "t.csv", lines), target="y").code == 0
    assert facts()["columns"] == [{"name": "x", "kind": "number"}]


def test_a_column_that_gives_the_target_away_is_told_first(fit, facts, tmp_path):
    lines = houses(40)
    lines = with_column(lines, "price in cents", [round(100 * float(line[-1])) for line in lines[1:]])
    data = write_csv(tmp_path / "t.csv", lines)
    ended = fit(data=data)
    assert ended.code == 0, ended.err
    how = "is (nearly) a linear function of price"
    assert facts()["leaks"] == {"price in cents": how}
    assert f"price in cents {how}. (Use --drop 'price in cents' to leave it out.)" in ended.err
    first = ended.out.splitlines()[0]
    assert first.startswith("possible leak")
    assert f"Check the column price in cents first: it {how}. If it is computed from price" in first
    # A run of before has no leaks in its report, and its page can be written again all the same.
    path = tmp_path / "run" / "report.json"
    values = json.loads(path.read_text())
    assert values.pop("leaks") == {"price in cents": how}
    assert report_from_values(values).leaks == {}


def test_text_that_comes_again_is_not(regression_run):
    assert json.loads((regression_run.run / "run.json").read_text())["warnings"] == []


def test_classes_that_words_for_nothing_stand_for_are_told(fit, tmp_path):
    lines = with_column(houses(45), "risk", ["None", "low", "high"] * 15)
    ended = fit(data=write_csv(tmp_path / "t.csv", lines), target="risk")
    assert ended.code == 0
    assert (
        "15 rows without a value in risk were left out. (Cells such as NA, None and null count as missing.)"
        in ended.err
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
    pytest.importorskip("jinja2", reason="needs jinja2: pip install jinja2")
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
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

    with pytest.raises(BayesNormError, match=r"--out: another process created .*run in the meantime"):
        both()
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "theirs"]
