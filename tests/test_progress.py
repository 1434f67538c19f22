"""Bars of long operations."""

import time

import pytest

from bayesnorm.progress import long_progress

pytest.importorskip("rich", reason="needs rich: pip install typer rich")


def shown(capsys, monkeypatch, seconds, terminal=True):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with long_progress("outer") as tell:
        now[0] = seconds
        tell(1, 3)
        with long_progress("inner") as inner:
            now[0] = 2 * seconds
            inner(1, 2)
        tell(2, 3)
    return capsys.readouterr().err


def test_a_bar_appears_after_two_seconds_and_only_the_outer_one(capsys, monkeypatch):
    text = shown(capsys, monkeypatch, 2.5)
    assert "outer" in text
    assert "inner" not in text


@pytest.mark.parametrize(("seconds", "terminal"), [(0.9, True), (2.5, False)])
def test_short_operations_and_files_get_no_bar(seconds, terminal, capsys, monkeypatch):
    assert shown(capsys, monkeypatch, seconds, terminal) == ""


def test_an_unknown_total_and_an_error_leave_the_next_bar_possible(capsys, monkeypatch):
    monkeypatch.setattr("bayesnorm.progress.QUIET_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(ZeroDivisionError), long_progress("first") as tell:
        tell(1 // 0, 0)
    with long_progress("second") as tell:
        tell(7, 0)
    assert "second" in capsys.readouterr().err
