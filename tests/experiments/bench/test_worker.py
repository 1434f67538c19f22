"""A worker process by itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from experiments.bench.pool import SCRIPT


@pytest.mark.parametrize("last", ["", '{"function": "fake_units:square", "param'])
def test_it_ends_with_its_runner(last):
    """Also where the runner is killed in the middle of a line, which long parameters take several writes for."""
    settings = json.dumps({"path": sys.path, "threads": 1})
    with subprocess.Popen(
        [sys.executable, "-P", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
    ) as worker:
        try:
            told, _ = worker.communicate(f"{settings}\n{last}", timeout=60)
        finally:
            worker.kill()
    assert (told, worker.returncode) == ("", 1)
