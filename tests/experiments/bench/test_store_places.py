"""Places where a store cannot be."""

from __future__ import annotations

import signal

import pytest

from bayesnorm.errors import FileFormatError
from experiments.bench import Store


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="needs an alarm")
def test_what_has_no_log_is_refused():
    """SQLite takes this name for memory, where no other process could see results; asking for a log again and again
    would never end, so an alarm is set."""

    def never_ends(_signal, _frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, never_ends)
    signal.alarm(60)
    try:
        with pytest.raises(FileFormatError, match="path: SQLite cannot use a write-ahead log for :memory:"):
            Store(":memory:")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
