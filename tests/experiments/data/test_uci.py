"""The UCI sets."""

import zipfile

import numpy as np
import pytest

from bayesnorm.errors import FileFormatError
from experiments.data import UCI_SETS, load_uci

SHAPES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine": (1599, 11),
    "yacht": (308, 6),
}


@pytest.mark.parametrize("name", UCI_SETS)
def test_shapes_and_types(name, require):
    require(f"uci/{name}.npz")
    X, y = load_uci(name)
    assert X.shape == SHAPES[name]
    assert y.shape == SHAPES[name][:1]
    assert X.dtype == y.dtype == np.float64
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()


def test_boston_is_boston_in_its_original_order(require):
    require("uci/boston.npz")
    X, y = load_uci("boston")
    # The published facts of the set: mean 22.53 (thousand dollars), and its famous first row.
    assert y.mean() == pytest.approx(22.5328, abs=1e-4)
    assert y[:3].tolist() == [24.0, 21.6, 34.7]
    assert X[0, :3].tolist() == [0.00632, 18.0, 2.31]


def _valid(path):
    np.savez(path, X=np.ones((30, 2)), y=np.zeros(30))


def _truncated(path):
    _valid(path)
    path.write_bytes(path.read_bytes()[:300])


def _bare_array(path):
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def _pickled(path):
    np.savez(path, X=np.array([{"code": 1}], dtype=object), y=np.zeros(1))


def _zip_of_words(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", "no array")
        archive.writestr("y.npy", "no array")


@pytest.mark.parametrize(
    "damage",
    [
        _truncated,
        _bare_array,
        _pickled,
        _zip_of_words,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("not an archive"),
        lambda path: np.savez(path, X=np.ones((3, 2))),
        lambda path: np.savez(path, X=np.ones((3, 2)), y=np.ones((3, 1))),
    ],
)
def test_damaged_or_foreign_file_is_a_clear_error(damage, data_folder):
    (data_folder / "uci").mkdir()
    damage(data_folder / "uci" / "yacht.npz")
    with pytest.raises(FileFormatError, match=r"yacht\.npz"):
        load_uci("yacht")
