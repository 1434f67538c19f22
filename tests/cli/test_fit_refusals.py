"""Tables and options that `bayesnorm fit` refuses, in one line, and nothing is left behind."""

import pytest

from .conftest import QUICK, houses, write_csv

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn: pip install scikit-learn pandas")


def changed(change):
    lines = houses(40)
    change(lines)
    return lines


def set_cell(row, column, value):
    return lambda lines: lines[row].__setitem__(column, value)


def set_target(value):
    def change(lines):
        for line in lines[1:]:
            line[-1] = value

    return change


TWO_COLUMNS = "2 columns cannot be read. Column 'area' contains numbers, but 'x' in row 3 and 1 more such cell."


def keep(rows):
    return lambda lines: lines.__delitem__(slice(rows + 1, None))


@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [
        (keep(1), (), 1, "only 1 row has a value in 'price'. Pass at least 12 such rows"),
        (set_target(""), (), 1, "no row has a value in 'price'"),
        (lambda lines: [set_cell(row, 3, "much")(lines) for row in (3, 5)], (), 1, "but 'much' in row 3 and 1 more"),
        (lambda lines: [set_cell(row, place, "x")(lines) for row in (3, 5) for place in (0, 1)], (), 1, TWO_COLUMNS),
        (None, ("--drop", "colour"), 1, "has no column 'colour'. Its columns are area, age, town, price."),
        (None, ("--categorical", "twon"), 1, "--categorical: "),
        (None, ("--drop", "price"), 2, "--drop: 'price' is the target"),
        (None, ("--drop", "area", "--drop", "age", "--drop", "town"), 1, "has no column to predict 'price' from"),
        (None, ("--target", "town", "--task", "regression"), 1, "'town' contains text such as"),
        (None, ("--task", "classification"), 1, "'price' has 40 different values in 40 rows, too many for classes"),
        (None, ("--target", "town", "--homoscedastic"), 1, "--homoscedastic works only for regression"),
        (None, ("--target", "town", "--conformal"), 1, "--conformal works only for regression"),
        (None, ("--members", "0"), 2, "Invalid value for '--members'"),
        (None, ("--device", "tpu"), 2, "Invalid value for '--device'"),
        (None, ("--effective-batch-size", "frob"), 2, "positive number, got 'frob'"),
        (None, ("--effective-batch-size", "nll"), 2, "must be cross-validated, elbo or a positive number, got 'nll'"),
        (None, ("--hidden", "50,x"), 2, "--hidden must be the units of each hidden layer, such as 128,128, got '50,x'"),
        (None, ("--test-fraction", "0.7"), 2, "--test-fraction must be a number from 0 to 0.5, got 0.7"),
        (None, ("--test-fraction", "0.001"), 1, "--test-fraction: 0.001 of 40 rows is no row"),
        (None, ("--method", "magic"), 2, "Invalid value for '--method'"),
        (None, ("--seed", "-1"), 2, "Invalid value for '--seed'"),
        (None, ("--seed", str(2**32)), 2, "Invalid value for '--seed'"),
        (None, ("--effective-batch-size", "-3"), 2, "elbo or a positive number, got '-3'"),
        (None, ("--effective-batch-size", "nan"), 2, "elbo or a positive number, got 'nan'"),
        (None, ("--max-size", "0.0001"), 1, "MiB, more than 0.0001 MiB. Use fewer rows, or raise --max-size"),
    ],
)  # fmt: skip
def test_refuses(refuses, tmp_path, change, options, code, message):
    data = write_csv(tmp_path / "t.csv", changed(change or (lambda lines: None)))
    before = sorted(tmp_path.iterdir())
    target = () if "--target" in options else ("--target", "price")
    line = refuses("fit", data, *target, "--out", tmp_path / "run", "--quiet", *QUICK, *options, code=code)
    assert message in line
    assert sorted(tmp_path.iterdir()) == before


def test_a_name_that_is_nearly_right_is_suggested(refuses, table, tmp_path):
    line = refuses("fit", table, "--target", "pirce", "--out", tmp_path / "run")
    assert line.endswith("has no column 'pirce'. Did you mean 'price'? Its columns are area, age, town, price.\n")
