"""Build the documentation site in out/site: `make docs`.

1. Copy docs/ to out/site_pages, with links that work in the site, and run the tutorials.
2. Add what is not a file of docs/: the API, CONTRIBUTING, the changelog, the live page, files that pages link to.
3. Build it with Zensical. Warnings are errors.
4. Check all links, and that no page loads anything from another place.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .links import OUTSIDE, ROOT, dead_links, rewrite_links, site_path
from .offline import check_built_pages, check_in_browser
from .python_api import api_pages
from .tutorials import notebook, programs, write_tutorial

PAGES = ROOT / "out" / "site_pages"
SITE = ROOT / "out" / "site"
DEMO = ROOT / "src" / "bayesnorm" / "demo" / "demo.html"
LIVE_PAGE = "getting_started/live_page.md"

# The picture of the live page becomes the live page.
FRAME = """<iframe class="live-page" src="demo.html" title="The live page of bayesnorm" loading="lazy"></iframe>

[Open the live page in its own window](demo.html)
"""
# What Zensical loads from another place for pages that are opened as files.
REMOTE_SCRIPT = re.compile(r'<script src="https://unpkg.com/iframe-worker/shim"[^>]*></script>')
OWN_SCRIPT = Path(__file__).parent / "workers_of_files.js"

NOTEBOOK = """
---

*This page was made by [{name}]({name}). [Download it as a notebook]({stem}.ipynb).*
"""


def readme_for_home() -> str:
    """Return the README without its sections for those who have the repository before them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^## Start on a fresh machine\n.*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^\[Documentation\]\(docs/index.md\) · ", "", text, flags=re.MULTILINE)


def copy_pages() -> None:
    """Copy docs/ and the pages outside of it, and rewrite their links."""
    linked: set[str] = set()
    shutil.rmtree(PAGES, ignore_errors=True)
    ignored = shutil.ignore_patterns("site", "__pycache__", "spreadsheet_walk.py")
    shutil.copytree(ROOT / "docs", PAGES, ignore=ignored)
    sources = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    for source in [*sources, *OUTSIDE]:
        if source == "docs/index.md":  # the README is the home page, and the navigation lists all pages
            continue
        text = readme_for_home() if source == "README.md" else (ROOT / source).read_text(encoding="utf-8")
        page = site_path(source)
        (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / page).write_text(rewrite_links(text, source, page, linked.add), encoding="utf-8")
    for file in sorted(linked):
        if not file.endswith(".md") and not file.startswith("docs/"):
            (PAGES / site_path(file)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, PAGES / site_path(file))


def embed_live_page() -> None:
    """Put the live page in place of its picture."""
    shutil.copyfile(DEMO, (PAGES / LIVE_PAGE).parent / "demo.html")
    text, count = re.subn(
        r"^!\[.*\]\(../demo.png\)$", FRAME, (PAGES / LIVE_PAGE).read_text("utf-8"), flags=re.MULTILINE
    )
    if count != 1:
        raise SystemExit(f"docs/{LIVE_PAGE} must show demo.png exactly once.")
    (PAGES / LIVE_PAGE).write_text(text, encoding="utf-8")


def run_zensical() -> None:
    """Build the site from the gathered pages. Whatever is printed besides progress is an error."""
    shutil.rmtree(SITE, ignore_errors=True)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    usual = re.compile(r"Build started|No issues found|Build finished in .*|")
    problems = [line for line in done.stdout.splitlines() if not usual.fullmatch(line.strip())]
    if done.returncode or problems:
        raise SystemExit("\n".join(["zensical build has problems:", *problems]))


def replace_remote_script() -> None:
    """Let every page load our own script instead of one from another place."""
    shutil.copyfile(OWN_SCRIPT, SITE / OWN_SCRIPT.name)
    for path in SITE.rglob("*.html"):
        above = "../" * (len(path.relative_to(SITE).parts) - 1)
        script = f'<script src="{above}{OWN_SCRIPT.name}"></script>'
        path.write_text(REMOTE_SCRIPT.sub(script, path.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site in out/site.")
    parser.add_argument("--without-tutorials", action="store_true", help="Keep the committed output of the tutorials.")
    options = parser.parse_args(arguments)
    copy_pages()
    embed_live_page()
    for program in programs():
        ending = NOTEBOOK.format(name=program.name, stem=program.stem)
        (PAGES / "tutorials" / f"{program.stem}.ipynb").write_text(notebook(program.read_text("utf-8")), "utf-8")
        if options.without_tutorials:
            target = PAGES / "tutorials" / f"{program.stem}.md"
            target.write_text(target.read_text("utf-8") + ending, encoding="utf-8")
        else:
            seconds = write_tutorial(program, PAGES / "tutorials", ending)
            print(f"{program.name}: {seconds:.0f} s", flush=True)
    for name, text in api_pages().items():
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / name).write_text(text, encoding="utf-8")
    run_zensical()
    replace_remote_script()
    if problems := list(dead_links(SITE)):
        raise SystemExit("\n".join(problems))
    print(f"{check_built_pages(SITE)} files load nothing from another place.")
    print(check_in_browser(SITE))
    print(f"Open {SITE / 'index.html'}.")


if __name__ == "__main__":
    main()
