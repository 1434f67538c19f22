"""The file of the live page: it is up to date, small, and it asks for nothing from outside."""

import json
import re
import shutil
import subprocess

import pytest

from bayesnorm.demo import build

NODE = shutil.which("node")
LINKS = """
const { fromHash, toHash } = await import(`file://${process.argv[1]}/page/state.js`);
const { readCsv } = await import(`file://${process.argv[1]}/page/data_sets.js`);
const links = JSON.parse(process.argv[2]).map((link) => toHash(fromHash(link)));
const tables = JSON.parse(process.argv[3]).map((text) => readCsv(text));
console.log(JSON.stringify({ links, tables }));
"""


@pytest.fixture(scope="module")
def page():
    return build.PAGE.read_text("utf-8")


def test_the_built_page_is_up_to_date(page):
    assert page == build.demo_page(), "run: python -m bayesnorm.demo.build"


def test_the_page_is_one_small_file_that_loads_nothing(page):
    assert len(page.encode()) <= build.LARGEST
    assert re.search(r"\b(?:src|href)=\"(?!#)|url\(|@import", page) is None
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|WebSocket|importScripts|sendBeacon)\b", page)
    assert "default-src 'none'" in page


def test_names_of_modules_must_differ(tmp_path):
    first, second = tmp_path / "first.js", tmp_path / "second.js"
    first.write_text("export const SIZE = 1;\n")
    second.write_text("function SIZE() {}\n")
    with pytest.raises(ValueError, match=r"SIZE is declared in first\.js and in second\.js"):
        build.require_unique_names([first, second])


@pytest.mark.skipif(NODE is None, reason="needs node: apt-get install nodejs")
def test_links_are_restored_and_hostile_ones_are_ignored():
    points = ";".join(f"{x},{x * x}" for x in range(9))
    good = [
        "",
        "data=noisy&method=gaussian&noise=varies",
        "compare=ensemble&size=48&samples=64&width=12&seed=7",
        f"data=own&points={points}",
    ]
    bad = [
        "data=constructor&method=__proto__&size=1e9&samples=-4&width=NaN&seed=x",
        "data=own&points=1,2;<b>,3",
        f"data=own&points={';'.join(['1e300,1'] * 9)}",
        "%E0%A4%A&&==&points=",
        "noise=off%00&compare=mcbn'",
    ]
    tables = ["a,b\n" + "\n".join(f"{x},{x}" for x in range(9)), "\n".join(f"n;{x},5;{x}" for x in range(9))]
    command = [NODE, "--input-type=module", "-e", LINKS, str(build.FOLDER), json.dumps(good + bad), json.dumps(tables)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["links"] == good + [""] * len(bad)
    assert result["tables"] == [[[x, x] for x in range(9)], [[x + 0.5, x] for x in range(9)]]
