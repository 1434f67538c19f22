"""The documentation site: its navigation, the pages that programs write, and links. `make docs` builds it."""

import importlib
import json
import re

import pytest

import bayesnorm as bn
from docs.site.command_line import PAGE, command_line_page
from docs.site.links import OUTSIDE, ROOT, dead_links, rewrite_links, site_path
from docs.site.offline import external_loads
from docs.site.python_api import TOPICS, api_pages, first_sentence, public_names
from docs.site.tutorials import FOLDER, cells, notebook, programs, run_cells

DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r"(\S+\.md)$", text, flags=re.MULTILINE)


def test_the_navigation_lists_every_page_once():
    files = {site_path(file) for file in DOCS if file != "docs/index.md"}  # the README is the home page
    assert sorted(navigation()) == sorted({*files, *OUTSIDE.values(), *api_pages()})


def test_the_list_of_pages_has_every_page_in_the_order_of_the_navigation():
    """Readers of the repository's web view have docs/index.md in place of the navigation."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = [page for page in re.findall(r"\]\(([\w/]+\.md)\)", text) if page != "index.md"]
    papers = [page for page in navigation() if page.startswith("benchmarks/papers/")]  # whose index lists the others
    assert sorted(listed) == sorted(set(navigation()) & {site_path(file) for file in DOCS} - {*papers[1:], "index.md"})
    places = [navigation().index(page) for page in listed if page.startswith(("getting_started/", "tutorials/"))]
    assert places == sorted(places)


def test_the_reference_of_the_command_is_current():
    assert PAGE.read_text(encoding="utf-8") == command_line_page(), "run python -m docs.site.command_line"


def test_the_api_has_every_public_name_once_with_a_docstring():
    places = [f"{topic.package}.{name}" for topic in TOPICS for name in public_names(topic)]
    assert len(places) == len(set(places))
    missing = []
    for name, value in vars(bn).items():
        if isinstance(value, type) or callable(value):
            if (
                name.startswith("_")
                or name in ("TYPE_CHECKING",)
                or getattr(value, "__module__", "").startswith("typing")
            ):
                continue
            if not any(name in public_names(topic) for topic in TOPICS):
                missing.append(name)
    assert not missing
    for topic in TOPICS:
        module = importlib.import_module(topic.package)
        assert all(hasattr(module, name) and first_sentence(topic, name) for name in public_names(topic)), topic.title


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.stem)
def test_the_page_and_the_notebook_of_a_tutorial_are_its_program(program):
    text = program.read_text(encoding="utf-8")
    parts = [cell.source if cell.is_text else f"```python\n{cell.source}\n```" for cell in cells(text)]
    page = program.with_suffix(".md").read_text(encoding="utf-8")
    rest = page
    for part in parts:
        before, cell, rest = rest.partition(part)
        assert cell, f"run python -m docs.site.tutorials {program.stem}: the page lacks {part[:80]!r}"
        assert re.fullmatch(r"\s*(```\n.*?\n```)?\s*(!\[[^\]]+\]\(\w+\.png\)\s*)*", before, flags=re.DOTALL), before
    written = json.loads(notebook(text))
    assert ["".join(cell["source"]) for cell in written["cells"]] == [cell.source for cell in cells(text)]
    pictures = {path.name for path in FOLDER.glob(f"{program.stem}_*.png")}
    assert pictures == set(re.findall(rf"\(({program.stem}_\d+\.png)\)", page))


def test_cells_run_in_order_and_leave_text_and_pictures(tmp_path):
    program = tmp_path / "small.py"
    program.write_text(
        '"""Not shown."""\n# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nnumber = 6\n\n# %%\nprint(7 * number)\n\n'
        '# %%\nfrom matplotlib import pyplot\n\npyplot.figure(label="a picture")\n',
        encoding="utf-8",
    )
    assert [cell.source for cell in cells(program.read_text())[:2]] == ["# Title\n\nText.", "number = 6"]
    assert run_cells(program, tmp_path) == ["", "", "```\n42\n```\n", "\n![a picture](small_3.png)\n"]
    assert (tmp_path / "small_3.png").stat().st_size > 100


def test_links_lead_to_the_same_file_in_the_site():
    linked = []
    text = (
        "[a](../CONTRIBUTING.md#setup) ![b](shift.png) [![c](demo.png)](getting_started/live_page.md) [d](../results)\n"
        "[e](../examples/your_network.py) [f](https://example.org/x.md) [g](#here)\n"
        "```\n[h](../README.md)\n```\n[i](../README.md)"
    )
    assert rewrite_links(text, "docs/index.md", "how_to/page.md", linked.append) == (
        "[a](../project/contributing.md#setup) ![b](../shift.png) "
        "[![c](../demo.png)](../getting_started/live_page.md) d\n"
        "[e](../files/examples/your_network.py) [f](https://example.org/x.md) [g](#here)\n"
        "```\n[h](../README.md)\n```\n[i](../index.md)"
    )
    assert "examples/your_network.py" in linked


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ('<script src="https://example.org/x.js"></script>', True),
        ("<img alt='' src=//example.org/x.png>", True),
        ('<link rel="stylesheet" href="https://example.org/x.css">', True),
        ("body { background: url(https://example.org/x.png) }", True),
        ('<iframe class="a" src="http://example.org/">', True),
        ('<a href="https://example.org/">a link</a>', False),
        ('<link rel="canonical" href="https://example.org/">', False),
        ('<script src="x.js"></script><img src="a/b.png">', False),
        ("body { background: url(data:image/png;base64,AA==) }", False),
    ],
)
def test_pages_that_load_something_from_another_place_are_found(text, loads):
    assert bool(external_loads(text)) == loads


def test_dead_links_of_built_pages_are_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="a/page.html#here">x</a><img src="no.png"><a href="https://example.org/">'
    )
    (tmp_path / "a" / "page.html").write_text('<h1 id="here"></h1><a href="../index.html#none">y</a><a href="#here">')
    assert list(dead_links(tmp_path)) == [
        "a/page.html: ../index.html#none: no such heading",
        "index.html: no.png: no such file",
    ]
