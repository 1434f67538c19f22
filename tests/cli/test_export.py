"""`bayesnorm export`: the model of a run as an ONNX file."""

import json

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install onnxscript")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install msgspec uvicorn")

import onnxruntime as runtime

from bayesnorm.errors import BayesNormError
from bayesnorm.serving import OnnxModel
from bayesnorm_runtime import Table

from .conftest import houses


def test_the_file_predicts_what_the_command_predicts(bayesnorm, refuses, regression_run, tmp_path):
    out = tmp_path / "model.onnx"
    ended = bayesnorm("export", regression_run.run, out)
    assert ended.code == 0, ended.err
    assert f"Wrote {out}: " in ended.err
    session = runtime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    lines = houses(80)[1:]
    inputs = {
        "area": np.array([float(line[0]) for line in lines]),
        "age": np.array([float(line[1]) if line[1] != "" else np.nan for line in lines]),
        "town": np.array([line[2] for line in lines], dtype=object),
    }
    names = [value.name for value in session.get_inputs()]
    mean, lower = session.run(["mean", "lower"], {name: inputs[name] for name in names})
    table = bayesnorm("predict", regression_run.run, regression_run.data, "--digits", 17).out.splitlines()[1:]
    predicted = np.array([[float(cell) for cell in line.split(",")[1:4]] for line in table])
    np.testing.assert_allclose((mean - predicted[:, 0]) / predicted[:, 1], 0, atol=1e-4)
    np.testing.assert_allclose((lower - predicted[:, 2]) / predicted[:, 1], 0, atol=1e-4)
    served = OnnxModel(out)
    cells = {name: np.array(column.tolist(), dtype=object) for name, column in inputs.items()}
    np.testing.assert_array_equal(served.predict(cells)["mean"], mean)
    read = Table(out).predict_file(regression_run.data)
    np.testing.assert_array_equal(read["mean"], mean)
    np.testing.assert_array_equal(read["lower"], lower)
    with pytest.raises(BayesNormError, match=r"column 'age' contains numbers in training, but row 2 contains 'old'"):
        Table(out).predict({"area": ["1", "2"], "age": ["3", "old"], "town": ["Ede", None]})
    described = json.loads(session.get_modelmeta().custom_metadata_map["bayesnorm"])
    assert described["target"] == "price"
    assert "exists already. Use --force" in refuses("export", regression_run.run, out)
    assert "must end with .onnx" in refuses("export", regression_run.run, tmp_path / "model.pt2")
    assert "--watch needs a network" in refuses("export", regression_run.run, out, "--force", "--watch", code=2)
    assert "--level must be a number" in refuses("export", regression_run.run, out, "--level", 2, code=2)
