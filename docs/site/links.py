"""Links of a page: where they lead in the repository, and where the same file is in the site.

Pages link to files by relative paths, so that they also work in the web view of the repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]

# Pages that lie outside docs/ in the repository.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
# Files that a page may link to are copied to this folder of the site.
FILES = "files"

LINK = re.compile(r"(?P<text>!?\[[^\]\n]*(?:\]\([^)\s]+\))?[^\]\n]*\])\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)

HTML_LINK = re.compile(r"""<(?:a|img|iframe|script|link)\b[^>]*?\b(?:href|src)=["']?([^"'\s>]+)""")
ANCHOR = re.compile(r"""\b(?:id|name)=["']?([^"'\s>]+)""")


def site_path(file: str) -> str:
    """Return where a file of the repository lies in the site; both paths are relative and use slashes."""
    if file in OUTSIDE:
        return OUTSIDE[file]
    return file.removeprefix("docs/") if file.startswith("docs/") else f"{FILES}/{file}"


def rewrite_links(text: str, source: str, page: str, linked: Callable[[str], None] = lambda file: None) -> str:
    """Return the text of `source`, a file of the repository, with links that work from `page` of the site.

    `linked` is called with every file of the repository that a link leads to. Links to folders become text.
    """

    def rewrite(match: re.Match[str]) -> str:
        words = LINK.sub(rewrite, match["text"])
        path, _, anchor = match["target"].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return f"{words}({match['target']})"
        file = os.path.normpath(os.path.join(os.path.dirname(source), path)).replace(os.sep, "/")
        if (ROOT / file).is_dir():
            return words[1:-1]
        linked(file)
        target = os.path.relpath(site_path(file), os.path.dirname(page) or ".").replace(os.sep, "/")
        return f"{words}({target}{'#' if anchor else ''}{anchor})"

    pieces, last = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(rewrite, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*pieces, LINK.sub(rewrite, text[last:])])


def dead_links(site: Path) -> Iterator[str]:
    """Yield links of built pages to files or headings that the site does not have."""
    site = site.resolve()
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]  # which only a server shows
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    names = {path: {unquote(name) for name in ANCHOR.findall(text)} for path, text in texts.items()}
    for path, text in texts.items():
        for target in sorted(set(HTML_LINK.findall(text))):
            if re.match(r"[a-z]+:|//", target):
                continue
            file, _, anchor = unquote(target).partition("#")
            place = (path.parent / file).resolve() if file else path
            place = place / "index.html" if place.is_dir() else place
            if not place.exists():
                yield f"{path.relative_to(site)}: {target}: no such file"
            elif anchor and anchor not in names.get(place, {anchor}):
                yield f"{path.relative_to(site)}: {target}: no such heading"
