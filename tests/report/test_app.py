"""The app, report/app.py and cli/verbs/app.py: its results, and the page in a browser (`pytest -m browser`)."""

import shutil
import sys
import time

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.app import changes, explain_text, make_app, page_of
from hf_nmt_interp.report.html import render
from tests.made_up_results import PAYLOAD


@pytest.fixture(scope="module")
def box():
    return {"box": hni.load_demo("en-de")}


def test_methods_explain_one_translation(box) -> None:
    (results,) = explain_text(box, "I like tea.", methods=("lrp", "attention")).values()
    assert [result.method for result in results] == ["lrp", "attention"]
    assert results[0].text == results[1].text
    assert results[1].chosen is None
    assert results[0].links


def test_given_translations_are_force_decoded(box) -> None:
    (results,) = explain_text(box, "I like tea.", "Ich mag Kaffee.").values()
    assert results[0].text == "Ich mag Kaffee."
    assert not all(results[0].chosen)


def test_masked_words_change_the_log_probability(box) -> None:
    found = explain_text(box, "I like tea.", masked="like")
    assert [result.source_side.text for result in found["box"]] == ["I like tea.", "I tea."]
    full, without = (result.to_words() for result in found["box"])
    change = without.log_probs[1] - full.log_probs[1]
    assert f"mag {change:+.2f}" in changes(found)
    assert change < 0
    assert changes(explain_text(box, "I like tea.")) == ""


def test_two_models_share_a_card(box) -> None:
    found = explain_text(box | {"other": box["box"]}, "I like tea.")
    assert "other: lrp" in render(page_of(found))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": " "}, "source: is empty; type a sentence"),
        ({"source": "a " * 2000}, "source: has more than 2,000 characters; split it"),
        ({"source": "I like tea.", "masked": "coffee"}, "mask: 'coffee' is not a word of the sentence"),
        ({"source": "Tea", "masked": "Tea"}, "mask: no words are left"),
    ],
)
def test_bad_input(given, message) -> None:
    with pytest.raises(InputError, match=message):
        explain_text({}, **given)


def test_without_gradio_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(InputError, match=r"app: needs gradio; install the extra: .*hf_nmt_interp\[app\]"):
        make_app({})


@pytest.fixture(scope="module")
def page(box):
    """The app in Chromium."""
    pytest.importorskip("gradio", reason="the app extra is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser extra is not installed")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("chromium is not installed")
    app = make_app(box)
    _, address, _ = app.launch(server_name="127.0.0.1", quiet=True, prevent_thread_lock=True)
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = opened.new_page()
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.goto(address)
        yield page
        opened.close()
    app.close()


def ask(page, sentence: str):
    """The report's view of a sentence."""
    page.get_by_label("Source", exact=True).fill(sentence)
    page.get_by_role("button", name="Translate and explain").click()
    view = page.frame_locator("iframe")
    view.locator("ul.words li.word", has_text=sentence.split()[0]).first.wait_for(timeout=60_000)
    return view


@pytest.mark.browser
def test_type_click_compare(page) -> None:
    view = ask(page, "The cat is sleeping.")
    view.get_by_role("button", name="Katze").click()
    assert view.locator(".detail").first.inner_text().startswith("Katze translates cat")
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="attention", exact=True).click()
    view.get_by_label("Method or model").first.select_option("attention")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").click()
    assert download.value.suggested_filename == "explained.json"


@pytest.mark.browser
def test_injected_html_stays_text(page) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    page.get_by_label("Translation to explain").fill(hostile)  # the model's own translation of this is long
    view = ask(page, PAYLOAD)
    assert view.locator("button.word", has_text="src=x").count()
    assert view.locator("img").count() == 0
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.browser
def test_a_short_sentence_takes_less_than_a_second(box) -> None:
    explain_text(box, "I like tea.")
    start = time.process_time()  # a clock would measure other processes too
    explain_text(box, "I like tea.")
    seconds = time.process_time() - start
    print(f"a request: {seconds:.2f} s of CPU")
    assert seconds < 1
