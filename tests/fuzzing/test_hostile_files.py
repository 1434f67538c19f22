"""Hostile files of every kind are refused, quickly and in little memory; files of version 0.1 are read, or say why not.

`python -m tests.fuzzing models` tries more of them.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save as to_bytes

from bayesnorm import files
from bayesnorm.errors import FileFormatError

from .child import in_a_child
from .kinds import kinds
from .outcomes import tried

WRITTEN = Path(__file__).with_name("written_by_0_1")
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())
KINDS = kinds()

# Cases that every run of the tests tries, and bytes of memory that they may take.
CASES = 400
MEMORY = 2**29


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("table_")])
def test_what_version_0_1_wrote_is_loaded_and_predicts_the_same(name, tmp_path):
    shutil.copy(WRITTEN / f"{name}.bayesnorm", tmp_path / "file")
    result = KINDS[name.replace("_", " ")].use(tmp_path / "file")
    for numbers, expected in zip(result, EXPECTED[name], strict=True):
        torch.testing.assert_close(
            numbers.flatten()[:4].double(), torch.tensor(expected).double(), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("table_")])
def test_a_table_of_version_0_1_is_another_kind_of_model(name):
    with pytest.raises(FileFormatError, match=r"of an earlier version\. Fit the model again\.$"):
        KINDS[name.replace("_", " ")].use(WRITTEN / f"{name}.bayesnorm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A valid file of every kind that takes no time to write, and of those that are kept."""
    made = tmp_path_factory.mktemp("valid")
    for path in WRITTEN.glob("*.bayesnorm"):
        shutil.copy(path, made / path.stem.replace("_", " "))
    for name in KINDS:
        if name.startswith("table ") or name in ("checkpoint", "stream"):
            KINDS[name].write(made / name)
    return made


def test_random_changes_are_refused_or_harmless(folder):
    def try_all():
        result = tried(
            {name: KINDS[name] for name in sorted(path.name for path in folder.iterdir())}, folder, range(CASES)
        )
        assert not result.faults, result.as_json()
        assert result.counts["refused as a file"] > CASES / 2

    in_a_child(try_all, MEMORY)


def put(*path_and_value):
    """Return a change that puts a value at a place of the JSON."""
    *path, last, value = path_and_value

    def change(config, _tensors):
        for key in path:
            config = config[key]
        config[last] = value

    return change


def cast(name, dtype):
    """Return a change of one tensor's dtype."""
    return lambda _config, tensors: tensors.update({name: tensors[name].to(dtype)})


def layer_twice(config, tensors):
    config["posterior"]["layers"] *= 2
    for name in ("running", "batch_mean", "fluctuations.deviations"):
        mean, var = tensors[name].chunk(2, -1)
        tensors[name] = torch.cat([mean, mean, var, var], -1)


def many_layers(config, _tensors):
    config["posterior"]["layers"] *= 120_000


def without(name):
    return lambda _config, tensors: tensors.pop(name)


