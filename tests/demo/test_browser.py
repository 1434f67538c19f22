"""The live page in a real browser: Debian's chromium, without a network."""

import os
import re
import shutil

import pytest

from bayesnorm.demo import PAGE

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
expect = getattr(playwright, "expect", None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def opened(browser):
    """The page, opened once; fails at the end for every complaint or request of the browser."""
    complaints = []
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    allowed = ("file:", "blob:", "data:")
    page.on("request", lambda request: request.url.startswith(allowed) or complaints.append(request.url))
    page.goto(PAGE.as_uri())
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def page(opened):
    """The page as it is at its start, trained and calibrated."""
    opened.locator("#data").select_option("gap")
    opened.locator("#reset").click()
    settle(opened)
    return opened


def settle(page):
    """Wait until the network has converged and is calibrated."""
    page.wait_for_selector('#status[data-state="converged"]', timeout=60_000)


def uncertainty_at(page, across):
    """Return the width of the 95 % band and the epistemic standard deviation at a share of the chart's width."""
    page.locator("#chart-a").scroll_into_view_if_needed()
    box = page.locator("#chart-a").bounding_box()
    for top in (20, 24):
        page.mouse.move(box["x"] + across * box["width"], box["y"] + top)
    text = page.inner_text("#reading").replace("−", "-")
    low, high, epistemic = map(float, re.search(r"between (\S+) and (\S+); epistemic ([\d.e-]+),", text).groups())
    return high - low, epistemic


def slide(page, name, position):
    page.locator(f"#{name}").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('change')); }", position
    )


GAP = 0.45
"""The middle of the gap, as a share of the width of the chart."""


def test_the_page_opens_with_the_picture_that_its_worker_then_computes(page):
    difference, height = page.evaluate(
        """() => {
          const [stored, computed] = [decodeBands(curvePanel.start.bands), curvePanel.views[0].bands];
          const flat = ({ mean, quantiles, epistemic, functions }) =>
            [mean, ...quantiles, epistemic, ...functions.slice(0, 4)].flatMap((row) => [...row]);
          const values = flat(computed);
          const differences = flat(stored).map((value, i) => Math.abs(value - values[i]));
          return [Math.max(...differences), Math.max(...values) - Math.min(...values)];
        }"""
    )
    assert difference < 0.005 * height, "run: node src/bayesnorm/demo/write_start.mjs"  # stored with 16 bits
    assert page.evaluate("JSON.stringify(curvePanel.start.marks) === JSON.stringify(curvePanel.marks)")


def test_the_band_narrows_where_points_are_added_and_the_address_restores_it(page):
    before = uncertainty_at(page, GAP)
    box = page.locator("#chart-a").bounding_box()
    for across, down in ((GAP - 0.05, 0.4), (GAP, 0.32), (GAP + 0.05, 0.35)):
        page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])
    settle(page)
    after = uncertainty_at(page, GAP)
    assert after[0] < 0.75 * before[0]
    assert after[1] < 0.75 * before[1]
    page.reload()
    settle(page)
    assert uncertainty_at(page, GAP) == after
    assert page.locator("#data").input_value() == "own"


def test_a_larger_effective_batch_size_narrows_the_band(page):
    before = uncertainty_at(page, GAP)
    slide(page, "size", 16)
    settle(page)
    after = uncertainty_at(page, GAP)
    assert after[0] < 0.6 * before[0]
    assert after[1] < 0.3 * before[1]
    assert page.url.endswith("#size=512")


def test_points_can_be_added_and_deleted_by_keyboard(page):
    page.locator("#chart-a").focus()
    for key in ("ArrowLeft", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    settle(page)
    page.locator("summary").click()
    expect(page.locator("#points tr")).to_have_count(25)
    page.locator("#chart-a").focus()
    page.keyboard.press("Delete")
    expect(page.locator("#points tr")).to_have_count(24)


def test_a_csv_file_is_read_and_the_bands_are_saved_as_one(page):
    rows = "\n".join(f"{x / 4};{(x % 7) / 2}".replace(".", ",") for x in range(40))
    page.locator("#file").set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": f"x;y\n{rows}".encode()})
    expect(page.locator("#data")).to_have_value("own")
    settle(page)
    assert page.evaluate("curvePanel.state.points.length") == 40
    with page.expect_download() as download:
        page.locator("#table").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("method,x,mean,lower_95")
    assert len(lines) == 122
    with page.expect_download() as download:
        page.locator("#picture").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    page.locator("#file").set_input_files({"name": "b.csv", "mimeType": "text/csv", "buffer": b"a,b\nc,d\n"})
    expect(page.locator("#reading")).to_contain_text("needs two columns of numbers")


@pytest.mark.parametrize("method", ["dropout", "ensemble"])
def test_two_methods_side_by_side(page, method):
    page.locator("#noise").select_option("off")
    page.locator("#compare").select_option(method)
    settle(page)
    titles = page.locator("figcaption").all_inner_texts()
    assert titles[0] == "MCBN"
    assert titles[1] == page.locator("#compare option:checked").inner_text()
    assert "there" in page.locator("#chart-b").get_attribute("aria-label")


def test_a_shift_raises_the_alarm_and_adapting_repairs_it(page):
    page.locator("#shift-chart").scroll_into_view_if_needed()
    verdict = page.locator("#shift-verdict")
    expect(verdict).to_contain_text("No drift: the new inputs look", timeout=60_000)
    page.locator("#shift-slider").evaluate("s => { s.value = 1.8; s.dispatchEvent(new Event('input')); }")
    expect(verdict).to_contain_text("Drift: the new inputs do not come")
    expect(page.locator("#shift-p")).to_have_text("below 0.001")
    assert float(page.inner_text("#shift-expected")) > 0.8
    page.locator("#shift-adapt").click()
    expect(verdict).to_contain_text("No drift from the inputs that the network was adapted to")
    assert float(page.inner_text("#shift-error")) < 0.35
    page.locator("#shift-forget").click()
    expect(verdict).to_contain_text("Drift: the new inputs do not come")


def test_digits_and_letters(page):
    page.locator("#digit-canvas").scroll_into_view_if_needed()
    verdict = page.locator("#digit-verdict")
    expect(verdict).to_contain_text("A 3, with probability")
    box = page.locator("#digit-canvas").bounding_box()
    corners = [(0.3, 0.16), (0.7, 0.16), (0.55, 0.5), (0.42, 0.87)]
    for place, (across, down) in enumerate(corners):
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"], steps=4)
        if place == 0:
            page.mouse.down()
    page.mouse.up()
    expect(verdict).to_contain_text("A 7, with probability")
    page.get_by_role("button", name="Draw H").click()
    expect(verdict).to_contain_text("Unsure")
    assert float(page.inner_text("#digit-entropy")) > 1


def test_nothing_is_wider_than_the_window(page):
    for width in (360, 768, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
