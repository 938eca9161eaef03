"""The reports in a real browser, wide and narrow, light and dark: readable, accessible, and nothing is loaded.

`make test-report` runs them; they are skipped where there is no Chromium.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_reports import TABLES

from trinitymerge.log.log import CommitLog
from trinitymerge.reporting.table import report_of_commit, report_of_log

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'trinitymerge[browser]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: pip install 'trinitymerge[browser]'")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")

LOOKS = [(1200, "light"), (1200, "dark"), (320, "light"), (320, "dark")]
PAGES = {
    **{t.name: lambda t=t: report_of_log(CommitLog.open(str(t)), keys=True) for t in TABLES},
    "merge": lambda: report_of_commit(CommitLog.open(str(TABLES[0])), 1),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_a_report_in_a_browser(browser, name, width, scheme, tmp_path):
    path = tmp_path / f"{name}.html"
    path.write_text(PAGES[name](), "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    picture = tmp_path / f"{name}-{width}-{scheme}.png"
    page.screenshot(path=str(picture), full_page=True)
    assert said == []
    assert asked == [path.as_uri()]
    wider = "[...document.querySelectorAll('main > *')].filter(e => e.scrollWidth > innerWidth).map(e => e.outerHTML.slice(0, 80))"
    assert page.evaluate(wider) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 8)")
    assert colors_of(page, picture) >= 20
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in found] == []
    context.close()


def colors_of(page: Any, picture: Path) -> int:
    """The number of colors of a picture, which the browser decodes: a blank page has one."""
    count = """async (url) => {
        const image = await createImageBitmap(await (await fetch(url)).blob());
        const canvas = new OffscreenCanvas(image.width, Math.min(image.height, 2000)), pen = canvas.getContext('2d');
        pen.drawImage(image, 0, 0);
        return new Set(new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size; }"""
    return page.evaluate(count, "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode())
