"""Themes: what is drawn inside takes their colours, and nothing outside does."""

import sys

import pytest

from bayesnorm.errors import BayesNormError, MissingExtraError

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
import matplotlib
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from bayesnorm.plots import RetentionPlot, style

CURVE = RetentionPlot.from_arrays([0.1, 0.2, 0.3], [0.5, 0.2, 0.9])


def luminance(colour):
    """Relative luminance of the web's contrast rules."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one, other):
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_default_is_light_and_a_theme_ends_with_its_block():
    before = dict(matplotlib.rcParams)
    assert style.current().name == "light"
    with style.theme("dark") as dark:
        assert style.current() is dark
        with style.theme("light"):
            assert style.current().name == "light"
        assert style.current().name == "dark"
    with pytest.raises(ZeroDivisionError), style.theme("dark"):
        _ = 1 / 0
    assert style.current().name == "light"
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["light", "dark"])
def test_colours_can_be_read_on_their_paper(name):
    theme = style.THEMES[name]
    assert contrast(theme.ink, theme.paper) > 12
    assert contrast(theme.faint, theme.paper) > 4.5, "the least for small text"
    for colour in (theme.model, theme.rival):
        assert contrast(colour, theme.paper) > 3, "the least for graphics"
    okabe_ito = {style.BLUE, style.ORANGE, style.GREEN, style.VERMILION, style.PURPLE, style.SKY, style.YELLOW}
    assert {theme.model, theme.rival, theme.backdrop, *theme.series} <= okabe_ito | {style.BLACK}
    assert len({theme.look(number) for number in range(6)}) == 6


@pytest.mark.parametrize("name", ["light", "dark"])
def test_a_plot_takes_the_theme_also_in_axes_made_outside(name):
    axes = Figure().add_subplot()
    with style.theme(name) as now:
        for ax in (CURVE.draw(), CURVE.draw(axes)):
            assert to_hex(ax.get_figure().get_facecolor()) == now.paper.lower()
            for words in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_legend().get_texts()):
                assert to_hex(words.get_color()) == now.ink.lower()
            assert to_hex(ax.get_xticklabels()[0].get_color()) == now.ink.lower()
            line = next(line for line in ax.get_lines() if line.get_label() == "dropped by uncertainty")
            assert to_hex(line.get_color()) == now.series[0].lower()


def test_words_that_callers_add_take_the_theme():
    with style.theme("dark") as now:
        figure = CURVE.draw().get_figure()
        assert figure.suptitle("added").get_color() == now.ink


def test_transparent_pictures_have_no_paper():
    with style.theme("dark", transparent=True):
        ax = CURVE.draw()
    assert ax.get_figure().get_facecolor() == (0, 0, 0, 0)
    assert ax.get_facecolor() == (0, 0, 0, 0)
    assert ax.get_legend().get_frame().get_alpha() == 0


def test_an_unknown_theme():
    with pytest.raises(BayesNormError, match=r"name must be 'light' or 'dark', got 'sepia'"), style.theme("sepia"):
        pass


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install matplotlib"):
        CURVE.draw()
    with pytest.raises(MissingExtraError), style.theme("dark"):
        pass
    assert style.current().name == "light"


def test_percent():
    for share, text in ((0.95, "95 %"), (0.075, "7.5 %"), (0.0, "0 %"), (0.29, "29 %"), (1.0, "100 %")):
        assert style.percent(share) == text


def test_units():
    assert style.with_unit("error", "MPa") == "error (MPa)"
    assert style.with_unit("error", None) == "error"


def test_axes_show_thousands_unless_somebody_says_otherwise():
    ax = style.axes(None)
    ax.plot([0, 50_000], [0, 1])
    style.percent_axis(ax.yaxis)
    style.axes(ax)
    ax.get_figure().canvas.draw()
    assert "20,000" in [label.get_text() for label in ax.get_xticklabels()]
    assert "100 %" in [label.get_text() for label in ax.get_yticklabels()]
