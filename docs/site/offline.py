"""Check that the built site loads nothing from another place, in its files and in a real browser."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

# What makes a browser load something by itself. Links that a reader clicks are no requests.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data|srcset)\s*=\s*["']?\s*(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|alternate|prev|next)\b)[^>]*?href\s*=\s*["']?\s*(?:https?:)?//[^"'\s>]+"""
    r"""|url\(\s*["']?\s*(?:https?:)?//[^)"']+|@import\s+["'](?:https?:)?//[^"']+""",
    re.IGNORECASE,
)


def external_loads(text: str) -> list[str]:
    """Return the parts of a page or style sheet that load something from another place."""
    return [match[0] for match in LOADED.finditer(text)]


def check_built_pages(site: Path) -> int:
    """Raise if a page or style sheet of the site loads something from another place; return the number of files."""
    files = [path for path in sorted(site.rglob("*")) if path.suffix in (".html", ".css", ".svg")]
    problems = {
        str(path.relative_to(site)): loads for path in files if (loads := external_loads(path.read_text("utf-8")))
    }
    if problems:
        raise SystemExit(f"These pages load something from another place: {problems}")
    return len(files)


def problems_in_browser(site: Path, pages: list[Path]) -> Iterator[str]:
    """Open pages in Chromium, and yield requests that leave the site, errors of the console, and a search in vain."""
    from playwright.sync_api import TimeoutError, sync_playwright

    with sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = browser.new_page()
        problems: list[str] = []
        inside = (f"{site.resolve().as_uri()}/", "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(inside) else problems.append(f"asks for {r.url}"))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        for path in pages:
            page.goto(path.resolve().as_uri())
            page.wait_for_timeout(100)
            yield from (f"{path.relative_to(site)} {problem}" for problem in problems)
            problems.clear()
        page.goto((site / "index.html").resolve().as_uri())
        page.keyboard.press("/")
        page.keyboard.type("effective batch size", delay=20)
        try:
            page.get_by_text(re.compile(r"^\d+ results$")).wait_for(timeout=20_000)
        except TimeoutError as error:
            yield f"The search finds nothing: {error}"
        browser.close()


def check_in_browser(site: Path) -> str:
    """Raise if the site does not work in Chromium without a network; return a sentence about what was done."""
    if shutil.which("chromium") is None:
        return "Chromium is not installed, so the pages were not opened in a browser (make browser installs it)."
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]  # which only a server shows
    if problems := list(problems_in_browser(site, pages)):
        raise SystemExit("\n".join(problems))
    return f"Chromium opened {len(pages)} pages; none asked for anything outside of the site, and the search works."
