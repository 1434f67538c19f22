"""Exported tables read CSV and Parquet files as in training, without torch and pandas."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys

import numpy as np
import pytest

import bayesnorm as bn
from bayesnorm_runtime import Table

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def table_model(formats=(), **metadata) -> bytes:
    """Return a file with the columns of a table: `mean` is the sum of price, day and the length of a known town."""
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    inputs = [
        helper.make_tensor_value_info("price", double, ["rows"]),
        helper.make_tensor_value_info("day", double, ["rows"]),
        helper.make_tensor_value_info("town", onnx.TensorProto.STRING, ["rows"]),
    ]
    look_up = helper.make_node(
        "LabelEncoder", ["town"], ["length"], domain="ai.onnx.ml", keys_strings=["Ede", "7"],
        values_floats=[3.0, 7.0], default_float=-1.0,
    )  # fmt: skip
    nodes = [
        look_up,
        helper.make_node("Cast", ["length"], ["wide"], to=double),
        helper.make_node("Sum", ["price", "day", "wide"], ["mean"]),
    ]
    outputs = [helper.make_tensor_value_info("mean", double, ["rows"])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=9)
    kinds = {"price": "number", "day": "date", "town": "category"}
    description = {
        "kind": "table",
        "columns": [{"name": name, "kind": kind} for name, kind in kinds.items()],
        "formats": list(formats),
        "outputs": ["mean"],
        "classes": [],
        **metadata,
    }
    helper.set_model_props(model, {"bayesnorm": json.dumps(description)})
    return model.SerializeToString()


FORMATS = [
    {"name": "price", "kind": "number", "mark": "$"},
    {"name": "day", "kind": "date", "dates": "day first"},
    {"name": "town", "kind": "category"},
]
DAY = 86_400.0


def test_text_is_read_as_in_training(tmp_path):
    table = Table(table_model(FORMATS))
    (tmp_path / "new.csv").write_text(
        'town,price,other,day\nEde,"$1,200.50",x,02/01/1970\n7.0,12,x,1970-01-03\n,3,x,\nnew,(4),x,3.1.1970 00:00:05\n',
        encoding="utf-8-sig",
    )
    values = table.predict_file(tmp_path / "new.csv")["mean"]
    expected = [1200.5 + DAY + 3, 12 + 2 * DAY + 7, np.nan, -4 + 2 * DAY + 5 - 1]
    np.testing.assert_array_equal(values, expected)
    (tmp_path / "new.csv").write_text("town;price;day\nEde;1.200,50;02/01/1970\n")
    values = table.predict_file(tmp_path / "new.csv", delimiter=";", decimal=",")["mean"]
    np.testing.assert_array_equal(values, expected[:1])


def test_arrays_and_python_values_are_columns():
    table = Table(table_model())
    days = [np.datetime64("1970-01-02T00:00:01"), datetime.datetime(1970, 1, 2), datetime.date(1970, 1, 3), None]
    values = table.predict({"town": np.array(["Ede", 7, 7.0, None], dtype=object), "price": np.arange(4), "day": days})
    np.testing.assert_array_equal(values["mean"], [DAY + 1 + 3, 1 + DAY + 7, 2 + 2 * DAY + 7, np.nan])
    assert table.predict({"town": [], "price": [], "day": []})["mean"].shape == (0,)


def test_wrong_files_and_cells_are_named(tmp_path):
    table, path = Table(table_model(FORMATS)), tmp_path / "new.csv"
    wrong = {
        "town,price\nEde,1\n": r"new\.csv: the column 'day' is missing\. The model needs the columns 'price, day",
        "town,price,day\nEde,1 €,\n": r"column 'price' contains numbers with \$ in training, but row 1 contains '1 €'",
        "town,price,day\nEde,1,\nEde,x,\n": r"column 'price' .* but row 2 contains 'x'\. Correct it, or leave the cell",
        "town,price,day\nEde,1,31/31/1970\n": r"column 'day' contains dates \(day first\) .* row 1 contains '31/31",
        "town,price,day\nEde,1\n": r"line 2 has 2 cells, but the first line has 3 names",
        "town,price,town\nEde,1,2\n": r"the first line has a name twice",
        'town,price,day\n"Ede,1,\n': r"is not CSV in UTF-8",
        "": r"the column 'price' is missing",
    }
    for content, message in wrong.items():
        path.write_text(content)
        with pytest.raises(bn.BayesNormError, match=message):
            table.predict_file(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(bn.BayesNormError, match="is not CSV in UTF-8"):
        table.predict_file(path)
    (tmp_path / "new.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(bn.BayesNormError, match="is not a Parquet file that can be read"):
        table.predict_file(tmp_path / "new.parquet")
    with pytest.raises(bn.BayesNormError, match=r"none\.csv does not exist"):
        table.predict_file(tmp_path / "none.csv")
    with pytest.raises(bn.BayesNormError, match=r'decimal must be "\." or ","'):
        table.predict_file(path, decimal="'")
    with pytest.raises(bn.BayesNormError, match="different numbers of rows"):
        table.predict({"town": ["Ede"], "price": [], "day": []})


def test_forgiving_columns_leave_unreadable_cells_empty():
    table = Table(table_model([{"name": "price", "kind": "number", "forgiving": True}]))
    values = table.predict({"town": ["Ede", "Ede"], "price": ["x", "1"], "day": ["1970-01-01"] * 2})
    np.testing.assert_array_equal(values["mean"], [np.nan, 4])


@pytest.mark.parametrize(
    "metadata",
    [
        {"columns": [{"name": "price"}]},
        {"columns": [{"name": "none", "kind": "number"}]},
        {"columns": [{"name": "town", "kind": "number"}]},
        {"columns": "price"},
        {"classes": 3},
        {"outputs": ["median"]},
        {"formats": [3]},
        {"formats": [{"name": "day", "dates": "any order"}]},
        {"formats": [{"name": "price", "decimal": "'"}]},
    ],
)
def test_changed_metadata_are_refused(metadata):
    with pytest.raises(bn.BayesNormError, match=r"was changed or is incomplete"):
        Table(table_model(**metadata))


def test_a_table_needs_no_torch(tmp_path):
    (tmp_path / "model.onnx").write_bytes(table_model(FORMATS))
    (tmp_path / "new.csv").write_text("town,price,day\nEde,$5,02/01/1970\n")
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'scipy', 'pandas', 'bayesnorm']))\n"
        "from bayesnorm_runtime import Table\n"
        "print(Table(sys.argv[1]).predict_file(sys.argv[2])['mean'][0])"
    )
    command = [sys.executable, "-W", "error", "-c", program, tmp_path / "model.onnx", tmp_path / "new.csv"]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert float(result.stdout) == 5 + DAY + 3