HOSTILE = {
    "statistics of whole numbers": ("mcbn", cast("running", torch.int64)),
    "complex statistics": ("mcbn", cast("batch_mean", torch.complex64)),
    "another eps": ("mcbn", put("posterior", "layers", 0, "eps", 1e-3)),
    "a layer twice": ("mcbn", layer_twice),
    "120,000 layers": ("mcbn", many_layers),
    "no deviations": ("mcbn", lambda _c, t: t.update({"fluctuations.deviations": torch.zeros(0, 6)})),
    "components without sensitivities": ("mcbn", without("sensitivities")),
    "sensitivities without components": ("mcbn", without("components")),
    "a batch size near nothing": ("mcbn", put("posterior", "batch_size", 5e-324)),
    "a truth value for rows": ("mcbn", put("posterior", "rows", True)),
    "a fitted batch size of 400 digits": ("mcbn", put("posterior", "fitted_batch_size", 10**400)),
    "negative deviations": ("factorised", lambda _c, t: t["fluctuations.independent_std"].neg_()),
    "dropout of no layer": ("dropout", put("posterior", "rates", {"7": 0.5})),
    "NaN in a member": ("ensemble", lambda _c, t: t["1.network.4.bias"].fill_(float("nan"))),
    "a negative variance in a member": ("ensemble", lambda _c, t: t["0.network.1.running_var"].neg_()),
    "20,000 members": ("ensemble", put("posterior", "members", [{"kind": "deterministic", "posterior": {}}] * 20_000)),
    "NaN in a weight": ("variational", lambda _c, t: t["weights/0.weight/rho"].fill_(float("nan"))),
    "a billion steps": ("flow", put("posterior", "weights", "0.weight", "flows", 10**9)),
    "a billion units": ("flow", put("posterior", "weights", "0.weight", "hidden", 10**9)),
    "weights without randomness": ("variational", put("posterior", "weights", {})),
    "one part twice": ("combined", lambda c, _t: c["posterior"]["parts"].append(c["posterior"]["parts"][1])),
    "2,000 parts": ("combined", put("posterior", "parts", [{"kind": "deterministic", "posterior": {}}] * 2000)),
    "wide hidden layers": ("table mcbn", put("selection", "settings", 0, "hidden", [20_000, 20_000])),
    "many numbers for an input": ("table mcbn", put("posterior", "encoded", 2**20)),
    "numbers for a plain network": ("table classes", put("posterior", "encoded", 6)),
    "another encoding": ("table mcbn", put("selection", "settings", 0, "encoding", "waves 3")),
    "an encoding of 400 digits": ("table mcbn", put("selection", "settings", 0, "encoding", "bins " + "9" * 400)),
    "bins of a column that is not there": ("table mcbn", lambda _c, t: t["network.network.0.column"].fill_(99)),
    "bins in another order": ("table mcbn", lambda _c, t: t["network.network.0.column"][:1].fill_(1)),
    "bins of a negative column": ("table mcbn", lambda _c, t: t["network.network.0.column"].fill_(-1)),
    "bins without a width": ("table mcbn", lambda _c, t: t["network.network.0.width"].zero_()),
    "endless waves": ("table one member", lambda _c, t: t["network.network.0.frequency"].fill_(float("inf"))),
    "endless conformal scores": ("table mcbn", lambda _c, t: t["conformal.0.0"].fill_(float("inf"))),
    "conformal scores of nobody": ("table mcbn", lambda _c, t: t.update({"conformal.0.7": t["conformal.0.0"].clone()})),
    "a device that is a number": ("table mcbn", put("parameters", "device", 3)),
    "uncertainty without errors": ("table mcbn", put("selection", "uncertainty", "errors", [])),
    "wide inputs": ("table mcbn", put("posterior", "inputs", 10**9)),
    "a billion samples": ("table mcbn", put("parameters", "samples", 10**9)),
    "columns of text": ("table mcbn", put("preprocessing", "columns", "abc")),
    "categories of numbers": ("table mcbn", put("preprocessing", "columns", 1, "categories", [1, 2])),
    "names of numbers": ("table mcbn", put("names", [1, 2, 3])),
    "names of invalid Unicode": ("table mcbn", put("names", ["size", "town", "\ud800"])),
    "too many names": ("table mcbn", put("names", ["size", "town", "same", "more"])),
    "a deviation of nothing": ("table mcbn", put("preprocessing", "std", 0, 0.0)),
    "another method": ("table mcbn", put("parameters", "method", "ensemble")),
    "NaN in a network": ("table mcbn", lambda _c, t: t["network.network.1.weight"].fill_(float("nan"))),
    "a likelihood of classes": ("table mcbn", put("posterior", "likelihood", {"kind": "Categorical"})),
    "labels of 400 million characters": ("table classes", put("classes", "dtype", "<U400000000")),
    "a dtype of many characters": ("table classes", put("classes", "dtype", "<U" + "9" * 10**6)),
    "one label twice": ("table classes", put("classes", "values", ["no", "no"])),
    "cut labels": ("table classes", put("classes", "dtype", "<U1")),
    "rows beyond the pool": ("labels", lambda _c, t: [t[name].add_(1000) for name in ("chosen", "rows")]),
    "rounds of text": ("labels", put("rounds", ["4", "4"])),
    "infinite labels": ("labels", lambda _c, t: t["labels"].fill_(float("inf"))),
    "many samples of noise": ("classes", put("likelihood", {"kind": "LogitNoise", "samples": 10**9})),
    "a precision of text": ("mcbn", put("likelihood", "precision", "4")),
    "a precision that is true": ("mcbn", put("likelihood", "precision", True)),
}


def test_contents_that_no_writer_writes_are_refused(folder, tmp_path):
    def read_all():
        for what, (name, change) in HOSTILE.items():
            tensors, header = files.read_tensors(folder / name)
            config = json.loads(header["config"])
            change(config, tensors)
            text = json.dumps(config, sort_keys=True)
            header |= {"config": text, "digest": files.content_digest(tensors, text)}
            (tmp_path / "file").write_bytes(to_bytes(tensors, metadata=header))
            del config, text, header, tensors
            with pytest.raises(FileFormatError):
                print(what, KINDS[name].use(tmp_path / "file"))

    in_a_child(read_all, MEMORY)


def test_networks_with_infinite_masks_are_loaded(tmp_path):
    """Buffers that are infinite in the network itself may be so in the file of an ensemble of it."""
    import bayesnorm as bn

    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 1)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

        def forward(self, x):
            return self.inner(x * self.mask.exp())

    bn.ensemble([Masked(), Masked()], bn.Gaussian()).save(tmp_path / "file")
    loaded = bn.load(tmp_path / "file", Masked())
    assert torch.isfinite(loaded.predict(torch.ones(3, 2)).mean).all()
    with torch.no_grad():
        network = Masked()
        network.mask.zero_()
    with pytest.raises(FileFormatError, match=r"0\.network\.mask is 'NaN, infinite"):
        bn.load(tmp_path / "file", network)
