"""The page in a real browser: `pip install -e ".[browser]"`, Debian package chromium, `pytest -m browser`."""

import shutil
import time
from dataclasses import replace

import pytest

from hf_nmt_interp.cli.main import main
from hf_nmt_interp.report.html import render
from tests.report.conftest import make_result
from tests.report.test_html import PAYLOAD

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser extra is not installed")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a page from a file; the test fails if the page reports an error or asks the network for anything."""
    context = browser.new_context(viewport={"width": 1100, "height": 900}, offline=True)
    complaints: list[str] = []

    def opened(html: str):
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or complaints.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield opened
    context.close()
    assert not complaints


def detail(page) -> str:
    return page.locator("article.card >> nth=0 >> .detail").inner_text()


def test_demo_report(open_page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "The cat is sleeping on the sofa.", "I like tea."]) in (0, None)
    page = open_page((tmp_path / "demo.html").read_text(encoding="utf-8"))
    card = page.locator("article.card").first
    card.get_by_role("button", name="Katze").click()
    assert "Katze comes most from cat" in detail(page)
    assert card.get_by_role("button", name="Katze").get_attribute("aria-pressed") == "true"
    shades = card.locator("ul.words li.word").evaluate_all(
        "all => all.map(n => Number(n.style.getPropertyValue('--v')))"
    )
    assert max(shades) == shades[1] == 1
    page.keyboard.press("ArrowRight")
    assert detail(page).startswith("schläft comes most from sleeping")
    page.keyboard.press("Escape")
    assert detail(page).startswith("Choose a target word")
    page.get_by_label("subwords").check()
    assert card.locator(".words button.word").last.inner_text().strip() == "</s>"
    page.get_by_label("Search").fill("tea")
    assert page.locator("article.card:visible").count() == 1
    picture = page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert len(picture) > 10_000


def test_exact_values_flags_and_comparison(open_page, result):
    other = replace(make_result(result.source_tokens, ["▁Hund", "</s>"]), settings={"alpha": 0.5})
    page = open_page(render({"small": [result], "large": [other]}))
    cell = page.locator("table.map tbody tr >> nth=0 >> td >> nth=0")
    cell.hover()
    value = float(page.locator("#tip").inner_text().rsplit(":", 1)[1])
    assert value == pytest.approx(float(result.to_words().source[0, 0]), rel=1e-3)
    flags = page.get_by_label("little from the source")
    page.get_by_label("Flag below").fill("0")
    assert flags.count() == 0
    page.get_by_label("Flag below").fill("100")
    assert 1 <= flags.count() < len(result.to_words().target_tokens)  # the first word has no prefix
    page.get_by_label("Method or model").select_option("large: lrp (alpha 0.5)")
    assert page.locator(".words button.word").first.inner_text().startswith("Hund")


def test_hostile_text_is_text(open_page):
    hostile = make_result([f"▁{PAYLOAD}", "</s>"], [f"▁{PAYLOAD}", "</s>"], method=PAYLOAD)
    page = open_page(render([hostile], title=PAYLOAD))
    page.on("dialog", lambda dialog: pytest.fail("the page ran a script from the data"))
    assert page.locator(".words button.word").first.inner_text().startswith(PAYLOAD)
    assert page.locator("img").count() == 0


def test_two_hundred_sentences_open_quickly(open_page):
    sentences = [[f"▁word{i}" for i in range(n, n + 20)] + ["</s>"] for n in range(200)]
    html = render([make_result(words, words) for words in sentences])
    start = time.perf_counter()
    page = open_page(html)
    page.locator("table.map").first.wait_for()
    assert time.perf_counter() - start < 2
    assert page.locator("article.card").count() == 200
