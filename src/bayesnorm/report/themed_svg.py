"""Pictures for light and dark pages: they are drawn once, and the style sheet sets their colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from ..plots import figure_svg, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")


def themed_svg(draw: Callable[[], Axes], label: str, prefix: str) -> str:
    """Return the picture as an `<svg>` element whose colours are CSS variables, which `colour_variables` sets.

    Args:
        draw: Function that draws the picture in the current theme.
        label: Description of the picture for screen readers.
        prefix: Text at the start of its ids.
    """
    with style.theme("light", transparent=True):
        text = figure_svg(draw(), prefix=prefix)
    known = _light_to_dark()
    text = COLOUR.sub(lambda found: _variable(found[0], known), text)
    return re.sub(r'aria-label="[^"]*"', lambda _: f"aria-label={quoteattr(label)}", text, count=1)


def colour_variables(theme: str) -> str:
    """Return CSS declarations of the variables for "light" or "dark"."""
    pairs = _light_to_dark().items()
    return "".join(f"--{light[1:]}:{light if theme == 'light' else dark};" for light, dark in pairs)


def _variable(colour: str, known: dict[str, str]) -> str:
    return f"var(--{colour[1:].lower()})" if colour.lower() in known else colour


def _light_to_dark() -> dict[str, str]:
    light, dark = style.THEMES["light"], style.THEMES["dark"]
    names = ("ink", "faint", "grid", "dots", "model", "backdrop", "rival", "paper")
    pairs = [(getattr(light, name), getattr(dark, name)) for name in names]
    pairs += list(zip(light.series, dark.series, strict=True))
    return {one.lower(): other.lower() for one, other in reversed(pairs)}
