"""Measure the live page in chromium: python -m benchmarks.demo_page [--seconds N] [--picture FILE]

It drags a point to and fro and counts how often the band is computed and drawn again; each time the network is trained
from its start. It also measures the time until the network has converged and is calibrated, and the processor time
that the page uses after that. Needs chromium and the Python package playwright.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import time

from playwright.sync_api import CDPSession, sync_playwright

from bayesnorm.demo import PAGE


def processor_time(session: CDPSession) -> float:
    """Return the seconds of processor time that the page and its worker have used."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(float(process["cpuTime"]) for process in processes if process["type"] == "renderer")


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="Duration of the drag.")
    parser.add_argument("--picture", help="Save a PNG of the first panel here.")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    with sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        session = browser.new_browser_cdp_session()
        start = time.perf_counter()
        page.goto(PAGE.as_uri())
        page.wait_for_selector('#status[data-state="converged"]')
        print(f"opened, trained and calibrated after {time.perf_counter() - start:.2f} s")
        if arguments.picture:
            page.locator("#curve").screenshot(path=arguments.picture)
        for method in ("mcbn", "ensemble"):
            page.locator("#method").select_option(method)
            page.wait_for_selector('#status[data-state="converged"]')
            box = page.locator("#chart-a").bounding_box()
            assert box is not None
            x, y = page.evaluate(
                """() => { const [{ plots: [plot] }, [x, y]] = [curvePanel.views[0], curvePanel.state.points[0]];
                           return [plot.toX(x), plot.toY(y)]; }"""
            )
            page.mouse.move(box["x"] + x, box["y"] + y)
            page.mouse.down()
            before, start = page.evaluate("curvePanel.updates"), time.perf_counter()
            worked = processor_time(session)
            while (passed := time.perf_counter() - start) < seconds:
                page.mouse.move(box["x"] + x, box["y"] + y + 60 * math.sin(3 * passed))
                page.wait_for_timeout(15)
            updates = page.evaluate("curvePanel.updates") - before
            worked = processor_time(session) - worked
            page.mouse.up()
            page.wait_for_selector('#status[data-state="converged"]')
            print(
                f"{method}: {updates / passed:.1f} updates per second while a point is dragged, "
                f"{1000 * worked / updates:.0f} ms of processor time each"
            )
        before = processor_time(session)
        page.wait_for_timeout(3000)
        print(f"after convergence: {(processor_time(session) - before) / 3:.1%} of one core")
        browser.close()


if __name__ == "__main__":
    main()
