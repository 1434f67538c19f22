"""Tables in ZIP archives, and arrays of JSON objects, are read as the same rows in a CSV file, within all limits."""

import io
import json
import zipfile

import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from bayesnorm.cli import tables
from bayesnorm.errors import InputError

LINES = "a,b\n1,x\n2,y\n3,\n"
RECORDS = [{"a": 1, "b": "x"}, {"a": 2, "b": "y, {z]"}, {"b": None, "a": 3.5}]


def archive(**files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            target.writestr(name.replace("__", "/").replace("_csv", ".csv"), content)
    return stream.getvalue()


def read(path, **options):
    return tables.read_table(tables.open_table(path, **options))


def test_a_zip_archive(write):
    plain = read(write(LINES))
    packed = read(write(archive(t_csv=LINES), "t.zip"))
    assert packed.equals(plain)
    with_folder = read(write(archive(d__t_csv=LINES), "u.zip"))
    assert with_folder.equals(plain)


def test_archives_that_are_no_table(write):
    with pytest.raises(InputError, match="is a ZIP archive of 2 files"):
        read(write(archive(a_csv=LINES, b_csv=LINES), "t.zip"))
    with pytest.raises(InputError, match="cannot be unpacked"):
        read(write(archive(a_csv=LINES)[:60], "t.zip"))
    damaged = bytearray(archive(a_csv=LINES * 500))
    damaged[60] ^= 255
    with pytest.raises(InputError, match="cannot be unpacked"):
        read(write(bytes(damaged), "t.zip"))


@pytest.mark.parametrize("name", ["t.zip", "t.csv"])
def test_an_archive_whose_table_of_contents_is_elsewhere(write, name):
    damaged = bytearray(archive(a_csv=LINES))
    place = damaged.rindex(b"PK\x05\x06") + 16
    damaged[place] += 50
    with pytest.raises(InputError, match=r"cannot be unpacked|is a ZIP archive"):
        read(write(bytes(damaged), name))


def test_a_zip_bomb_is_stopped_at_the_size_limit(write):
    packed = archive(t_csv=LINES + "4,z\n" * 2_000_000)
    assert len(packed) < 2**16
    with pytest.raises(InputError, match="more than 1 MiB"):
        read(write(packed, "t.zip"), max_mib=1)


@pytest.mark.parametrize("block", [2**20, 7])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_of_objects(write, monkeypatch, block, indent):
    monkeypatch.setattr(tables.Source, "blocks", _in_blocks(tables.Source.blocks, block))
    path = write(" " + json.dumps(RECORDS, indent=indent) + "\n", "t.json")
    frame = read(path)
    assert frame["a"].tolist() == [1, 2, 3.5]
    assert frame["b"].tolist() == ["x", "y, {z]", None]
    lines = read(write("".join(json.dumps(record) + "\n" for record in RECORDS), "t.jsonl"))
    assert frame.equals(lines)


def _in_blocks(blocks, size):
    def smaller(self):
        for block in blocks(self):
            yield from (block[start : start + size] for start in range(0, len(block), size))

    return smaller


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"a": 1}, {"a": 2}', "the array breaks off after 2 objects"),
        ('[{"a": 1} {"a": 2}]', "the array breaks off after 1 object"),
        ('[{"a": 1}, {"a": 2]', "object 2 is not JSON"),
        ('[{"a": 1}, 3]', "the array breaks off after 1 object"),
        ('[{"a": 1}] x', "the array breaks off after 1 object"),
        ('[{"a": 1, "a": 2}]', "the key 'a' occurs twice"),
        ('[{"a": ' + "[" * 100_000, "object 1 is not JSON"),
        ('{"a": [1]}', "has column names|JSON"),
    ],
)
def test_arrays_that_are_damaged(write, text, says):
    with pytest.raises(InputError, match=says):
        read(write(text, "t.json"))


def test_arrays_have_the_limits_of_all_tables(write):
    row = json.dumps({"a": "x" * 100})
    with pytest.raises(InputError, match="more than 1 MiB"):
        read(write(f"[{','.join([row] * 20_000)}]", "t.json"), max_mib=1)
    with pytest.raises(InputError, match="has a row of more than 8 MiB"):
        read(write(json.dumps([{"a": "x" * (9 * 2**20)}]), "t.json"))
    assert len(read(write(f"[{','.join([row] * 5_000)}]", "t.json"))) == 5_000
