"""Templates that lie beside this file, filled in: pages that need nothing else, neither a network nor another file."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from ..errors import MissingExtraError
from .themed_svg import colour_variables
from .words import count, duration, number, percent, unbroken


def rendered(template: str, *, script: str = "", photos: bool = False, **context: Any) -> str:
    """Return a template as HTML, with the style sheet of all pages.

    Args:
        template: Name of its file.
        script: Name of the file of its script; "" for none.
        photos: Whether it holds pictures as data.
        **context: All else that it uses, by name.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("reports need jinja2: pip install jinja2.") from error
    environment = Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {each.__name__: each for each in (number, percent, count, duration, unbroken)}
    code = _text(script) if script else ""
    # Only this script may run: whatever a cell of the table may hold, the browser refuses it.
    script_hash = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = environment.get_template(template)
    return page.render(css=_css(), script=code, script_hash=script_hash, photos=photos, **context)


def _css() -> str:
    """Return the style sheet with the pictures' colours of both themes."""
    css = _text("page.css")
    for theme in ("light", "dark"):
        css = css.replace(f"/* {theme} pictures */", colour_variables(theme))
    return css


def _text(name: str) -> str:
    """Read a file that lies beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
