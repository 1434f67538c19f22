"""What comes of a file belongs to the reader; what cannot be written is told; versions are told apart."""

import json
import os
import resource

import pytest
import torch

import bayesnorm as bn
from bayesnorm import files, tabular
from bayesnorm.errors import BayesNormError, FileFormatError

from .fuzzing.child import in_a_child
from .fuzzing.kinds import kinds, network, rows, table

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")

KINDS = kinds()
POSTERIORS = [name for name, kind in KINDS.items() if kind.use is KINDS["mcbn"].use]


@pytest.mark.parametrize("spoil", ["truncated", "overwritten"])
@pytest.mark.parametrize("kind", ["mcbn", "ensemble", "flow", "table mcbn"])
def test_a_file_that_is_spoilt_after_it_was_read_changes_nothing(spoil, kind, tmp_path):
    path, copy = tmp_path / "file", tmp_path / "copy"
    KINDS[kind].write(path)
    copy.write_bytes(path.read_bytes())

    def loaded(path):
        return tabular.load(path) if kind.startswith("table") else bn.load(path, network())

    def mean(posterior):
        if kind.startswith("table"):
            return torch.tensor(posterior.predict(table()[0]))
        return posterior.predict(rows()[0]).mean

    def read_spoil_and_predict():  # where the file is mapped into memory, this ends by SIGBUS, or with other numbers
        posterior = loaded(path)
        with path.open("r+b") as file:
            file.truncate(0) if spoil == "truncated" else file.write(b"\x40" * path.stat().st_size)
        assert torch.equal(mean(posterior), mean(loaded(copy)))

    in_a_child(read_spoil_and_predict)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_what_is_loaded_and_saved_again_is_the_same_file(kind, tmp_path):
    KINDS[kind].write(tmp_path / "first")
    bn.load(tmp_path / "first", network()).save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_calibrated_and_compiled_posteriors_are_saved_as_they_are(tmp_path):
    x, y = rows()
    posterior = bn.calibrate(bn.MCBN(batch_size=8, states=6).fit(network(), x, bn.Gaussian()), x, y)
    posterior.save(tmp_path / "plain")
    posterior.compile().save(tmp_path / "compiled")
    loaded = bn.load(tmp_path / "plain", network())
    assert torch.equal(loaded.predict(x).variance, posterior.predict(x).variance)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "compiled").read_bytes()


def test_arguments_turned_round_are_told_in_one_line(tmp_path):
    with pytest.raises(
        BayesNormError, match=r"^path is a network \(Sequential\). Pass the file first: load\(path, model\)"
    ):
        bn.load(network(), tmp_path / "file")
    with pytest.raises(FileFormatError, match=r"^path must be the path of a file, got int"):
        bn.load(3, network())
    with pytest.raises(FileFormatError, match=r"^path must be .*, got NoneType"):
        tabular.load(None)
    with pytest.raises(FileFormatError, match=r"^path must be .*, got list"):
        bn.MCDropout().fit(network(), None, bn.Gaussian()).save([])


@pytest.mark.parametrize("kind", ["flow", "table dropout", "labels", "checkpoint"])
def test_a_full_disk_is_told_and_leaves_the_old_file_alone(kind, tmp_path):
    path = tmp_path / "file"
    if kind not in ("labels", "checkpoint"):  # which would go on from it
        path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(FileFormatError) as caught:
            KINDS[kind].write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    argument = "checkpoint" if kind == "checkpoint" else "path"
    assert str(caught.value).startswith(
        f"{argument}: could not write {path}: File too large. The previous file is unchanged. "
    )
    assert os.listdir(tmp_path) == (["file"] if path.exists() else []), "no litter"
    assert not path.exists() or path.read_bytes() == b"old"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write to")
def test_a_folder_that_nobody_can_write_to_is_told():
    posterior = bn.MCDropout().fit(network(), None, bn.Gaussian())
    with pytest.raises(FileFormatError, match=r"path: could not write /proc/self/nothing: .* or choose another path"):
        posterior.save("/proc/self/nothing")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0", "has format version 0, but this bayesnorm reads version 1. To fix this, save it again"),
        ("2", "has format version 2, but this bayesnorm reads version 1. To fix this, upgrade bayesnorm"),
        ("1" * 5000, "has format version 1{20}, but this bayesnorm reads version 1. To fix this, save it again"),
        ("x", "has format version x, but"),
    ],
)
def test_other_versions_of_the_format(version, said, tmp_path, monkeypatch):
    path = tmp_path / "file"
    monkeypatch.setattr(files, "VERSION", version)
    KINDS["dropout"].write(path)
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match=said):
        bn.load(path, network())


@pytest.mark.parametrize("kind", ["dropout", "table dropout", "labels", "checkpoint"])
def test_all_kinds_of_files_have_one_version(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "VERSION", 2)
    KINDS[kind].write(tmp_path / "file")
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match="upgrade bayesnorm, because a newer version wrote it"):
        KINDS[kind].use(tmp_path / "file")


def test_a_sparse_file_of_a_terabyte_is_not_read(tmp_path):
    KINDS["dropout"].write(tmp_path / "file")
    os.truncate(tmp_path / "file", 2**40)
    with pytest.raises(FileFormatError, match=r"1099511627776 bytes instead of"):
        bn.load(tmp_path / "file", network())
    (tmp_path / "zeros").touch()
    os.truncate(tmp_path / "zeros", 2**40)
    with pytest.raises(FileFormatError, match="truncated or not a bayesnorm file"):
        bn.load(tmp_path / "zeros", network())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a": ' * 50_000 + "1" + "}" * 50_000, id="deep"),
        pytest.param('{"a": ' + "[" * 150 + "]" * 150 + "}", id="nested"),
        '{"a": 1e400}',
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        pytest.param('{"a": ' + "9" * 5000 + "}", id="digits"),
        "[]",
    ],
)
def test_json_that_no_writer_writes(text, tmp_path, monkeypatch):
    path = tmp_path / "file"
    with monkeypatch.context() as patch:
        dumps = json.dumps
        patch.setattr(
            json, "dumps", lambda value, **options: text if "allow_nan" in options else dumps(value, **options)
        )
        files.write(path, {}, {})
    with pytest.raises(FileFormatError, match=r"path: .*contains (invalid JSON|JSON that bayesnorm did not write)"):
        files.read(path)
