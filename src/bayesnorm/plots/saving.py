"""Write figures as PNG files, or return them as SVG for web pages."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ..errors import BayesNormError
from ..writing import write_bytes
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
# Numbers with more than two decimals; a hundredth of a point is precise enough.
LONG = re.compile(r"-?\d+\.\d{3,}")
REFERENCE = re.compile(r"#([\w.-]+)")


def save_figure(picture: Axes | Figure, path: Path | str, dpi: int = 150) -> None:
    """Write a figure, or the figure of axes, as a PNG file; the file is written completely or not at all."""
    buffer = io.BytesIO()
    _figure(picture).savefig(buffer, format="png", dpi=dpi)
    write_bytes(Path(path), buffer.getvalue())


def figure_svg(picture: Axes | Figure, *, prefix: str | None = None) -> str:
    """Return a figure as an `<svg>` element for a web page.

    The same figure always gives the same text, without header, date or creator. Text stays text, in the font of the
    page. The element does not affect the rest of the page.

    Args:
        picture: A figure, or axes of a figure.
        prefix: Prefix of the element's ids. [default: a digest of the figure, so that different figures never share
            an id] Pass one if the same figure appears twice in a page.
    """
    if prefix is not None and not re.fullmatch(r"[A-Za-z][\w-]*", prefix):
        raise BayesNormError(f"prefix must be a letter followed by letters, digits, - or _, got {prefix!r}.")
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
    unique = prefix or "bn" + hashlib.sha256(text.encode()).hexdigest()[:10]
    return text.replace(PLACEHOLDER, unique)


# A placeholder for the prefix until the digest of the text is known.
PLACEHOLDER = "bayesnorm-id"


def _figure(picture: Axes | Figure) -> Figure:
    """Return the figure that axes belong to, or the figure itself."""
    get_figure = getattr(picture, "get_figure", None)
    figure = get_figure(root=True) if get_figure else None
    if figure is None:
        raise BayesNormError(f"picture must be the result of a plot's draw(), got a {type(picture).__name__}.")
    result: Figure = figure
    return result


def _make_inline(root: ElementTree.Element, figure: Figure) -> None:
    """Set the attributes that a page needs, and remove the style sheet, which would apply to the whole page."""
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
            element.attrib[key] = LONG.sub(lambda match: f"{float(match[0]):.2f}", element.attrib[key])
        if element.tag in (f"{SVG}text", f"{SVG}tspan"):
            element.attrib["style"] = re.sub(r"font-family:[^;]*;?\s*", "", element.attrib.get("style", ""))


def _titles(figure: Figure) -> list[str]:
    """Return the titles of the figure and of its axes."""
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
    return [title.replace("\n", " ") for title in titles if title]


def _number_ids(root: ElementTree.Element) -> None:
    """Remove ids that are not referenced, and number the others in order of appearance."""
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
                element.attrib[key] = REFERENCE.sub(lambda match: "#" + names.get(match[1], match[1]), value)
