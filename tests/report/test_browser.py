"""The page in a real browser: Debian's chromium, without a network."""

import os
import re
import shutil

import pytest

KINDS = ("regression", "classification", "drift", "maps")
CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture(scope="module")
def files(tmp_path_factory, pages):
    folder = tmp_path_factory.mktemp("reports")
    for kind in KINDS:
        (folder / f"{kind}.html").write_text(pages(kind), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, files):
    """Opens a report and fails, at the end, for whatever the browser complained about or asked the network for."""
    complaints, contexts = [], []

    def opened(kind="regression", width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))

        def answer(route):
            if not route.request.url.startswith("file:"):
                complaints.append(route.request.url)
                route.abort()
            else:
                route.continue_()

        page.route("**/*", answer)
        page.goto((files / f"{kind}.html").as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def shown(page, column):
    """Texts of a column's visible cells."""
    return page.evaluate(
        """column => Array.from(document.querySelectorAll("#uncertain tbody tr"))
            .filter(row => row.checkVisibility()).map(row => row.cells[column - 1].innerText.trim())""",
        column,
    )


def numbers(texts):
    return [float(text.replace("−", "-").replace(",", "")) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_the_window(visit, kind):
    page = visit(kind)
    for width in (390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.evaluate(
            """width => Array.from(document.querySelectorAll("section, figure, svg, .card, .advice, .scroll"))
                .filter(element => element.getBoundingClientRect().right > width + 0.5).length""",
            width,
        )
        assert wide == 0


def test_hostile_names_stay_words_and_screen_readers_find_names_and_roles(visit):
    page = visit()
    assert page.evaluate("window.stolen") is None
    assert page.locator("#uncertain th", has_text="<script>").count() == 1
    assert "<script>" in page.title()
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("navigation", name="Sections").count() == 1
    assert page.get_by_role("img").count() == 7
    assert page.get_by_role("heading", level=1).count() == 1
    for section in ("What it was trained on", "The most uncertain rows", "What this page cannot show"):
        assert page.get_by_role("region", name=section).count() == 1
    assert page.get_by_role("columnheader", name="Predicted").count() == 1


def test_sorting_texts_and_missing_values(visit):
    page = visit()
    table = page.locator("#uncertain thead th")
    names = table.all_inner_texts()
    town = next(at for at, name in enumerate(names) if name.startswith("town"))
    table.nth(town).get_by_role("button").click()
    towns = [text.splitlines()[0] for text in shown(page, town + 1)]
    assert towns[0].startswith("<script>")
    assert towns[-1] == "Bonn"
    size = next(at for at, name in enumerate(names) if name.startswith("<script>"))
    for _ in range(2):
        table.nth(size).get_by_role("button").click()
        values = [text.splitlines()[0].removeprefix("▲").strip() for text in shown(page, size + 1)]
        numbers = [value for value in values if value != "–"]
        assert values == numbers + ["–"] * (len(values) - len(numbers))  # what is missing stays last, both ways
        assert len(numbers) < len(values)
    values = [float(re.match(r"−?[\d.]+", value)[0].replace("−", "-")) for value in numbers]
    assert values == sorted(values, reverse=True)


def test_sorting_and_searching_by_keyboard_alone(visit):
    page = visit()
    page.locator("#search").focus()
    page.keyboard.type("bonn")
    assert all(text.startswith("Bonn") for text in shown(page, page.locator("#uncertain thead th").count()))
    reached = False
    for _ in range(6):  # past the check box and the table's own region
        page.keyboard.press("Tab")
        reached = page.evaluate("document.activeElement.closest('#uncertain thead') !== null")
        if reached:
            break
    assert reached
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"
    values = numbers(shown(page, 1))
    assert values == sorted(values)
    page.keyboard.press("Space")
    assert numbers(shown(page, 1)) == sorted(values, reverse=True)
    assert page.locator('#uncertain [aria-sort="descending"]').count() == 1


def test_searching(visit):
    page = visit()
    everything = len(shown(page, 1))
    assert everything == 150
    page.get_by_label("Search").fill("aachen unusual")
    result = len(shown(page, 1))
    assert 0 < result < everything
    rows = page.locator("#uncertain tbody tr:visible").all_inner_texts()
    assert all("Aachen" in row and "unusual" in row for row in rows)
    assert page.get_by_role("status").inner_text() == f"{result} of 150 rows"
    page.get_by_label("Search").fill("no such row")
    assert shown(page, 1) == []
    page.get_by_label("Search").fill("")
    assert len(shown(page, 1)) == everything
    assert page.get_by_role("status").inner_text() == ""
    page.get_by_label("only unusual rows").check()
    assert len(shown(page, 1)) == 15  # the tenth that is flagged


def test_without_scripts_the_table_is_there_and_has_no_dead_controls(visit):
    page = visit(java_script_enabled=False)
    assert page.locator("#uncertain tbody tr").count() == 150
    assert page.locator("#uncertain tbody tr").first.is_visible()
    assert not page.locator("#controls").is_visible()
    assert page.locator("#uncertain button").count() == 0


def brightness(page, selector, property_name):
    colour = page.evaluate(
        "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]", [selector, property_name]
    )
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3


def test_dark_and_light(visit):
    for scheme, dark in (("light", False), ("dark", True)):
        page = visit(color_scheme=scheme)
        assert (brightness(page, "body", "backgroundColor") < 100) == dark
        assert (brightness(page, "body", "color") > 150) == dark
        assert (brightness(page, "figure svg text", "fill") > 150) == dark  # pictures follow
    page.emulate_media(media="print", color_scheme="dark")
    assert brightness(page, "body", "backgroundColor") > 200  # but paper is white
    assert brightness(page, "figure svg text", "fill") < 100


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_printing(visit, kind):
    page = visit(kind)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
    page.emulate_media(media="print")
    assert page.locator("#uncertain tbody tr:visible").count() == 25
    assert not page.locator("nav").is_visible()
    assert page.locator(".print-only").is_visible()
    width = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 less its margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 720 < width + 1


def test_a_threshold_of_uncertainty_can_be_dragged(visit):
    page = visit("maps")
    for level, checked, result in ((255, "0.0 %", "0.0 %"), (100, "50.0 %", "100.0 %"), (0, "75.0 %", "100.0 %")):
        page.locator("#threshold").fill(str(level))
        playwright.expect(page.locator("#summary")).to_have_attribute("data-level", str(level))
        told = page.inner_text("#summary")
        assert f"check {checked} of all pixels and find {result} of the mistakes." in told
        assert page.inner_text(".note") == f". Pixels to check: {checked}, with {result} of its mistakes"
    page.locator("#threshold").fill("200")
    playwright.expect(page.locator("#summary")).to_have_attribute("data-level", "200")
    colours = page.evaluate(
        """() => { const canvas = document.querySelector("canvas");
                   return Array.from(canvas.getContext("2d").getImageData(0, 1, 4, 1).data); }"""
    )
    assert colours[:4] == [200, 200, 200, 255]
    assert colours[12:16] == [221, 171, 60, 255]
    assert page.evaluate("window.stolen") is None


def test_pictures_show_the_numbers_under_the_pointer(visit):
    page = visit(width=390)
    picture = page.locator("figure", has_text="Intervals should contain as many targets as they promise").locator("svg")
    picture.scroll_into_view_if_needed()
    numbers = page.locator("p.numbers")
    assert not numbers.is_visible()
    # The middle of the axes, in the units of the picture, is 50 % on both axes; three quarters up is 75 %.
    left, top, right, bottom = page.evaluate("svg => JSON.parse(svg.dataset.axes).box", picture.element_handle())
    place, scale = picture.bounding_box(), picture.evaluate("svg => svg.getScreenCTM().a")
    for up, text in ((0.5, "50"), (0.75, "75")):
        page.mouse.move(
            place["x"] + scale * (left + right) / 2, place["y"] + scale * (bottom + up * (top - bottom)), steps=2
        )
        across, along = re.findall(r"(-?[\d.]+) %", numbers.inner_text())
        assert (float(across), float(along)) == (pytest.approx(50, abs=0.6), pytest.approx(float(text), abs=0.6))
    box = numbers.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.mouse.move(1, 1)
    assert not numbers.is_visible()
    assert page.locator("svg[data-axes]").count() == page.get_by_role("img").count()


def test_names_on_an_axis_are_shown_as_they_stand(visit):
    axes = visit().evaluate(
        "Array.from(document.querySelectorAll('svg[data-axes]'), svg => JSON.parse(svg.dataset.axes))"
    )
    groups = next(axis for axis in axes if axis["x"]["name"].startswith("total standard deviation"))
    assert len(groups["x"]["words"]) == 6
    assert groups["y"]["words"] == []
