"""Files and web pages: SVG text that several of fit into one page."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from bayesnorm.errors import BayesNormError

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import RetentionPlot, UncertaintyErrorPlot, figure_svg, save_figure, theme
from experiments.plots import draw_grid

rng = np.random.default_rng(0)
STD = rng.uniform(0.5, 2.0, 50)
FIRST = UncertaintyErrorPlot.from_arrays(STD * rng.standard_normal(50), STD, 1.1, title="Uncertainty & errors <first>")
SECOND = RetentionPlot.from_arrays([0.1, 0.2, 0.3], [0.5, 0.2, 0.9])


@pytest.fixture(scope="module")
def first():
    return figure_svg(FIRST.draw())


def ids(svg):
    return re.findall(r'\bid="([^"]+)"', svg)


def references(svg):
    return re.findall(r'(?:href="#|url\(#)([\w.-]+)', svg)


def test_svg_is_one_element_for_a_page(first):
    svg = first
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == FIRST.title
    for absent in ("<?xml", "DOCTYPE", "metadata", "matplotlib", "Matplotlib", "<style", "DejaVu", "xlink"):
        assert absent not in svg
    assert "system-ui" in root.attrib["style"]
    assert "font-family" not in svg.replace(root.attrib["style"].replace('"', "&quot;"), "")
    assert not re.search(r'\b[dxy]="[^"]*\.\d{3}', svg)  # coordinates are short
    assert figure_svg(FIRST.draw()) == svg
    texts = [element.text for element in root.iter() if element.text]
    assert FIRST.title in texts
    assert FIRST.summary in texts
    assert "running mean" in texts


def test_ids_are_referred_to_and_unique_in_a_page(first):
    svgs = [first, figure_svg(SECOND.draw()), figure_svg(SECOND.draw(), prefix="again")]
    with theme("dark"):
        svgs.insert(0, figure_svg(SECOND.draw()))
    for svg in svgs:
        assert ids(svg)
        assert {*ids(svg)} == {*references(svg)}
    page = [name for svg in svgs for name in ids(svg)]
    assert len(page) == len({*page})
    assert all(name.startswith("again-") for name in ids(svgs[-1]))


def test_a_transparent_picture_has_no_background():
    def backgrounds(svg):
        return re.findall(r'style="fill: (#\w+)"', svg)

    with theme("light"):
        assert "#ffffff" in backgrounds(figure_svg(SECOND.draw()))
    with theme("light", transparent=True):
        assert "#ffffff" not in backgrounds(figure_svg(SECOND.draw()))


def test_figures_and_axes_are_saved_whole(tmp_path):
    path = tmp_path / "plot.png"
    for picture, place in ((SECOND.draw(), path), (draw_grid([SECOND]), str(path))):
        save_figure(picture, place, dpi=20)
        assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["plot.png"]


def test_bad_arguments(tmp_path):
    with pytest.raises(BayesNormError, match=r"picture must be .* got a str"):
        save_figure("plot", tmp_path / "plot.png")
    with pytest.raises(BayesNormError, match=r"prefix must be .* got '1 2'"):
        figure_svg(SECOND.draw(), prefix="1 2")
