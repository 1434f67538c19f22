"""Files as people have them: encodings, packed ones, JSON lines, Excel, databases, standard input, and no tables."""

import csv
import gzip
import io
import pickle
import sqlite3
import sys
import zipfile

import pytest

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")

from bayesnorm.cli.ending import UsageError
from bayesnorm.cli.file_columns import convert_columns
from bayesnorm.cli.tables import open_table, read_chunks, read_table
from bayesnorm.errors import InputError

from .conftest import houses

CAFE = "a,café\n1,naïve\n2,x\n"


def zipped(**parts):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return archive.getvalue()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_encodings_are_found(write, encoding):
    file = open_table(write(CAFE.encode(encoding)))
    assert file.names == ("a", "café")
    assert read_table(file)["café"].tolist() == ["naïve", "x"]


def test_an_encoding_is_that_of_the_whole_file(write):
    file = open_table(
        write(b"a,b\n" + b"1,2\n" * 200 + b"\x80,\x81\n")
    )  # 0x80 is the euro sign; 0x81 is none of cp1252
    assert (file.encoding, read_table(file)["a"].iloc[-1]) == ("latin-1", "\x80")
    assert read_table(open_table(write(b"a,b\n" + b"1,2\n" * 200 + b"\x80,2\n")))["a"].iloc[-1] == "€"


def test_an_encoding_that_is_given(write):
    path = write(CAFE.encode("cp850"))
    assert open_table(path, encoding="cp850").names == ("a", "café")
    assert open_table(write("\ufeff" + CAFE), encoding="UTF8").names == ("a", "café")
    with pytest.raises(UsageError, match=r"--encoding must be an encoding that Python knows, .*, got 'frob'"):
        open_table(path, encoding="frob")
    with pytest.raises(InputError, match=r"--encoding: .* is not ascii text. Leave the option out"):
        open_table(path, encoding="ascii")


def test_packed_files(write):
    file = open_table(write(gzip.compress(b"a\tb,c\n1\t2\n"), "t.tsv.gz"))
    assert file.names == ("a", "b,c")
    assert [len(part) for part in read_chunks(file, ["a"], 1)] == [1]
    with pytest.raises(InputError, match="cannot be unpacked"):
        open_table(write(gzip.compress(CAFE.encode())[:-9], "t.csv.gz"))
    with pytest.raises(InputError, match=r"has more than 1 MiB\. Use fewer rows, or raise --max-size"):
        open_table(write(gzip.compress(b"a,b\n" + b"1,2\n" * 2**19)), max_mib=1)


def test_json_lines(write):
    text = '{"a": 1, "b": "x"}\n\n{"b": "NA", "a": 2.5, "c": true}\n{"a": null}\n'
    for name in ("t.jsonl", "t.ndjson", "t.txt"):
        file = open_table(write(text, name))
        frame, kinds = convert_columns(read_table(file), file.source)
        assert kinds == {"a": "number", "b": "category", "c": "category"}
        assert frame["a"].tolist()[:2] == [1.0, 2.5]
        assert frame["b"].tolist() == ["x", None, None]
    with pytest.raises(InputError, match=r"line 2 is not JSON \(.*\)\. Correct that line"):
        open_table(write('{"a": 1}\n{"a"\n'))
    with pytest.raises(InputError, match="the array breaks off after 0 objects"):
        open_table(write("[1]\n", "t.jsonl"))
    file = open_table(write('{"a": [1], "b": 2}\n'))
    with pytest.raises(InputError, match="column 'a' contains list values, as in row 1"):
        convert_columns(read_table(file), file.source)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "d b.sqlite"
    with sqlite3.connect(path) as file:
        file.execute('CREATE TABLE "my ""t" (a REAL, b TEXT)')
        file.execute("INSERT INTO \"my \"\"t\" VALUES (1.5, 'x'), (NULL, 'y')")
    file.close()
    return path


def test_databases(database):
    file = open_table(f'sqlite:///{database}?my "t')
    assert (file.names, file.source.name) == (("a", "b"), 'd b.sqlite?my "t')
    frame, kinds = convert_columns(read_table(file), file.source)
    assert kinds == {"a": "number", "b": "category"}
    assert frame["b"].tolist() == ["x", "y"]
    for options, told in (
        (f"sqlite:///{database}?a", "has no table 'a'. Pass sqlite:///.* Its tables are my \"t"),
        (f'sqlite:///{database}?my "t"; DROP TABLE "my ""t', "has no table"),
        (f"sqlite:///{database}", "No table of .* is named"),
        (database, "is an SQLite database. Pass sqlite:///.*TABLE instead"),
        (f"sqlite:///{database}none?a", "does not exist"),
    ):
        with pytest.raises(InputError, match=told):
            open_table(options)
    assert not database.with_name("d b.sqlitenone").exists()


