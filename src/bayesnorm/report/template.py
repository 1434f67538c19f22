"""Fill in the templates of this folder. The pages load nothing from the network or from other files."""

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
        template: File name of the template.
        script: File name of its script; "" for none.
        photos: Whether the page contains images as data.
        **context: All other values that it uses, by name.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("HTML reports need jinja2. Install it with: pip install jinja2") from error
    environment = Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {each.__name__: each for each in (number, percent, count, duration, unbroken)}
    code = _text(script) if script else ""
    # The browser may run only this script, and no script from a cell of the table.
    script_hash = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = environment.get_template(template)
    return page.render(css=_css(), script=code, script_hash=script_hash, photos=photos, **context)


def _css() -> str:
    """Return the style sheet with the colours of the pictures in both themes."""
    css = _text("page.css")
    for theme in ("light", "dark"):
        css = css.replace(f"/* {theme} pictures */", colour_variables(theme))
    return css


def _text(name: str) -> str:
    """Read a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
