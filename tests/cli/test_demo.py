"""`bayesnorm demo`: opens the live page, or writes it to a file."""

from bayesnorm.demo import PAGE
from bayesnorm.writing import write_bytes


def test_the_command_writes_the_page_and_opens_it(bayesnorm, refuses, tmp_path, monkeypatch):
    opened, page = [], PAGE.read_text("utf-8")
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    out = tmp_path / "demo.html"
    assert bayesnorm("demo", "--out", str(out), "--no-browser").code == 0
    assert out.read_text("utf-8") == page
    assert opened == []
    write_bytes(out, b"mine")
    assert "exists already" in refuses("demo", "--out", str(out))
    assert bayesnorm("demo", "--out", str(out), "--force").code == 0
    assert opened == [out.as_uri()]
    assert bayesnorm("demo").code == 0
    assert opened[-1] == PAGE.as_uri()