def test_a_database_that_is_none(write):
    with pytest.raises(InputError, match="cannot be read as an SQLite database"):
        open_table(f"sqlite:///{write(CAFE)}?t")


def test_excel(tmp_path):
    excel = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install openpyxl")
    book = excel.Workbook()
    for row in ([], ["a", "b", None], [1, "x"], [None, "NA", "stray"], [2.5, "y"]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    file = open_table((tmp_path / "t.xlsx").rename(tmp_path / "t.csv"))
    frame, kinds = convert_columns(read_table(file), file.source)
    assert kinds == {"a": "number", "b": "category"}
    assert frame["b"].tolist() == ["x", None, "y"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (zipped(a="b", c="d"), "is a ZIP archive of 2 files. Unpack it"),
        (b"\x89PNG\r\n\x1a\n\0", "is a PNG image. Pass a CSV"),
        (b"\xff\xd8\xff\xe0\0", "is a JPEG image"),
        (pickle.dumps([1]), "is a Python pickle, which can run any code"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an old Excel or Office file. Save it as .xlsx or CSV"),
        (b"%PDF-1.4\n", "is a PDF document"),
        (b"BZh91AY&SY\0", "is compressed with bzip2. Unpack it first"),
        (bytes(range(256)), "is not a text file. Pass a CSV"),
    ],
)
def test_files_that_hold_no_table_are_called_by_their_name(write, content, told):
    with pytest.raises(InputError, match=told) as caught:
        open_table(write(content))
    assert "ncod" not in str(caught.value)


def test_a_name_that_looks_like_the_beginning_of_another_file(write):
    assert open_table(write("GIF8,b\n1,2\n")).names == ("GIF8", "b")


def test_standard_input_that_holds_nothing_or_too_much(monkeypatch):
    for stream in (None, io.TextIOWrapper(io.BytesIO())):
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(InputError, match="standard input is empty"):
            open_table("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n" * 2**19)))
    with pytest.raises(InputError, match="standard input has more than 1 MiB"):
        open_table("-", max_mib=1)


def test_one_model_for_all_of_them(fit, facts, bayesnorm, refuses, tmp_path, monkeypatch):
    """What was decided in training holds afterwards: the signs beside numbers, and the decimal comma of a column."""
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

    def table(rows):
        text = io.StringIO()
        cells = [["área", "rate", "width", "price"]]
        for i, (area, _, _, price) in enumerate(rows):
            cells.append([area, f"{i % 7} %", f"{1 + i % 5},{i % 10}", f"${1000 + float(price):,.2f}"])
        csv.writer(text).writerows(cells)
        return text.getvalue()

    def stdin(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-16"))))

    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(table(houses(40)[1:]).encode("cp1252")))
    ended = fit(data=tmp_path / "t.csv.gz")
    assert ended.code == 0, ended.err
    assert "rate contains numbers such as '0 %', which is read as 0." in ended.err
    assert "regression" in ended.err
    result = facts()
    assert result["columns"] == [
        {"name": "área", "kind": "number"},
        {"name": "rate", "kind": "number", "mark": "%"},
        {"name": "width", "kind": "number", "mark": "", "decimal": ","},
    ]
    assert result["data"]["file"] == "t.csv.gz"
    new = 'área,rate,width\n100,3 %,"1,250"\n'  # thousands anywhere else
    stdin(new)
    out = tmp_path / "p.csv"
    assert bayesnorm("predict", tmp_path / "run", "-", "--out", out).code == 0
    (tmp_path / "plain.jsonl").write_text('{"área": 100, "rate": "3%", "width": 1.25}\n', encoding="utf-8")
    ended = bayesnorm("predict", tmp_path / "run", tmp_path / "plain.jsonl")
    assert ended.out.replace("\r", "") == out.read_text()
    stdin(new.replace("3 %", "0.03"))
    assert (
        "rate contains '0.03', which cannot be read and counts as missing"
        in bayesnorm("predict", tmp_path / "run", "-").out
    )
    stdin(new[:16] + '100,0.03,"1,250"\n' * 20)
    line = refuses("predict", tmp_path / "run", "-")
    assert "standard input: column 'rate' contains numbers with % in training, but row 1 contains '0.03'" in line
