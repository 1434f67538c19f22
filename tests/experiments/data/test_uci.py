"""The UCI sets."""

import io

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


def saved(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


X, OBJECTS = np.ones((30, 2)), np.array([{"code": 1}], dtype=object)
DAMAGED = [
    b"",
    b"not an archive",
    saved(X=X, y=X[:, 0])[:300],
    saved(X=OBJECTS, y=X[:1, 0]),
    saved(X=X),
    saved(X=X, y=X),
]


@pytest.mark.parametrize("content", DAMAGED, ids=len)
def test_damaged_or_foreign_file_is_a_clear_error(content, data_folder):
    (data_folder / "uci").mkdir()
    (data_folder / "uci" / "yacht.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"yacht\.npz"):
        load_uci("yacht")
