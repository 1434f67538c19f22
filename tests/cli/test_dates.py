"""Dates and times in tables: how each column is written, and a whole way from `fit` to `predict` and `drift`."""

import csv
import datetime
import io
import json

import pytest

from bayesnorm.cli.file_columns import ColumnFormat, convert_columns
from bayesnorm.cli.written_dates import detect_date_formats, read_dates
from bayesnorm.errors import InputError

from .conftest import houses, write_csv

pd = pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

DAY, HOUR = datetime.date(2024, 1, 31), datetime.time(8, 30)


def read(cells, said="", name="a"):
    """How a column of training is written, and its dates as text."""
    frame = pd.DataFrame({name: cells})
    result, unread = detect_date_formats(frame, [name], {name: said} if said else {}, "t.csv")
    if name not in result:
        return unread.get(name, ""), []
    values, unreadable = read_dates(frame[name], result[name])
    return result[name].way, [str(value) for value in values[~unreadable & frame[name].notna()]]


def test_dates_as_people_write_them():
    for cells, way, first in (
        (["2024-01-31", None, "2024-2-1"], "year first", "2024-01-31T00:00:00"),
        (["2024-01-31T08:15:00+02:00", "2024-02-01 8:15Z"], "year first", "2024-01-31T08:15:00"),
        (["31 Jan 2024", "Feb 1, 2024", "March 2024"], "year first", "2024-01-31T00:00:00"),
        (["31/01/2024", "1/2/2024"], "day first", "2024-01-31T00:00:00"),
        (["1/2/2024", "31/01/2024"], "day first", "2024-02-01T00:00:00"),
        (["1/31/2024 8:15 PM", "2/1/24 12:00 am"], "month first", "2024-01-31T20:15:00"),
        (["1/2/2024", "2/2/2024", "1/3/2024"], "day first", "2024-02-01T00:00:00"),  # which puts them in order
        (["1/2/2024", "5/3/2024", "3/2/2024"], "month first", "2024-01-02T00:00:00"),
        (["1.2.2024", "5.3.2024", "3.2.2024"], "day first", "2024-02-01T00:00:00"),
        (["8:30", "21:15:10"], "time of day", "0001-01-01T08:30:00"),
        ([DAY, None, "2024-02-01"], "year first", "2024-01-31T00:00:00"),
        ([HOUR, None], "time of day", "0001-01-01T08:30:00"),
        (pd.to_datetime(["2024-01-31 08:00"]).tz_localize("Asia/Tokyo"), "year first", "2024-01-31T08:00:00"),
    ):
        result, values = read(cells)
        assert (result, values[0]) == (way, first)
        assert len(values) == pd.Series(cells).notna().sum()


def test_what_is_no_date():
    for cells in (
        ["x", "y"],
        ["1.5", "2"],
        ["1234-05", "1234-06"],
        ["1.2.3", "1.2.4"],
        ["2024-13-01", "x"],
        ["10:99", "y"],
    ):
        assert read(cells) == ("", [])


def test_numbers_are_dates_where_the_name_or_the_owner_says_so():
    assert read([45382, 45383.5], name="saleDate") == ("serial", ["2024-03-31T00:00:00", "2024-04-01T12:00:00"])
    assert read([45382, 45383.5])[1] == read([3, 4], name="date")[1] == []
    assert read(["20240331", "20240401"], "date")[0] == "digits"
    assert read(["03312024", "12012024"], name="date") == (
        "digits, month first", ["2024-03-31T00:00:00", "2024-12-01T00:00:00"]
    )  # fmt: skip
    assert read(["31032024", "01122024"], name="date")[0] == "digits, day first"
    assert read(["01022024"], "day-first")[1] == ["2024-02-01T00:00:00"]
    assert read([3312024, 13312024], name="date")[0] != "digits, month first"
    assert read([1_700_000_000], "date") == ("seconds", ["2023-11-14T22:13:20"])
    with pytest.raises(InputError, match=r"--as: t.csv contains '3' in 'a', which is not a date. Write dates as"):
        read([3, 4], "date")


def test_dates_that_disagree_and_words_among_dates():
    told = "contains dates in more than one format, such as '13/2/2024' and '2/13/2024'"
    assert read(["13/2/2024", "2/13/2024"])[0] == told
    cells = ["2024-01-31", "2024-02-01", "soon"]
    assert read(cells)[0] == "year first"  # `fit` decides whether such cells are too many
    assert read(cells, "date")[1] == ["2024-01-31T00:00:00", "2024-02-01T00:00:00"]
    assert read(["1/2/2024", "1/3/2024"], "month-first")[1][0] == "2024-01-02T00:00:00"


def test_later_dates_are_read_as_in_training(tmp_path):
    result, _ = detect_date_formats(pd.DataFrame({"a": ["31/1/2024"]}), ["a"], {}, "t.csv")
    formats = {"a": ColumnFormat("date", dates=result["a"])}
    for cell in ("1/2/2024", "2024-02-01", datetime.date(2024, 2, 1)):
        frame, kinds = convert_columns(pd.DataFrame({"a": [cell]}), tmp_path, formats)
        assert (str(frame["a"].iloc[0]), kinds["a"]) == ("2024-02-01 00:00:00", "date")
    with pytest.raises(InputError, match=r"contains dates \(day first\) in training, but row 0 contains '2/13/2024'"):
        convert_columns(pd.DataFrame({"a": ["2/13/2024"]}), tmp_path, formats)


def test_from_fit_to_drift(bayesnorm, fit, facts, tmp_path):
    lines = houses(40)
    lines = [["sold", *lines[0]], *([f"{k % 28 + 1}/{k % 12 + 1}/2023", *line] for k, line in enumerate(lines[1:]))]
    lines[5][0] = ""
    ended = fit(data=write_csv(tmp_path / "t.csv", lines), page=True)
    assert ended.code == 0, ended.err
    assert "sold contains dates such as '1/1/2023', which is read as 2023-01-01." in ended.err
    assert facts()["columns"][0] == {"name": "sold", "kind": "date", "dates": "day first"}
    column = json.loads((tmp_path / "run" / "report.json").read_text())["table"]["columns"][0]
    assert (column["kind"], column["missing"]) == ("date", 1)
    page = tmp_path / "run" / "report.html"
    assert not page.exists() or "2023-01-01 to 2023-" in page.read_text()
    new = write_csv(tmp_path / "new.csv", [lines[0], ["13/2/2023", *lines[1][1:]], ["1/1/2031", *lines[1][1:]]])
    rows = [*csv.DictReader(io.StringIO(bayesnorm("predict", tmp_path / "run", new).out))]
    assert [row["unusual"] for row in rows] == ["False", "True"]
    many = write_csv(tmp_path / "many.csv", [lines[0], *(["1/1/2031", *line[1:]] for line in lines[1:])])
    ended = bayesnorm("drift", tmp_path / "run", many)
    assert "sold  " in ended.out
    assert "in training, 2031-01-01 now" in ended.out
