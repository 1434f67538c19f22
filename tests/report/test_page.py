"""The page as text: whole, safe, small, and the same every time."""

import base64
import dataclasses
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from bayesnorm.errors import BayesNormError, FileFormatError, InputError, MissingExtraError
from bayesnorm.report import Choice, Column, HeldOutRows, Table, render, write_report
from bayesnorm.report.uncertain_rows import MOST_ROWS, UncertainRows

from ..marks import takes_long
from ..plots.test_style import contrast

VOID = {"meta", "input", "br", "link", "img"}
MODELS = ("regression", "classification")
SECTIONS = dict.fromkeys(MODELS, ("verdict", "data", "predicts", "uncertainty", "more", "rows", "chosen", "limits"))
SECTIONS["drift"] = ("verdict", "columns", "network", "limits")


class Outline(HTMLParser):
    """Tags that were opened, their attributes, and whether all were closed in order."""

    def __init__(self):
        super().__init__()
        self.tags, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(page):
    result = Outline()
    result.feed(page)
    assert not result.open
    return result.tags


@pytest.fixture(params=SECTIONS)
def page(request, pages):
    return pages(request.param)


@pytest.fixture(params=MODELS)
def model_page(request, pages):
    return pages(request.param)


@pytest.mark.parametrize("kind", SECTIONS)
def test_it_is_well_formed_and_complete(pages, kind):
    tags = outline(pages(kind))
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    sections = [attributes for tag, attributes in tags if tag == "section"]
    assert tuple(section["id"] for section in sections) == SECTIONS[kind]
    assert all(section["aria-labelledby"] in ids for section in sections)
    links = [attributes["href"][1:] for tag, attributes in tags if tag == "a"]
    assert set(links) <= set(ids)
    assert [tag for tag, _ in tags].count("h1") == 1


def test_it_asks_for_nothing_from_elsewhere(page):
    tags = outline(page)
    assert not {tag for tag, _ in tags} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert re.findall(r"url\((?!#)", page) == []
    assert "@import" not in page


def test_users_texts_are_escaped(pages, model_page):
    assert [attributes for tag, attributes in outline(model_page) if tag == "script"] == [{}]
    assert "<script>" not in pages("drift")
    assert "&lt;script&gt;" in pages("drift")
    assert model_page.count("&lt;script&gt;") >= 5
    assert "<b>cow" not in model_page
    assert "price <i>" not in model_page


