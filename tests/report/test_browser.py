"""The page in a real browser: `pip install -e ".[browser]"`, Debian package chromium, `pytest -m browser`."""

import shutil
import time
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import psutil
import pytest

from hf_nmt_interp.analysis.head_maps import HeadMaps
from hf_nmt_interp.cli.main import main
from hf_nmt_interp.report.html import render
from tests.made_up_results import PAYLOAD, make_result

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
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
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
    assert "Katze translates cat · comes most from cat" in detail(page)
    assert card.get_by_role("button", name="Katze").get_attribute("aria-pressed") == "true"
    shades = card.locator("ul.words li.word").evaluate_all(
        "all => all.map(n => Number(n.style.getPropertyValue('--v')))"
    )
    assert max(shades) == shades[1] == 1
    page.keyboard.press("ArrowRight")
    assert detail(page).startswith("schläft translates sleeping · comes most from sleeping")
    lit = card.locator("button.word").evaluate_all("all => all.map(n => Number(n.style.getPropertyValue('--v')))")
    assert max(lit[:2]) == 1  # the words before, and no others
    assert max(lit[2:]) == 0
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


def test_methods_one_below_the_other_light_up_together(open_page, result):
    attention = replace(result, method="attention", conservation_gap=None)
    page = open_page(render([result, attention, replace(result, settings={"alpha": 2.0})]))
    page.get_by_label("Show").select_option("all together")
    panels = page.locator("section.panel")
    assert [panel.get_attribute("aria-label") for panel in panels.all()] == ["lrp", "attention", "lrp (alpha 2.0)"]
    panels.nth(1).get_by_role("button", name="Katze").click()
    assert page.locator('button[aria-pressed="true"]').all_inner_texts() == ["Katze"] * 3
    page.get_by_label("Show").select_option("attention")
    assert panels.count() == 1
    assert page.get_by_label("Method or model").input_value() == "attention"


def test_lines_between_source_and_target(open_page, result):
    page = open_page(render([replace(result, links={(0, 0), (1, 1)})]))
    page.get_by_label("lines", exact=True).check()
    assert page.locator("path.link").count() == 2
    page.locator("svg.lines text", has_text="Katze").click()
    assert "Katze translates cat" in detail(page)
    shown = page.locator("path").evaluate_all(
        "all => all.filter(n => n.style.strokeOpacity > 0.2).map(n => [n.getAttribute('class'), n.target])"
    )
    assert ["link", 1] in shown
    assert {target for _, target in shown} == {1}


