"""The runtime needs NumPy and ONNX Runtime only, and its own special functions are those of SciPy."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.special

from bayesnorm_runtime import Network, special_functions

pytest.importorskip("onnxruntime")

PROGRAM = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "scipy", "pandas", "onnx", "sklearn", "safetensors"):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
from bayesnorm_runtime import Network

network, x = Network(sys.argv[1], threads=1), np.load(sys.argv[2])
result, adapted = network.drift(x), network.adapt(x)
adapted.save_adaptation(sys.argv[3])
again = network.with_adaptation(sys.argv[3])
assert (again.predict(x)["probs"] == adapted.predict(x)["probs"]).all()
assert "bayesnorm" not in sys.modules and "torch" not in sys.modules
print(json.dumps([result.p_value, result.expected_error.before.value, result.distance,
                  adapted.drift(x).p_value, adapted.predict(x)["probs"].tolist(), again.decision]))
"""


def test_it_gives_the_same_numbers_without_torch_and_scipy(perceptron, tmp_path):
    x = perceptron.shifted.numpy()
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-W", "error", "-c", PROGRAM, perceptron.path, tmp_path / "x.npy", tmp_path / "adapted"]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    p_value, error, distance, p_adapted, probs, decision = json.loads(result.stdout)
    network = Network(perceptron.path, threads=1)
    adapted, drift = network.adapt(x), network.drift(x)
    assert p_value == pytest.approx(drift.p_value, rel=1e-6)
    assert error == drift.expected_error.before.value
    assert distance == drift.distance
    assert p_adapted == pytest.approx(adapted.drift(x).p_value, rel=1e-6)
    np.testing.assert_allclose(probs, adapted.predict(x)["probs"], rtol=1e-6)
    assert decision == adapted.decision
    np.testing.assert_array_equal(
        network.with_adaptation(tmp_path / "adapted").predict(x)["probs"], adapted.predict(x)["probs"]
    )


SHAPES = np.logspace(-2, 9.5, 47)[:, None]
GRIDS = {
    # For larger shapes SciPy's lower tail has few digits: 5.9e-8 instead of 1.96e-6 at 1e11, 4.6 deviations below.
    "gammainc": (SHAPES[:30], np.maximum(SHAPES[:30] + np.linspace(-6, 12, 37) * np.sqrt(SHAPES[:30]), 0)),
    "gammaincc": (SHAPES, np.maximum(SHAPES + np.linspace(-6, 12, 37) * np.sqrt(SHAPES), 0)),
    "gammaln": (np.logspace(-3, 9, 99),),
    "digamma": (np.logspace(-3, 9, 99),),
    "ndtr": (np.linspace(-37, 9, 99),),
    "ndtri": (np.concatenate([[0, 1, np.nan], np.logspace(-299, -1e-4, 99)]),),
    "stdtr": (np.array([1, 2, 7, 31, 255, 1e7])[:, None], np.linspace(-40, 40, 81)),
    "chdtrc": (np.array([1, 4, 9, 999])[:, None], np.linspace(0, 500, 99)),
}


@pytest.mark.parametrize("name", GRIDS)
def test_special_functions_are_those_of_scipy(name):
    values, expected = getattr(special_functions, name)(*GRIDS[name]), getattr(scipy.special, name)(*GRIDS[name])
    np.testing.assert_allclose(values, expected, rtol=3e-6, atol=1e-250)