def test_the_browser_may_run_the_pages_own_script_alone(model_page):
    script = re.search(r"<script>(.*?)</script>", model_page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(attributes["content"] for _, attributes in outline(model_page) if "http-equiv" in attributes)
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_pictures_have_words_and_follow_the_theme(page):
    pictures = [attributes for tag, attributes in outline(page) if tag == "svg"]
    assert len(pictures) in (3, 4, 7)
    assert all(picture["role"] == "img" and len(picture["aria-label"]) > 40 for picture in pictures)
    drawn = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", drawn) == []
    used = set(re.findall(r"var\((--[0-9a-f]{6})\)", drawn))
    for theme in re.findall(r"color-scheme: dark\) \{\s*:root \{(.*?)\}", page, re.DOTALL):
        assert used <= set(re.findall(r"(--[0-9a-f]{6}):", theme))
    assert used


def test_the_same_report_gives_the_same_page(classification_report, pages):
    assert render(classification_report) == pages("classification")


def test_what_the_page_says_of_the_choice_and_the_data(pages):
    page = pages("regression")
    chosen = re.search(r'<tr class="chosen">.*?</tr>', page, re.DOTALL)[0]
    assert "0.2" in chosen
    assert "chosen" in chosen
    assert (
        "2 settings were compared by mean CRPS (lower is better) in cross-validation with 5 folds. This took 61 s."
        in page
    )
    assert "1,000" in page
    assert "700 training, 150 validation" in " ".join(page.split())
    assert "1 to 80, median 40" in page
    assert "may be off by about\n      5 percentage points" in page  # 1.96 sqrt(0.9 * 0.1 / 150) = 4.8 %


def test_scores_on_the_page_are_the_tests(regression_report, pages):
    model = regression_report.test.scores()["model"]
    rows = dict(re.findall(r'<th scope="row">([^<]+)<span.*?<td class="n first">([^<]+)<', pages("regression")))
    assert float(rows["RMSE"]) == pytest.approx(model.rmse, rel=5e-3)
    assert float(rows["PLL"].replace("−", "-")) == pytest.approx(model.pll, rel=5e-3)
    assert float(rows["Uncertainty skill"].removesuffix(" %")) == pytest.approx(model.normalised_crps, abs=0.05)
    assert rows["90 % coverage"] == f"{100 * model.coverage:.1f} %"


def test_the_most_uncertain_rows_come_first(regression_report):
    table = UncertainRows.from_report(regression_report)
    test = regression_report.test
    order = np.argsort(-test.std, kind="stable")
    numbers = [row[0].text for row in table.rows]
    assert numbers == [str(3 * place + 1) for place in order]
    first = dict(zip(table.answers, table.rows[0], strict=False))
    assert first["Standard deviation (±)"].bar == 1.0
    assert float(first["True"].text.replace("−", "-")) == pytest.approx(test.y[order[0]], abs=0.01)
    assert first["In interval"].text == ("yes" if test.inside[order[0]] else "✗ no")
    assert [row[table.answers.index("Unusual")].text != "" for row in table.rows] == test.unusual[order].tolist()


def test_ids_can_be_told_apart(regression_report):
    values = [12345678.0, -1000000000274.0, 2019.0, 1e30, 12345678.5, "1,5", None]
    texts = ["12345678", "−1000000000274", "2019", "1e30", "12345678", "1,5", "–"]
    shown = [(values[at % 7], *row[1:]) for at, row in enumerate(regression_report.rows.values)]
    rows = dataclasses.replace(regression_report.rows, values=shown)
    table = UncertainRows.from_report(dataclasses.replace(regression_report, rows=rows))
    for row in table.rows:
        assert row[len(table.answers)].text == texts[(int(row[0].text) - 1) // 3 % 7]


def test_inputs_that_make_a_row_unlike_training_are_marked_and_no_others(regression_report):
    unusual = regression_report.test.unusual
    reasons = ["age above 80, the most in training; far from all training rows" if odd else "" for odd in unusual]
    rows = dataclasses.replace(regression_report.rows, reasons=reasons)
    table = UncertainRows.from_report(dataclasses.replace(regression_report, rows=rows))
    at, flag = len(table.answers), table.answers.index("Unusual")
    assert 0 < sum(row[at].note != "" for row in table.rows) < len(table.rows)
    for row in table.rows:
        age, size, town = row[at : at + 3]
        assert age.note == ("above 80, the most in training" if row[flag].text else "")
        assert (size.note, town.note) == ("", "")
    # Nothing is marked where nobody said why, though some ages are above all of training.
    assert not any(row[at].note for row in UncertainRows.from_report(regression_report).rows)


def test_strange_rows_are_shown_even_where_they_are_not_uncertain(make_report, make_regression):
    test = make_regression(rows=2000)
    least = np.argsort(test.std)[:40]
    unusual = np.zeros(2000, dtype=bool)
    unusual[least] = True
    table = UncertainRows.from_report(make_report(dataclasses.replace(test, unusual=unusual)))
    shown = {row[0].text for row in table.rows}
    assert len(table.rows) == MOST_ROWS
    assert {str(3 * place + 1) for place in least} <= shown
    assert table.also_unusual == 40
    most_uncertain = np.argsort(-test.std, kind="stable")[: MOST_ROWS - 40]
    assert {str(3 * place + 1) for place in most_uncertain} <= shown


@takes_long
def test_ten_thousand_rows_stay_a_small_file(make_report, make_regression):
    page = render(make_report(make_regression(rows=10_000)))
    assert len(page.encode()) < 1_000_000
    assert "of 10,000 held-out rows" in page


def test_a_wide_table_shows_fewer_columns_and_rows(undrawn, make_report, make_regression):
    names = tuple(f"column {number}" for number in range(500))
    test = make_regression(rows=400)
    columns = tuple(Column(name, "number", 0.0, 0.5, 1.0) for name in names)
    report = make_report(
        test,
        table=Table("wide.csv", 1000, 500, 100, columns, Column("y", "number")),
        rows=HeldOutRows(names, np.random.default_rng(0).random((400, 500)).tolist(), range(400)),
    )
    page = render(report)
    assert len(page.encode()) < 1_200_000  # without pictures
    assert "leaves out 440" in page
    assert "The table lists the first 200 of 500 columns." in page


def test_many_classes_become_a_list_of_the_worst_mistakes(undrawn, make_report, make_classification):
    classes = tuple(f"class {number}" for number in range(30))
    page = render(make_report(make_classification(rows=600, classes=classes)))
    assert "The most frequent mistakes" in page
    assert "by true class" not in page


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows(make_report, make_regression, make_classification, rows):
    for test in (make_regression(rows=rows), make_classification(rows=rows)):
        page = render(make_report(test))
        assert f"{rows:,} row" in page
        assert "nan" not in re.sub(r"<style>.*</script>", "", page.lower(), flags=re.DOTALL)


def test_what_is_not_known_is_left_out(undrawn, make_report, make_classification, make_regression):
    test = dataclasses.replace(make_regression(), unusual=None)
    choice = Choice((), 0, "", "lower", 0, 0.0)
    page = render(make_report(test, choice=choice, warnings=(), title="My <model>"))
    assert "there was nothing to choose." in page
    assert "Warnings" not in page
    assert "unusual compared" not in page
    assert "only unusual rows" not in page
    assert "<h1>My &lt;model&gt;</h1>" in page
    assert "is epistemic" not in render(
        make_report(dataclasses.replace(make_classification(), mutual_information=None))
    )


def test_colours_can_be_read(page):
    """Contrast of every text colour with every background that it stands on, by WCAG: at least 4.5."""
    css = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    roots = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(roots) == 3  # light, dark, print
    for root in roots:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", root))
        pairs = [(ink, back) for ink in ("text", "muted", "link") for back in ("page", "card", "stripe")]
        pairs += [("text", f"{level}-back") for level in ("good", "fair", "poor")]
        pairs += [(level, back) for level in ("good", "fair", "poor") for back in ("card", f"{level}-back", "on-mark")]
        for ink, back in pairs:
            assert contrast(colours[ink], colours[back]) >= 4.5, (ink, back)


def test_it_is_written_whole(undrawn, tmp_path, regression_report):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(regression_report, path)
    assert path.read_text(encoding="utf-8") == render(regression_report)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(FileFormatError, match="does not exist"):
        write_report(regression_report, tmp_path / "nowhere" / "report.html")


def test_parts_that_do_not_fit_together(make_report, make_regression, regression_report):
    with pytest.raises(InputError, match="one row per prediction, got 150 for 20"):
        dataclasses.replace(regression_report, test=make_regression(rows=20))
    rows = dataclasses.replace(regression_report.rows, names=("a", "b", "c"))
    with pytest.raises(InputError, match="rows must have the columns of the table"):
        dataclasses.replace(regression_report, rows=rows)
    with pytest.raises(InputError, match="numbers must have one entry per row, got 2 for 1"):
        HeldOutRows(("a",), [[1]], [1, 2])
    with pytest.raises(InputError, match="got a row of 2"):
        HeldOutRows(("a",), [[1, 2]], [1])
    with pytest.raises(BayesNormError, match="chosen must be a whole number from 0 to 1, got 9"):
        dataclasses.replace(regression_report.choice, chosen=9)
    with pytest.raises(BayesNormError, match=r"better must be .* got 'more'"):
        dataclasses.replace(regression_report.choice, better="more")
    with pytest.raises(BayesNormError, match=r"kind of the column .* got 'day'"):
        Column("day", "day")


def test_a_missing_template_engine_is_said_in_a_line(undrawn, monkeypatch, regression_report):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pip install jinja2"):
        render(regression_report)


@takes_long
def test_importing_the_room_needs_no_extra():
    code = "import sys; sys.modules |= dict.fromkeys(('jinja2', 'matplotlib')); import bayesnorm.report"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
