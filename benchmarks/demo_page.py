"""Measure the live page in chromium: python -m benchmarks.demo_page [--seconds N] [--picture FILE]

It drags a point to and fro and counts how often the band is computed and drawn again; each time the network is trained
from its start. It also measures the time until the network has converged and is calibrated, and the idle time of the
processor after that. Needs chromium and the Python package playwright.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import time

from playwright.sync_api import sync_playwright

from bayesnorm.demo import PAGE


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
            while (passed := time.perf_counter() - start) < seconds:
                page.mouse.move(box["x"] + x, box["y"] + y + 60 * math.sin(3 * passed))
                page.wait_for_timeout(15)
            updates = page.evaluate("curvePanel.updates") - before
            page.mouse.up()
            page.wait_for_selector('#status[data-state="converged"]')
            print(f"{method}: {updates / passed:.1f} updates per second while a point is dragged")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def busy() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")

        before = busy()
        page.wait_for_timeout(3000)
        print(f"after convergence: the page is busy for {100 * (busy() - before) / 3:.1f} % of the time")
        browser.close()


if __name__ == "__main__":
    main()
