"""Places where a store cannot be."""

from __future__ import annotations

import subprocess
import sys


def test_what_has_no_log_is_refused():
    """SQLite takes this name for memory, where no other process could see results; asking for a log again and again
    would never end, so another process asks."""
    code = "from experiments.bench import Store; Store(':memory:')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "FileFormatError: path: SQLite can keep no write-ahead log for :memory:" in done.stderr
