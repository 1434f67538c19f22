"""What comes from a table: quoted in few words, and written as it is unless a spreadsheet is to open it."""

import csv
import io

import pytest

import bayesnorm as bn
from bayesnorm.cli import app as module
from bayesnorm.cli.output_files import mark_formula
from bayesnorm.errors import MissingExtraError, quoted, shortened

from .conftest import houses, write_csv

pd = pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

LONG = "x" * 5_000_000
FORMULA = '=HYPERLINK("http://example.org")'


def test_long_values_are_quoted_by_their_first_characters():
    assert quoted("a 'b'") == repr("a 'b'")
    assert quoted(LONG) == f"'{'x' * 60}'... (5,000,000 characters)"
    assert quoted([1] * 1000) == f"{str([1] * 1000)[:60]}... (3,000 characters)"
    assert quoted(1.5) == "1.5"
    assert quoted(10**5000) == "a long int"


@pytest.mark.parametrize("kind", [bn.BayesNormError, MissingExtraError])
def test_no_message_is_long(kind):
    told = str(kind(f"name must be 3, got {LONG}."))
    assert len(told) < 1000
    assert told.startswith("name must be 3, got xxx")
    assert told.endswith("xxx.")
    assert "characters left out" in told
    assert shortened(told) == told
    assert str(kind("name must be 3, got 2.")) == "name must be 3, got 2."


def test_long_cells(refuses, bayesnorm, regression_run, tmp_path):
    lines = houses(120)
    lines[-1][0] = LONG
    shown = f"'{'x' * 60}'... (5,000,000 characters)"
    ended = bayesnorm("predict", regression_run.run, write_csv(tmp_path / "t.csv", lines))
    assert f"area contains {shown}, which cannot be read and counts as missing" in ended.out
    for line in lines[20:]:
        line[0] = LONG[:1000]
    line = refuses("predict", regression_run.run, write_csv(tmp_path / "t.csv", lines))
    shown = f"'{'x' * 60}'... (1,000 characters)"
    assert f"column 'area' contains numbers in training, but row 20 contains {shown}. Write a number" in line


def test_long_arguments():
    for give in (lambda: bn.MonteCarlo(samples=LONG), lambda: bn.MCBN(batch_size=8, center=LONG)):
        with pytest.raises(bn.BayesNormError, match="got ") as refused:
            give()
        assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        *((text, True) for text in (FORMULA, "+1+1", "-A1", "-", "@SUM(1)", "\t1", "\r1", "\n1", " =1", "\uff1d1")),
        *((text, False) for text in ("", "a=1", "'=1", "1-1", -1.5, -1, None, True)),
        *((text, False) for text in ("-1", "+1", "-1.5e-3", "-1,234.5", "-3 %", "-$5")),  # numbers stay numbers
    ],
)
def test_what_a_spreadsheet_would_run(text, runs):
    assert mark_formula(text) == (f"'{text}" if runs else text)


def test_labels_are_written_as_they_are_unless_a_spreadsheet_is_to_open_them(bayesnorm, fit, tmp_path):
    labels = ("=HYPERLINK('http://example.org')", "-none")
    data = write_csv(tmp_path / "t.csv", [["a", "=b"], *([k % 7 + 9 * (k % 2), labels[k % 2]] for k in range(40))])
    assert fit("--spreadsheet-safe", data=data, target="=b").code == 0
    held_out = (tmp_path / "run" / "test_predictions.csv").read_text()
    predict = ("predict", tmp_path / "run", data)
    plain, marked = bayesnorm(*predict).out, bayesnorm(*predict, "--spreadsheet-safe").out
    for text, column, expected in (
        (held_out, "y", {f"'{label}" for label in labels}),
        (plain, "predicted", {*labels}),
        (marked, "predicted", {f"'{label}" for label in labels}),
    ):
        rows = [*csv.DictReader(io.StringIO(text))]
        assert {row[column] for row in rows} <= expected
        assert all(0 <= float(row["p(-none)"]) <= 1 for row in rows)


def test_a_data_set_for_a_spreadsheet(bayesnorm, monkeypatch):
    monkeypatch.setattr(module, "load_bundled", lambda _: pd.DataFrame([[-1.5, "+a"]], columns=["=x", "y"]))
    assert bayesnorm("data", "csv", "sklearn:iris", "--out", "-").out == "=x,y\n-1.5,+a\n"
    assert bayesnorm("data", "csv", "sklearn:iris", "--out", "-", "--spreadsheet-safe").out == "'=x,y\n-1.5,'+a\n"
