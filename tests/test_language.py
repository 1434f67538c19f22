"""The text that users meet is plain English: no private words, no bare decimals, no endless sentences, no dead links.

`python tests/test_language.py FILE_OR_FOLDER ...` lists what it finds. To forbid a word, add a line to `FORBIDDEN`.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What must not be written, and what to write instead.
FORBIDDEN = {
    r"\bdoubt": "uncertainty: epistemic, aleatoric or total; entropy; mutual information",
    r"\bworlds?\b": "training distribution, or distribution shift",
    r"\bwould work": "say what the value must be, or what to do",
    r"\b(is|are|was|were|be|been) (told|said)\b": "name the actor: `fit` prints, the error names",
    r"\banew\b": "again",
    r"(?<![\w.)\]/*`…-])\.\d+\b(?![%.\w]*[%/`])": "a number has a leading zero",
    r"\b(rooms?|houses?|doors?) (that|of the (code|package)|knows?)\b": "package, module",
    r"(\d|\b(many|all|more|few|fewer|these|those|number of|of its)) draws\b": "samples",
    r"\bdraws? about\b": "samples around",
    r"\b(teach|teaches|taught|teaching)\b": "distil, fine-tune, train",
    r"\blistens?\b": "uses, depends on",
    r"\bdeterministic passes\b": "times one forward pass; milliseconds first",
    r"\b(minutes|hours|seconds) of a (core|GPU|CPU)\b": "GPU-minutes, CPU-hours",
    r"\bby (its|their) own rows\b": "by cross-validation, or by held-out rows",
    r"\bin terms of what\b": "say which quantity",
    r"\bone's own\b": "your own, or a copy",
    r"\bthe face of\b": "the interface of",
    r"\bbought\b": "say what it costs",
    r"\bdearly\b": "say how much",
    r"\brows? (want|wants|ask|asks)\b": "say which number is best for the rows",
    r"\bnetworks? (miss|misses|believes?)\b": "say what changes in the output",
    r"\bwith all of (its|their) bits\b": "at full precision",
    r"\bin words\b, that": "that is",
    r"\bbeyond chance\b": "statistically significant",
    r"\bOf (images|classes|several|fewer|rows) ": "subject, verb, object",
    r"\bpip install '?\"?bayesnorm": "the package is not on PyPI yet: install it from a checkout",
}
PATTERNS = {re.compile(pattern): advice for pattern, advice in FORBIDDEN.items()}

# A page defines a symbol where it first uses it, or before.
SYMBOLS = {r"M'": r"effective batch size", r"\bT\b(?= =)": r"samples", r"\bPLL\b": r"log[- ]likelihood"}

MOST_WORDS = 40

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = sorted(
    path
    for folder in ("src", "experiments", "benchmarks", "examples", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".html", ".js")
)


def prose(markdown: str) -> str:
    """Return a page with its code blocks, inline code, link targets and comments blanked out, line by line."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    for pattern in (r"^```.*?^```", r"<!--.*?-->", r"`[^`\n]+`", r"(?<=\])\([^)\n]*\)", r"https?://\S+"):
        markdown = re.sub(pattern, blank, markdown, flags=re.DOTALL | re.MULTILINE)
    return markdown


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and texts of a page, or of a program's strings and comments."""
    content = path.read_text()
    if path.suffix == ".md":
        yield 1, prose(content)
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
                yield token.start[0], token.string
    else:
        yield 1, re.sub(r"<(style|svg).*?</\1>|\{[{%].*?[%}]\}", "", content, flags=re.DOTALL)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and sentences of a page's paragraphs and list items, without its tables and headings."""
    for block in re.finditer(r"(?:^(?!\s*$|\s*[|#>]).+\n?)+", text, flags=re.MULTILINE):
        for item in re.split(r"^\s*(?:[-*]|\d+\.) ", block[0], flags=re.MULTILINE):
            for sentence in re.split(r"(?<=[.!?:])\**\s", item):
                yield text.count("\n", 0, block.start()) + 1, sentence


def findings(path: Path) -> Iterator[str]:
    """Yield what a file says that it should not, with places."""
    name = path.relative_to(ROOT)
    for first, text in texts(path):
        for pattern, advice in PATTERNS.items():
            for match in pattern.finditer(text):
                line = first + text.count("\n", 0, match.start())
                yield f"{name}:{line}: {match[0]!r}: {advice}"
    if path.suffix == ".md":
        page = prose(path.read_text())
        for line, sentence in sentences(page):
            if len(words := re.findall(r"[A-Za-z][\w'’-]*", sentence)) > MOST_WORDS:
                yield f"{name}:{line}: a sentence of {len(words)} words: {' '.join(words[:8])} ..."
        for symbol, definition in SYMBOLS.items():
            use = re.search(symbol, page)
            defined = re.search(definition, page, flags=re.IGNORECASE)
            if use and (not defined or defined.start() > use.end() + 60):
                yield f"{name}:{page.count(chr(10), 0, use.start()) + 1}: {use[0]} is used before it is defined"


def dead_links(path: Path) -> Iterator[str]:
    """Yield relative links of a page whose file or heading does not exist."""
    content = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"", content):
        link = next(filter(None, target))
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        page = (path.parent / file) if file else path
        if not page.exists():
            yield f"{path.relative_to(ROOT)}: {link}: no such file"
        elif anchor and anchor not in anchors(page):
            yield f"{path.relative_to(ROOT)}: {link}: no such heading"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages():
    for page in PAGES:
        assert not [*findings(page), *dead_links(page)]


def test_strings_and_comments():
    for folder in sorted({path.parent for path in CODE}):
        assert not [finding for path in CODE if path.parent == folder for finding in findings(path)]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("Its doubt is large.", "uncertainty"),
        ("An error of .97 %.", "leading zero"),
        ("It takes M' = 4.", "before it is defined"),
        (" ".join(["word"] * 41) + ".", "a sentence of 41 words"),
        ("See [this](nowhere.md).", "no such file"),
        ("The effective batch size M' is 0.5, as `.5` in code, and files end in .csv.", None),
    ],
)
def test_the_check_itself(text, finding, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    results = [*findings(page), *dead_links(page)]
    assert (len(results) == 1 and finding in results[0]) if finding else not results


if __name__ == "__main__":
    chosen = [Path(argument).resolve() for argument in sys.argv[1:]]
    for file in [*PAGES, *CODE]:
        if not chosen or any(file.is_relative_to(place) for place in chosen):
            print(*findings(file), *(dead_links(file) if file.suffix == ".md" else ()), sep="\n", end="\n")
