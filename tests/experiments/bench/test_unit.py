"""A unit's key is the same everywhere and for ever, and differs where the unit does."""

import math

import numpy as np
import pytest

from bayesnorm.errors import BayesNormError
from experiments.bench import Unit

RUN = "package.module:run"
PARAMETERS = {"seed": 3, "rate": 0.1, "data": "yächt", "layers": [50, 50.0], "more": {"b": None, "a": True}}
GOLDEN = "2f33771aad3c049407b5c84c66be9aac"  # computed apart, with sha256sum


def shuffled(value, rng):
    if isinstance(value, dict):
        names = list(value)
        rng.shuffle(names)
        return {name: shuffled(value[name], rng) for name in names}
    return tuple(shuffled(entry, rng) for entry in value) if isinstance(value, list) else value


def test_the_key_never_changes():
    """Stores of other processes are found by these keys: if this fails, mend the code, not the literal."""
    assert Unit("uci", RUN, PARAMETERS).key == GOLDEN
    assert Unit("uci", RUN, dict(reversed(PARAMETERS.items()))).key == GOLDEN
    assert Unit("uci", RUN, {}).text == "{}"


def test_what_is_another_unit_and_what_is_not():
    def key(value, experiment="e", function=RUN):
        return Unit(experiment, function, {"a": value}).key

    assert len({key(1), key(1.0), key(True), key("1"), key([1]), key({"1": 1}), key(None), key(1, "f")}) == 8
    assert key(0.1) == key(0.10000000000000001) == key(np.float64(0.1))
    assert key(0.0) == key(-0.0)
    assert math.copysign(1, Unit("e", RUN, {"a": -0.0}).parameters["a"]) == 1
    assert key((1, 2)) == key([1, 2])
    assert key(1) == key(1, function="elsewhere:run")
    assert Unit("e", RUN, {}) != Unit("e", "elsewhere:run", {})


def test_parameters_that_are_not_plain():
    for parameters, message in (
        ({"a": float("nan")}, r"parameters\['a'\] must be finite numbers or text, got nan"),
        ({"a": [0, {"b": float("inf")}]}, r"parameters\['a'\]\[1\]\['b'\] must be .*, got inf"),
        ({"a": np.int64(1)}, r"parameters\['a'\] must be None, booleans, plain numbers.* got int64"),
        ({"a": {1: 2}}, r"parameters\['a'\]: the name 1 must be text"),
        ([1], "parameters must be .*a dict.*, got list"),
    ):
        with pytest.raises(BayesNormError, match=message):
            Unit("e", RUN, parameters)
