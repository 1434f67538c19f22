"""Hostile tables of every format, and what comes of reading them: rows or one line of error, in little memory."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import random
import sqlite3
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayesnorm.cli.file_columns import ColumnFormat, convert_columns
from bayesnorm.cli.table_source import MEMORY_FACTOR
from bayesnorm.cli.tables import open_table, read_chunks, read_table
from bayesnorm.errors import BayesNormError

from .mutations import changed_bytes
from .outcomes import Outcomes

# The size limits that cases are read under, in MiB.
SIZES = (1, 8, 64)

# What reading may take beyond a multiple of the size limit: half a GiB.
MORE_MEMORY = 2**29

Write = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class Shape:
    """A kind of hostile file.

    Args:
        write: Writes one.
        ending: How its name ends.
        refused: Whether it must be refused.
        table: The table to read of a database.
    """

    write: Write
    ending: str = ".csv"
    refused: bool = False
    table: str = ""


def text(content: Callable[[random.Random], str | bytes]) -> Write:
    """Return a function that writes the text of a case."""

    def write(path: Path, chance: random.Random) -> None:
        result = content(chance)
        path.write_bytes(result if isinstance(result, bytes) else result.encode("utf-8", "surrogatepass"))

    return write


def packed(content: Callable[[random.Random], bytes]) -> Write:
    """Return a function that writes the gzipped bytes of a case."""
    return lambda path, chance: path.write_bytes(gzip.compress(content(chance), 1))


def zipped(content: Callable[[random.Random], bytes], method: int = zipfile.ZIP_DEFLATED, files: int = 1) -> Write:
    """Return a function that writes a ZIP archive of files with these bytes."""

    def write(path: Path, chance: random.Random) -> None:
        with zipfile.ZipFile(path, "w", method) as archive:
            for number in range(files):
                archive.writestr(f"{number}.csv", content(chance))

    return write


def sheet(
    rows: str, *, names: str = '<row><c t="str"><v>a</v></c><c t="str"><v>b</v></c></row>', **parts: str
) -> Write:
    """Return a function that writes an Excel file with these rows; `parts` replace other parts of it."""

    def write(path: Path, chance: random.Random) -> None:
        kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
        main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        package = "http://schemas.openxmlformats.org/package/2006"
        sheet_type = "application/vnd.openxmlformats-officedocument.spreadsheetml"
        book = parts.get("book", "xl/workbook.xml")
        content = {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Override PartName="/{book}" '
            f'ContentType="{sheet_type}.sheet.main+xml"/><Override PartName="/xl/styles.xml" '
            f'ContentType="{sheet_type}.styles+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{kind}/officeDocument" Target="{book}"/></Relationships>',
            book: f'<workbook xmlns="{main}" xmlns:r="{kind}"><sheets><sheet name="s" sheetId="1" r:id="r1"/></sheets>'
            "</workbook>",
            f"xl/_rels/{Path(book).name}.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{kind}/worksheet" Target="worksheets/s.xml"/><Relationship Id="r2" Type="{kind}/styles" '
            'Target="styles.xml"/></Relationships>',
            "xl/styles.xml": f'<styleSheet xmlns="{main}">{parts.get("styles", "")}</styleSheet>',
            "xl/worksheets/s.xml": f'{parts.get("start", "")}<worksheet xmlns="{main}"><sheetData>{names}{rows}'
            f"</sheetData>{parts.get('end', '')}</worksheet>",
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, part in content.items():
                archive.writestr(name, part)

    return write


def database(*commands: str) -> Write:
    """Return a function that writes an SQLite database with a table t of three rows, after these commands."""

    def write(path: Path, chance: random.Random) -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE t (a, b)")
            file.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, "y"), (None, "z")])
            for command in commands:
                file.execute(command)
            file.commit()

    return write


def view(query: str) -> Write:
    """Return a function that writes a database with a view v."""
    return database(f"CREATE VIEW v AS {query}")


def parquet(columns: Callable[[Any], dict[str, Any]], **options: Any) -> Write:
    """Return a function that writes a Parquet file; `columns` makes them with pyarrow."""

    def write(path: Path, chance: random.Random) -> None:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns(pyarrow)), path, compression="zstd", **options)

    return write


def run_end(arrow: Any, value: Any, count: int) -> Any:
    """Return an array that holds one value many times in little memory."""
    return arrow.DictionaryArray.from_arrays(arrow.array([0] * count, arrow.int32()), arrow.array([value]))


RECURSION = "WITH RECURSIVE c(a, b) AS (SELECT 1, 2 UNION ALL SELECT a + 1, b FROM c) SELECT "
CELL = '<row><c t="str"><v>{}</v></c><c><v>{}</v></c></row>'

SHAPES: dict[str, Shape] = {
    "csv, one line": Shape(text(lambda chance: b"a," * chance.choice([10, 2**22, 2**24]))),
    "csv, a long line later": Shape(text(lambda _: b"a,b\n1,2\n" + b"x" * 2**24), refused=True),
    "csv, many columns": Shape(text(lambda _: ",".join(f"c{i}" for i in range(15_000)) + "\n" + "1," * 14_999 + "2\n")),
    "csv, too many columns": Shape(text(lambda _: ",".join(f"c{i}" for i in range(100_001)) + "\n1\n"), refused=True),
    "csv, short cells": Shape(text(lambda chance: "a,b,c\n" + chance.choice(["1,,\n", ",,\n", "ab,cd,e\n"]) * 300_000)),
    "csv, long cells": Shape(text(lambda chance: "a,b\n" + f"{'x' * 10**6},1\n" * chance.choice([3, 30]))),
    "csv, wide characters": Shape(text(lambda _: "a,b\n" + "ä,😀\n" * 20_000)),
    "csv, open quote": Shape(text(lambda chance: 'a,b\n"1,2\n' + "3,4\n" * chance.choice([1, 10**6])), refused=True),
    "csv, NUL": Shape(text(lambda _: "a,b\n" + "1,2\n" * 200 + "x\0y,\x1b[2J\n")),
    "csv, ESC in a name": Shape(text(lambda _: "a\x1b[31m,b\n1,2\n"), refused=True),
    "csv, surrogates": Shape(text(lambda _: "a,b\n\ud800,2\n")),
    "csv, same names": Shape(text(lambda _: "a,a\n1,2\n"), refused=True),
    "csv, blank lines": Shape(text(lambda _: "\n" * 200_000 + "a,b\n1,2\n"), refused=True),
    "csv, utf-16": Shape(text(lambda chance: "a,b\n1,2\n".encode("utf-16") + bytes([chance.randrange(256)]))),
    "csv, huge numbers": Shape(text(lambda _: "a,b\n" + "9" * 5000 + ",1e999\n-1e-999,0x10\n")),
    "gzip, one line": Shape(packed(lambda chance: bytes(chance.choice([1, 2**26]))), ".csv.gz", refused=True),
    "gzip, one text line": Shape(packed(lambda _: b"a,b\n" + b"1" * 2**26), ".csv.gz", refused=True),
    "gzip, many rows": Shape(packed(lambda chance: b"a,b\n" + b"1,2\n" * chance.choice([2**16, 2**20])), ".csv.gz"),
    "gzip, twice": Shape(packed(lambda _: gzip.compress(b"a,b\n1,2\n")), ".csv.gz", refused=True),
    "gzip, cut": Shape(
        lambda path, chance: path.write_bytes(gzip.compress(b"a,b\n1,2\n" * 9)[: chance.randrange(12, 30)]) and None,
        ".csv.gz",
        refused=True,
    ),
    "zip, one line": Shape(zipped(lambda _: b"a,b\n" + b"1" * 2**26), ".zip", refused=True),
    "zip, bzip2": Shape(zipped(lambda _: b"a,b\n" + b"1,2\n" * 2**24, zipfile.ZIP_BZIP2), ".zip"),
    "zip, lzma": Shape(zipped(lambda _: bytes(2**26), zipfile.ZIP_LZMA), ".zip", refused=True),
    "zip, several files": Shape(zipped(lambda _: b"a,b\n1,2\n", files=2), ".zip", refused=True),
    "zip, many files": Shape(zipped(lambda _: b"", files=20_000), ".zip", refused=True),
    "zip, packed again": Shape(zipped(lambda _: gzip.compress(b"a,b\n1,2\n" * 2**20)), ".zip"),
    "zip, many rows": Shape(zipped(lambda chance: b"a,b\n" + b"1,2\n" * chance.choice([2**16, 2**20])), ".zip"),
    "zip, cut": Shape(
        lambda path, chance: (
            zipped(lambda _: b"a,b\n1,2\n" * 9)(path, chance)
            or (path.write_bytes(path.read_bytes()[: chance.randrange(12, 60)]) and None)
        ),
        ".zip",
        refused=True,
    ),
    "array, deep": Shape(text(lambda _: '[{"a":' + "[" * 10**5 + "]" * 10**5 + "}]"), ".json", refused=True),
    "array, one long object": Shape(text(lambda _: '[{"a":"' + "x" * 2**24 + '"}]'), ".json", refused=True),
    "array, no end": Shape(text(lambda _: '[{"a":1},' * 10**5), ".json", refused=True),
    "array, an object without end": Shape(text(lambda _: '[{"a":1},{' + '"b":[1,' * 2**20), ".json", refused=True),
    "array, text that is none": Shape(text(lambda _: b'[{"a":1},' + b'{"a":2},' * 20_000 + b'{"a":"\xff"}]'), ".json"),
    "array, a key twice": Shape(text(lambda _: '[{"a":1},{"a":1,"a":2}]'), ".json", refused=True),
    "array, a key per object": Shape(
        text(lambda _: "[" + ",".join(f'{{"k{i}":1}}' for i in range(120_000)) + "]"), ".json", refused=True
    ),
    "json, a key per line": Shape(
        text(lambda chance: "".join(f'{{"k{i}":1}}\n' for i in range(chance.choice([9000, 120_000])))), ".jsonl", True
    ),
    "json, a key twice": Shape(text(lambda _: '{"a":1,"b":2}\n{"a":1,"a":2}\n'), ".jsonl", refused=True),
    "json, long number": Shape(text(lambda chance: f'{{"a":1{"0" * chance.choice([400, 4999])}}}\n'), ".jsonl", True),
    "json, endless number": Shape(text(lambda _: '{"a":1e999}\n'), ".jsonl", refused=True),
    "json, deep": Shape(text(lambda _: '{"a":' + "[" * 10**5 + "]" * 10**5 + "}\n"), ".jsonl", refused=True),
    "json, lists": Shape(text(lambda _: '{"a":[' + "[]," * 2**20 + "[]]}\n"), ".jsonl", refused=True),
    "json, surrogates": Shape(text(lambda _: '{"a":"\\ud800","b":"\\u001b[2J"}\n' * 3), ".jsonl"),
    "json, surrogate in a name": Shape(text(lambda _: '{"\\ud800":1}\n'), ".jsonl", refused=True),
    "json, empty": Shape(text(lambda _: "{}\n" * 10**5), ".jsonl"),
    "sqlite, recursion": Shape(view(RECURSION + "a, b FROM c"), ".db", True, "v"),
    "sqlite, counted recursion": Shape(view(RECURSION + "count(*) AS n FROM c"), ".db", True, "v"),
    "sqlite, product": Shape(
        database(
            "INSERT INTO t WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 99) SELECT n, 1 FROM c",
            "CREATE VIEW v AS SELECT x.a FROM t x, t y, t z, t w ORDER BY x.a + y.a",
        ),
        ".db",
        True,
        "v",
    ),
    "sqlite, zeroblob": Shape(view("SELECT zeroblob(900000000) AS a, b FROM t"), ".db", True, "v"),
    "sqlite, many blobs": Shape(
        view("SELECT zeroblob(8000000) AS a, x.b FROM t x, t y, t z, t w, t u"), ".db", True, "v"
    ),
    "sqlite, long text": Shape(
        view("SELECT replace(hex(zeroblob(4000000)), '0', 'abcd') AS a FROM t"), ".db", True, "v"
    ),
    "sqlite, damaged schema": Shape(
        database("PRAGMA writable_schema = 1", "UPDATE sqlite_master SET sql = 'CREATE \x1b[31m' || char(0)"),
        ".db",
        True,
        "t",
    ),
    "sqlite, a name of bytes": Shape(
        database("PRAGMA writable_schema = 1", "UPDATE sqlite_master SET name = x'ff00'"), ".db", True, "t"
    ),
    "sqlite, text that is none": Shape(database("INSERT INTO t VALUES (1, CAST(x'ff' AS TEXT))"), ".db", True, "t"),
    "sqlite, a virtual table": Shape(database("CREATE VIRTUAL TABLE v USING rtree(i, a, b)"), ".db", True, "v"),
    "sqlite, an extension": Shape(view("SELECT load_extension('x') AS a FROM t"), ".db", True, "v"),
    "sqlite, no name": Shape(view("SELECT a AS ' ' FROM t"), ".db", False, "v"),
}
if importlib.util.find_spec("openpyxl"):
    SHAPES |= {
        "xlsx, a row far away": Shape(
            sheet('<row r="99999999999"><c r="A99999999999"><v>1</v></c></row>'), ".xlsx", True
        ),
        "xlsx, the last column": Shape(
            sheet("".join(f'<row r="{i}"><c r="XFD{i}"><v>1</v></c></row>' for i in range(2, 9000))), ".xlsx", True
        ),
        "xlsx, no such column": Shape(sheet('<row r="2"><c r="ZZZZZZZ2"><v>1</v></c></row>'), ".xlsx", True),
        "xlsx, elements": Shape(sheet("<a/>" * 2**22, book="xl/other.xml"), ".xlsx"),
        "xlsx, elements with attributes": Shape(sheet("", styles='<a b=""/>' * 2**21), ".xlsx", True),
        "xlsx, unpacked": Shape(sheet(CELL.format("x" * 2**26, 1), book="xl/other.xml"), ".xlsx", True),
        "xlsx, entities": Shape(
            sheet(
                CELL.format("&b;" * 100, 1),
                start='<!DOCTYPE a [<!ENTITY a "' + "x" * 10**5 + '"><!ENTITY b "' + "&a;" * 100 + '">]>',
            ),
            ".xlsx",
            True,
        ),
        "xlsx, no such text": Shape(sheet('<row><c t="s"><v>7</v></c></row>'), ".xlsx", True),
        "xlsx, odd values": Shape(sheet('<row><c t="b"><v>x</v></c><c><v>1e999</v></c></row>'), ".xlsx", True),
        "xlsx, long number": Shape(sheet(f"<row><c><v>{'9' * 4000}</v></c><c><v>1</v></c></row>"), ".xlsx", True),
        "xlsx, no end": Shape(sheet("<row><c>"), ".xlsx", True),
        "xlsx, plain": Shape(sheet(CELL.format("x", 1) * 20), ".xlsx"),
    }
if importlib.util.find_spec("pyarrow"):
    SHAPES |= {
        "parquet, nulls": Shape(parquet(lambda arrow: {f"c{i}": arrow.nulls(2**20) for i in range(9)}), ".parquet"),
        "parquet, one long text": Shape(
            parquet(lambda arrow: {"a": run_end(arrow, "x" * 10**6, 10**5)}), ".parquet", refused=True
        ),
        "parquet, one page": Shape(
            parquet(lambda arrow: {"a": arrow.array([bytes(2**26).decode()])}, use_dictionary=False), ".parquet"
        ),
        "parquet, lists": Shape(parquet(lambda arrow: {"a": [[1] * 10] * 1000}), ".parquet", refused=True),
        "parquet, bytes": Shape(parquet(lambda arrow: {"a": [b"\xff"] * 9}), ".parquet", refused=True),
        "parquet, text that is none": Shape(
            parquet(
                lambda arrow: {
                    "a": arrow.Array.from_buffers(
                        arrow.string(), 1, [None, arrow.py_buffer(b"\0\0\0\0\1\0\0\0"), arrow.py_buffer(b"\xff")]
                    )
                }
            ),
            ".parquet",
            refused=True,
        ),
        "parquet, wide": Shape(parquet(lambda arrow: {f"c{i}": [1, None] for i in range(3000)}), ".parquet"),
        "parquet, plain": Shape(
            parquet(lambda arrow: {"a": [1.5, None] * 50, "b": ["x", "y"] * 50, "c": list(range(100))}), ".parquet"
        ),
    }

VALID = [
    "csv, many columns",
    "gzip, many rows",
    "zip, many rows",
    "json, surrogates",
    "sqlite, no name",
    "xlsx, plain",
    "parquet, plain",
]
"""Shapes whose bytes are changed at random."""


@dataclass
class Case:
    """A table to read: the argument, whether it must be refused, and its bytes if it comes through standard input."""

    name: str
    argument: str
    refused: bool
    stdin: bytes | None = None


@dataclass
class Cases:
    """Makes the cases of a folder; shapes that do not depend on chance are written once.

    Args:
        folder: Where files are written.
        written: Shapes that were written, and their contents.
    """

    folder: Path
    written: dict[str, bytes] = field(default_factory=dict)

    def make(self, seed: int) -> Case:
        """Return a case; the same seed gives the same case."""
        chance, names = random.Random(seed), list(SHAPES)
        valid = [name for name in VALID if name in SHAPES]
        changed = seed >= len(names) and chance.random() < 0.6
        name = chance.choice(valid) if changed else names[seed % len(names)]
        shape = SHAPES[name]
        path = self.folder / f"case{shape.ending}"
        for old in self.folder.glob("case*"):
            old.unlink()
        if name not in self.written:
            shape.write(path, chance)
            self.written[name] = path.read_bytes()
        content = changed_bytes(self.written[name], chance) if changed else self.written[name]
        path.write_bytes(content)
        if shape.table:
            return Case(name, f"sqlite:///{path}?{shape.table}", shape.refused and not changed)
        stdin = content if chance.random() < 0.2 else None
        return Case(name, "-" if stdin else str(path), shape.refused and not changed, stdin)


def read_hostile_tables(folder: Path, seeds: Sequence[int], *, quick: bool = False) -> Outcomes:
    """Read one hostile table for every seed.

    Args:
        folder: An empty folder.
        seeds: Which cases.
        quick: Whether all cases have the smallest size limit.
    """
    outcomes, cases = Outcomes(), Cases(folder)
    for seed in seeds:
        case, size = cases.make(seed), SIZES[0] if quick else random.Random(-seed).choice(SIZES)
        reset_peak()
        before, start = memory("VmRSS"), time.process_time()
        outcome = _outcome(case, size, parts=seed % 3 == 0)
        seconds, used = time.process_time() - start, memory("VmHWM") - before
        if used > MEMORY_FACTOR * size * 2**20 + MORE_MEMORY:
            outcome = f"fault: {used >> 20} MiB with --max-size {size}"
        outcomes.add(case.name, seed, outcome, seconds)
    return outcomes


def _outcome(case: Case, size: int, *, parts: bool) -> str:
    """Return what comes of a table."""
    stdin = sys.stdin
    try:
        if case.stdin is not None:
            sys.stdin = io.TextIOWrapper(io.BytesIO(case.stdin))
        file = open_table(case.argument, size)
        frames = read_chunks(file, None, 2000) if parts else iter([read_table(file)])
        for frame in frames:
            frame = frame[list(frame)[:50]]
            formats = dict.fromkeys([] if case.refused else frame, ColumnFormat(forgiving=True))
            inputs, _ = convert_columns(frame, file.source, formats)
            json.dumps([str(cell) for cell in inputs.iloc[:3].to_numpy().ravel()], ensure_ascii=False).encode()
    except BayesNormError as error:
        return "refused" if "\n" not in str(error) and str(error).isprintable() else f"fault: message {error!r}"
    except BaseException as error:
        return f"fault: {type(error).__name__}: {error}"[:300]
    finally:
        sys.stdin = stdin
    return "fault: read, but must be refused" if case.refused else "read"


def reset_peak() -> None:
    """Reset the recorded peak of this process's memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def memory(name: str) -> int:
    """Return bytes of memory of this process: VmRSS now, VmHWM at most."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024
