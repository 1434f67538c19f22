"""Pictures as files and as text for web pages."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ..errors import BayesNormError
from ..files import write_bytes
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
# Numbers with more digits than a hundredth of a point, which nobody sees.
LONG = re.compile(r"-?\d+\.\d{3,}")
REFERENCE = re.compile(r"#([\w.-]+)")


def save_figure(picture: Axes | Figure, path: Path | str, dpi: int = 150) -> None:
    """Write the picture that axes belong to, or a figure, as PNG: whole or not at all."""
    buffer = io.BytesIO()
    _figure(picture).savefig(buffer, format="png", dpi=dpi)
    write_bytes(Path(path), buffer.getvalue())


def figure_svg(picture: Axes | Figure, *, prefix: str | None = None) -> str:
    """Return the picture as an `<svg>` element to put into a web page.

    The same picture always gives the same text: no header, date or maker. Words stay words, in the reader's own font;
    nothing in it changes the page around it.

    Args:
        picture: Axes, whose whole figure is meant, or a figure.
        prefix: Text that its ids begin with; None takes a digest of the picture, so that different pictures never share
            an id. Give one where the same picture comes twice in a page.
    """
    if prefix is not None and not re.fullmatch(r"[A-Za-z][\w-]*", prefix):
        raise BayesNormError(f"prefix must be a letter, then letters, digits and -, got {prefix!r}.")
    figure = _figure(picture)
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    buffer = io.StringIO()
    with style.matplotlib().rc_context({"svg.fonttype": "none", "svg.hashsalt": "bayesnorm"}):
        figure.savefig(buffer, format="svg", metadata=nothing)
    root = ElementTree.fromstring(buffer.getvalue())
    _make_inline(root, figure)
    _number_ids(root)
    ElementTree.register_namespace("", SVG.strip("{}"))
    text = ElementTree.tostring(root, encoding="unicode")
    own = prefix or "bn" + hashlib.sha256(text.encode()).hexdigest()[:10]
    return text.replace(PLACEHOLDER, own)


# Stands for the prefix until the text, and so its digest, is known.
PLACEHOLDER = "bayesnorm-id"


def _figure(picture: Axes | Figure) -> Figure:
    """Return the figure that axes belong to, or the figure itself."""
    get_figure = getattr(picture, "get_figure", None)
    figure = get_figure(root=True) if get_figure else None
    if figure is None:
        raise BayesNormError(f"picture must be what a plot's draw() returns, got a {type(picture).__name__}.")
    found: Figure = figure
    return found


def _make_inline(root: ElementTree.Element, figure: Figure) -> None:
    """Give the root what a page needs, and remove the style sheet, which would apply to the whole page."""
    for parent in root.iter():
        for child in [child for child in parent if child.find(f"{SVG}style") is not None]:
            parent.remove(child)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib.pop("version", None)
    root.attrib |= {
        "width": width,
        "height": height,
        "role": "img",
        "aria-label": ". ".join(_titles(figure)) or "plot",
        "style": f"max-width:100%;height:auto;font-family:{FONTS};stroke-linejoin:round;stroke-linecap:butt",
    }
    for element in root.iter():
        if XLINK + "href" in element.attrib:
            element.attrib["href"] = element.attrib.pop(XLINK + "href")
        for key in {"d", "x", "y"} & element.attrib.keys():
            element.attrib[key] = LONG.sub(lambda found: f"{float(found[0]):.2f}", element.attrib[key])
        if element.tag in (f"{SVG}text", f"{SVG}tspan"):
            element.attrib["style"] = re.sub(r"font-family:[^;]*;?\s*", "", element.attrib.get("style", ""))


def _titles(figure: Figure) -> list[str]:
    """Return the titles of the figure and of its axes."""
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
    return [title.replace("\n", " ") for title in titles if title]


def _number_ids(root: ElementTree.Element) -> None:
    """Keep only the ids that are referred to, numbered in the order in which they appear."""
    used = {
        name
        for element in root.iter()
        for key, value in element.attrib.items()
        if key == "href" or "url(#" in value
        for name in REFERENCE.findall(value)
    }
    names: dict[str, str] = {}
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used and name is not None:
            element.attrib["id"] = names[name] = f"{PLACEHOLDER}-{len(names)}"
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "href" or "url(#" in value:
                element.attrib[key] = REFERENCE.sub(lambda found: "#" + names.get(found[1], found[1]), value)
