"""Make the pictures of the pages and of the app: report.png, methods.png, checking.png and app.png.

Needs Chromium and the extras `browser` and `app`:
  python docs/screenshots.py
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

import hf_nmt_interp as hni
from hf_nmt_interp.report.app import make_app
from hf_nmt_interp.report.checks import render_checks
from hf_nmt_interp.report.html import render

HERE = Path(__file__).parent
SENTENCE = "The cat is sleeping on the sofa."
CHECKED = {
    f"{SENTENCE} It is raining.": "Die Katze schläft auf dem Sofa.",
    "She has a red car.": "Heute regnet es in Berlin.",
    "I like tea.": "Ich mag Tee.",
}


def take(page: Any, name: str, width: int, height: int) -> None:
    """Choose the word Katze and save what is visible."""
    view = page.frame_locator("iframe") if name == "app" else page
    view.get_by_role("button", name="Katze").first.click()
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=HERE / f"{name}.png")


def main() -> None:
    model, tokenizer = hni.load("demo:en-de")
    methods = ("lrp", "smoothgrad")
    results = [hni.add_links(model, hni.attribute(model, tokenizer, SENTENCE, method=name)) for name in methods]
    app = make_app({"demo:en-de": (model, tokenizer)})
    _, address, _ = app.launch(server_name="127.0.0.1", quiet=True, prevent_thread_lock=True)
    with sync_playwright() as running, tempfile.TemporaryDirectory() as folder:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 800})
        for name, shown, height in (("report", results[:1], 690), ("methods", results, 1250)):
            file = Path(folder) / f"{name}.html"
            file.write_text(render(shown), encoding="utf-8")
            page.goto(file.as_uri())
            if name == "methods":
                page.get_by_label("Show").select_option("all together")
            take(page, name, 1000, height)
        file = Path(folder) / "checking.html"
        checks = hni.check(model, tokenizer, list(CHECKED), list(CHECKED.values()))
        rows = [{"line": n, **check.to_dict()} for n, check in enumerate(checks, 1)]
        file.write_text(render_checks(rows), encoding="utf-8")
        page.goto(file.as_uri())
        page.set_viewport_size({"width": 1000, "height": 600})
        page.screenshot(path=HERE / "checking.png", full_page=True)
        page.goto(address)
        page.get_by_role("button", name="Translate and explain").click()
        page.frame_locator("iframe").locator("ul.words li.word").first.wait_for()
        page.get_by_role("checkbox", name="cat", exact=True).check()
        expect(page.get_by_label("What changes")).to_have_value(re.compile("without cat"), timeout=60_000)
        take(page, "app", 1280, 1400)
        browser.close()
    app.close()


if __name__ == "__main__":
    main()
