"""`bayesnorm demo`: open the live page, or write it to a file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ..writing import write_bytes
from .options import Force, option
from .output_files import require_free
from .printing import note


def demo(
    out: Annotated[Path | None, option("FILE", "Write the page to this file.", "the page inside the package")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    force: Force = False,
) -> None:
    """Open a page on which a network trains in your browser and shows how sure it is.

    The page is one HTML file. It needs no server and loads nothing.

    \b
    Examples:
      bayesnorm demo
      bayesnorm demo --out demo.html --no-browser
    """
    from ..demo import PAGE

    path = PAGE
    if out is not None:
        require_free(out, force)
        write_bytes(out, PAGE.read_bytes(), "--out")
        path = out.resolve()
        note(f"Wrote {out}.")
    if browser and webbrowser.open(path.as_uri()):
        note(f"Opened {path} in a browser.")
    elif browser or out is None:
        note(f"Open {path} in a browser.")
