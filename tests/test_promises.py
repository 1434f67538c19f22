"""The page of promises: the tests that it names exist, and so do the numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")


def test_all_files_that_the_page_names_exist():
    named = re.findall(r"`((?:tests|benchmarks|results|docs)/[\w./]+)`", PAGE)
    assert len(named) > 40
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_every_promise_says_how_it_is_tested():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 30
    for row in rows:
        _, _, tested, _ = re.split(r"(?<!\\)\|", row)
        assert re.search(r"`tests/[\w/]+\.py`|by hand", tested), row


def test_the_soak_found_no_growth():
    found = json.loads((ROOT / "results" / "soak.json").read_text())
    last = found["rounds"][-1]
    assert (last["fits"], last["predictions"]) == (200, 1000)
    assert found["growth"].pop("resident_mib") < 1
    assert set(found["growth"].values()) == {0}
