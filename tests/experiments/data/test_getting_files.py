"""Downloads and packages, from a server and clients of this machine alone."""

import hashlib
import io
import os
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bayesnorm.errors import FileFormatError
from experiments.data.getting import files
from experiments.data.getting.files import OfficialFile, PackageFile, SourceUnreachable
from experiments.data.getting.sources import LARGEST_TABLE, SETS

CONTENT = bytes(range(256)) * 40
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def server():
    """A server of `set.bin`; `server.cuts` are the bytes after which it hangs up, request by request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            here.asked.append(asked)
            start = int(asked[6:-1]) if asked and here.resumes else 0
            if not self.path.endswith("set.bin"):
                self.send_error(404)
                return
            if start >= len(here.content) and asked and here.resumes:
                self.send_error(416)
                return
            body = here.content[start:]
            self.send_response(206 if asked and here.resumes else 200)
            if here.has_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: here.cuts.pop(0)] if here.cuts else body)

        def log_message(self, *_args):
            """Say nothing."""

    here = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here.asked, here.cuts, here.content, here.resumes, here.has_length = [], [], CONTENT, True, True
    here.handle_error = lambda *_: None  # of clients that stop early
    here.url = f"http://127.0.0.1:{here.server_port}/set.bin"
    thread = threading.Thread(target=here.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield here
    here.shutdown()
    here.server_close()
    thread.join()


def silent(*_told):
    """Tell nobody."""


def official(url, checksum=CHECKSUM, size=10_240):
    """The file of a server."""
    return OfficialFile(url, checksum, size)


def test_a_download_is_whole_and_told(server, tmp_path):
    told = []
    path = official(server.url).fetch(tmp_path, lambda *words: told.append(words))
    assert path.read_bytes() == CONTENT
    assert told[-1] == ("set.bin", len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["set.bin"]
    official(server.url).fetch(tmp_path, silent)
    assert len(server.asked) == 1  # a file that is there is not fetched


def test_a_connection_that_breaks_is_made_again_from_there(server, tmp_path):
    server.cuts = [1000, 2000]
    assert official(server.url).fetch(tmp_path, silent).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-", "bytes=3000-"]


def test_half_a_download_is_an_error_and_the_next_call_goes_on(server, tmp_path):
    server.cuts = [1000, 10, 10]
    with pytest.raises(FileFormatError, match=r"set\.bin is incomplete: 1,020 .*bytes are in .*set\.bin\.part"):
        official(server.url).fetch(tmp_path, silent)
    assert (tmp_path / "set.bin.part").read_bytes() == CONTENT[:1020]
    server.asked.clear()
    assert official(server.url).fetch(tmp_path, silent).read_bytes() == CONTENT
    assert server.asked == ["bytes=1020-"]


@pytest.mark.parametrize("name", ["set.bin", "set.bin.part", None])
def test_other_content_is_refused_by_name_and_deleted_unless_it_was_there(name, server, tmp_path):
    if name is None:
        server.content = CONTENT[::-1]
    else:
        (tmp_path / name).write_bytes(b"a page that says no")
    with pytest.raises(FileFormatError, match=r"^set\.bin is not the expected file: it has .* bytes and sha256"):
        official(server.url).fetch(tmp_path, silent)
    assert [path.name for path in tmp_path.iterdir()] == (["set.bin"] if name == "set.bin" else [])


def test_what_is_not_there(server, tmp_path):
    with pytest.raises(SourceUnreachable, match="returned 404"):
        official(server.url.replace("set.bin", "other")).fetch(tmp_path, silent)
    server.server_close()
    with pytest.raises(SourceUnreachable, match="cannot be reached"):
        official("http://127.0.0.1:9/set.bin").fetch(tmp_path, silent)


def package(**changes):
    options = {"client": "tried", "package": "a-set", "version": "1.2", "ending": ".tgz", "checksum": CHECKSUM}
    options["size"] = len(CONTENT)
    return PackageFile(**{**options, **changes})


def client(monkeypatch, code):
    monkeypatch.setitem(files.CLIENTS, "tried", [sys.executable, "-c", code, "{package}@{version}"])


@pytest.mark.parametrize("prints_address", [True, False])
def test_a_client_fetches_a_package(prints_address, server, monkeypatch, tmp_path):
    write = "import sys; open(sys.argv[1] + '.tgz', 'wb').write(bytes(range(256)) * 40)"
    client(monkeypatch, f"print({server.url!r})" if prints_address else write)
    source = package(size=len(CONTENT) if prints_address else None)
    path = source.fetch(tmp_path, silent)
    assert path == tmp_path / "a-set-1.2.tgz"
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]
    client(monkeypatch, "raise SystemExit('not asked')")
    assert source.fetch(tmp_path, silent) == path
    path.write_bytes(b"half")
    with pytest.raises(FileFormatError, match=r"a-set-1\.2\.tgz is not the expected file: it has 4 bytes"):
        source.fetch(tmp_path, silent)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no such package')", r"could not download the package a-set \(no such package\)"),
        ("pass", r"no registry of tried has a-set-1\.2\.tgz"),
        (None, "no-such-client is not installed"),
    ],
)
def test_clients_that_fail(code, message, monkeypatch, tmp_path):
    client(monkeypatch, code)
    if code is None:
        monkeypatch.setitem(files.CLIENTS, "tried", ["no-such-client", "{package}"])
    with pytest.raises(SourceUnreachable, match=message):
        package().fetch(tmp_path, silent)
    assert not list(tmp_path.iterdir())


def test_a_client_that_writes_nothing(monkeypatch, tmp_path):
    client(monkeypatch, "pass")
    with pytest.raises(SourceUnreachable, match=r"wrote no file that ends in \.tgz"):
        package(size=None).fetch(tmp_path, silent)


def test_a_python_package_is_not_built_and_its_checksum_is_compared_first(monkeypatch, tmp_path):
    """An index with a source package whose build would leave a file behind."""
    ran = tmp_path / "ran"
    pages = tmp_path / "simple" / "a-set"
    pages.mkdir(parents=True)
    setup = f"open({str(ran)!r}, 'w')".encode()
    with tarfile.open(pages / "a_set-1.2.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("a_set-1.2/setup.py")
        info.size = len(setup)
        archive.addfile(info, io.BytesIO(setup))
    content = (pages / "a_set-1.2.tar.gz").read_bytes()
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    links = ["a_set-1.2.1.tar.gz", f"a_set-1.2.tar.gz#sha256={checksum[7:]}"]
    (pages / "index.html").write_text("".join(f'<a href="{link}">{link}</a>' for link in links))
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    source = package(client="pip", ending=".tar.gz", checksum=checksum, size=len(content))
    assert source.fetch(downloads, silent).read_bytes() == content
    with pytest.raises(SourceUnreachable, match=r"no registry of pip has a-set-9\.tar\.gz"):
        package(client="pip", version="9", ending=".tar.gz").fetch(downloads, silent)
    (pages / "a_set-1.2.tar.gz").write_bytes(content[:-1] + b"?")
    (downloads / source.name).unlink()
    with pytest.raises(FileFormatError, match=r"is not the expected file: it has .* bytes and sha256"):
        source.fetch(downloads, silent)
    (pages / "a_set-1.2.tar.gz").write_bytes(content + b"more")
    with pytest.raises(FileFormatError, match=rf"is not the expected file: it has more than {len(content):,} bytes"):
        source.fetch(downloads, silent)
    assert not list(downloads.iterdir())
    assert not ran.exists()


@pytest.mark.parametrize("has_length", [True, False])
def test_a_download_stops_at_the_size_it_should_have(has_length, server, tmp_path):
    server.content, server.has_length = bytes(2**20), has_length
    for source in (official(server.url, None, 2**20 - 1), official(server.url)):
        with pytest.raises(FileFormatError, match=rf"set\.bin .*it has more than {source.size:,} bytes\. It was"):
            source.fetch(tmp_path, silent)
        assert not list(tmp_path.iterdir())
    assert official(server.url, None, 2**20).fetch(tmp_path, silent).stat().st_size == 2**20


def test_every_pinned_file_has_its_size():
    sources = [
        file for targets in SETS.values() for target in targets for origin in target.origins for file in origin.files
    ]
    for source in sources:
        if source.checksum is not None:
            assert source.size not in (None, LARGEST_TABLE)
        else:
            assert source.size in (None, LARGEST_TABLE, 8_458_043)  # of Debian, of repositories, of notMNIST