@pytest.mark.parametrize("view", ["heat map", "lines"])
def test_a_card_is_saved_as_svg_and_png(open_page, result, view, tmp_path):
    page = open_page(render([make_result([f"▁{PAYLOAD}", "</s>"], ["▁Katze", "</s>"])]))
    page.get_by_label(view, exact=True).check()
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.expect_download() as download:
            page.get_by_label("Save this card").select_option(kind)
        download.value.save_as(tmp_path / f"card.{kind}")
        found = (tmp_path / f"card.{kind}").read_bytes()
        assert found.startswith(start)
        assert len(found) > 1000
    text = (tmp_path / "card.svg").read_text(encoding="utf-8")
    drawn = ElementTree.fromstring(text)
    assert f"{PAYLOAD[:29]}…" in [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert not [node for node in drawn.iter() if node.tag.endswith(("script", "img"))]
    assert "var(" not in text  # colours hold outside the page


def test_head_browser(open_page, result):
    weights = np.stack([np.eye(5), np.full((5, 5), 0.2)])
    maps = [HeadMaps("Cross-attention", result.target_tokens, result.source_tokens, {0: ([0, 3], weights)})]
    page = open_page(render([result], heads=[maps]))
    page.locator("summary", has_text="Attention heads").click()
    page.get_by_role("button", name="layer 0, head 3").click()
    table = page.get_by_role("table", name="Cross-attention, layer 0, head 3")
    assert set(table.locator("tbody td").all_inner_texts()) == {"20"}
    page.get_by_role("button", name="layer 0, head 0").click()
    assert page.locator(".heads tbody td").all_inner_texts()[:3] == ["100", "", ""]


@pytest.mark.parametrize("width", [360, 1100])
def test_fifty_words_stay_within_the_window(open_page, width):
    words = [f"▁word{i}" for i in range(50)] + ["</s>"]
    page = open_page(render([make_result(words, words)]))
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("table.map").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelector('.scroll').scrollTo(600, 400)")
    box, head, row = page.evaluate(
        """['.scroll', '.map thead tr:last-child th:nth-child(30)', '.map tbody tr:nth-child(30) th'].map((name) => {
          const at = document.querySelector(name).getBoundingClientRect();
          return [at.left, at.top];
        })"""
    )
    assert head[1] == pytest.approx(box[1], abs=2)  # column names stay at the top, row names on the left
    assert row[0] == pytest.approx(box[0], abs=4)


@pytest.mark.parametrize("width", [360, 1100])
def test_a_word_of_repeated_subwords_leaves_room_for_the_rest(open_page, width):
    words = [*(f"▁word{i}" for i in range(8)), "▁" + 80 * "chch", "</s>"]
    page = open_page(render([make_result(words, words)]))
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("table.map").wait_for()
    right = "document.querySelector('.map tbody th').getBoundingClientRect().right"
    assert page.evaluate(right) < width / 2
    page.get_by_label("lines", exact=True).check()
    assert page.locator("svg.lines").bounding_box()["width"] <= width
    drawn = page.locator("svg.lines").evaluate("svg => svg.viewBox.baseVal.width")
    assert drawn < 1000  # else its letters are too small to read


def test_scores_that_are_no_parts_are_not_per_cent(open_page, result):
    page = open_page(render([replace(result, source=result.source - 0.2, method="saliency", conservation_gap=None)]))
    page.get_by_role("button", name="Katze").click()
    score = f"{result.source[1, 1] - 0.2:.2f}"
    assert detail(page) == f"Katze comes most from cat {score} · log p -0.50 (p 0.61)"
    assert page.locator("table.map tbody tr >> nth=1 >> td >> nth=1").inner_text() == score


def test_a_contrast_is_shown(open_page, tmp_path):
    tea = ["attribute", "--method", "saliency", "--target", "Ich mag Tee.", "I like tea."]
    path = tmp_path / "tea.html"
    assert main([*tea, "--contrast", "Tee=Kaffee", "--output", str(path)]) in (0, None)
    page = open_page(path.read_text(encoding="utf-8"))
    card = page.locator("article.card").first
    assert card.locator("button.word .other").all_inner_texts() == ["not Kaffee"]
    assert card.locator(".map tbody th", has_text="Tee").inner_text() == "Tee (not Kaffee)"
    card.get_by_role("button", name="Tee").click()
    assert detail(page).startswith("Tee and not Kaffee translates tea · comes most from tea")
    card.get_by_role("button", name="mag").click()
    assert detail(page) == "mag is not compared with another word."


def test_a_divergence_names_the_other_prefix(open_page, result):
    prefixes = [None, "Ein", "Ein Hund, der sehr müde ist,", None, None]
    page = open_page(render([replace(result, method="saliency", settings={"score": "kl"}, contrast=prefixes)]))
    card = page.locator("article.card").first
    texts = card.locator("button.word .other").all_inner_texts()
    assert texts == ["other prefix: Ein", "other prefix: … der sehr müde ist,"]
    card.get_by_role("button", name="Katze").click()
    assert detail(page).startswith("The divergence from the prediction after Ein at Katze comes most from cat")
    card.get_by_role("button", name="Eine").click()
    assert detail(page) == "Eine is not compared with another prefix."


def test_keyboard_and_screen_reader(open_page, result):
    other = make_result(["▁B", "</s>"], ["▁C", "▁D", "</s>"])
    page = open_page(render([result, other]))
    page.locator("table.map").nth(1).wait_for()
    page.locator("button.word").first.focus()
    assert detail(page) == (
        "Eine comes most from A 69 %, sleeps 13 %, cat 6 % · 100 % from the source "
        "(relevance: source 94 %, earlier words 0 %, start token 6 %) · log p -0.50 (p 0.61)"
    )
    page.keyboard.press("End")
    assert page.locator(":focus").inner_text().strip() == "</s>"
    page.keyboard.press("Home")
    page.keyboard.press("Tab")  # one stop for the words of a sentence, one to save it
    assert page.locator(":focus").get_attribute("aria-label") == "Save this card"
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text().strip() == "C"
    seen = page.locator("article.card").first.aria_snapshot()
    share = round(100 * float(result.to_words().source_contribution[1]))
    assert f'button "Katze {share} % from the source"' in seen
    assert 'table "What contributed to each target word"' in seen
    assert f'cell "A → Eine: {str(result.to_words().source[0, 0])[:5]}' in seen  # exact values without a mouse


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_shade(open_page, result, scheme):
    page = open_page(render([result]))
    page.emulate_media(color_scheme=scheme)
    shades = page.evaluate("""() => {
      const light = (rgb) => rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
      const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
      const cell = document.querySelector("td.shade");
      const below = numbers(getComputedStyle(document.querySelector(".card")).backgroundColor);
      return [...Array(101).keys()].map((v) => {
        shade(cell, v, 100);
        const style = getComputedStyle(cell);
        const [r, g, b, alpha = 1] = numbers(style.backgroundColor);
        const ground = light([r, g, b].map((c, i) => alpha * c + (1 - alpha) * below[i]));
        const text = light(numbers(style.color));
        return [ground, (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05)];
      });
    }""")
    grounds, ratios = zip(*shades, strict=True)
    assert min(ratios) > 4.5  # WCAG AA
    assert list(grounds) == sorted(set(grounds), reverse=scheme == "light")  # told apart in grey, too


def test_light_and_dark_by_the_button(open_page, result):
    page = open_page(render([result]))
    grounds = []
    for _ in range(3):
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.get_by_label("Switch between light and dark").click()
    assert grounds[0] == grounds[2] != grounds[1]


def test_prints_every_sentence(open_page, tmp_path):
    sentences = [[f"▁word{i}" for i in range(n, n + 8)] + ["</s>"] for n in range(30)]
    page = open_page(render([make_result(words, words) for words in sentences]))
    assert page.locator("table.map").count() < 30  # those far away are not drawn yet
    page.pdf(path=tmp_path / "print.pdf")
    assert page.locator("table.map").count() == 30


def test_long_sentences_fit_the_paper(open_page):
    words = [f"▁word{i}" for i in range(30)] + ["</s>"]
    page = open_page(render([make_result(words, words)]))
    page.locator("table.map").wait_for()
    edges = "[...document.querySelectorAll('.scroll, .map')].map((n) => n.getBoundingClientRect().right)"
    paper, drawn = page.evaluate(edges)
    assert drawn > paper + 100  # on the screen it scrolls
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    for width in (718, 1047):  # A4 upright and on its side, within the usual margins
        page.set_viewport_size({"width": width, "height": 900})
        paper, drawn = page.evaluate(edges)
        assert 0.9 * paper < drawn <= paper


def test_hostile_text_is_text(open_page):
    hostile = make_result([f"▁{PAYLOAD}", "</s>"], [f"▁{PAYLOAD}", "</s>"], method=PAYLOAD)
    page = open_page(render([hostile], title=PAYLOAD))
    assert page.locator(".words button.word").first.inner_text().startswith(PAYLOAD)
    assert page.locator("img").count() == 0


def browser_seconds() -> float:
    """CPU time of the browser's processes so far: on a busy machine a clock measures the others too."""
    processes = psutil.Process().children(recursive=True)
    return sum(sum(p.cpu_times()[:2]) for p in processes if "chrom" in p.name())


def test_two_hundred_sentences_open_quickly(open_page):
    sentences = [[f"▁word{i}" for i in range(n, n + 20)] + ["</s>"] for n in range(200)]
    html = render([make_result(words, words) for words in sentences])
    open_page(render([])).close()  # a new tab costs the same for every page
    before, start = browser_seconds(), time.perf_counter()
    page = open_page(html)
    page.locator("table.map").first.wait_for()
    seconds, clock = browser_seconds() - before, time.perf_counter() - start
    print(f"200 sentences: {len(html) / 2**20:.1f} MB, {seconds:.2f} s of CPU in {clock:.2f} s")
    assert page.locator("article.card").count() == 200
    assert page.locator("table.map").count() < 10  # what can be seen, and a little more
    assert 0 < seconds < 2
