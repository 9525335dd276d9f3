"""The app, report/app.py and cli/verbs/app.py: its results, and the page in a browser (`pytest -m browser`)."""

import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.app import changes, explain_text, make_app, mask_text, page_of
from hf_nmt_interp.report.html import frame, render
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
    found = explain_text(box, "I like tea.")
    masked = mask_text(box, found, [1])
    text = changes(masked)
    change = masked["box"].changes[1]
    assert text.startswith("box without like\n")
    assert f"mag {change:+.2f}" in text
    assert change < 0
    assert text.endswith(f"now translates: {masked['box'].translation}")
    assert mask_text(box, found, []) == {}
    assert changes({}) == ""


def test_words_are_masked_only_where_models_agree_on_them(box) -> None:
    found = explain_text(box, "I like tea.") | {"other": explain_text(box, "You like tea.")["box"]}
    with pytest.raises(InputError, match="models: 'other' splits the sentence differently"):
        mask_text(box | {"other": box["box"]}, found, [0])


def test_two_models_share_a_card(box) -> None:
    found = explain_text(box | {"other": box["box"]}, "I like tea.")
    assert "other: lrp" in render(page_of(found))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": " "}, "source: is empty; type a sentence"),
        ({"source": "a " * 2000}, "source: has more than 2,000 characters; split it"),
    ],
)
def test_bad_input(given, message) -> None:
    with pytest.raises(InputError, match=message):
        explain_text({}, **given)


def test_without_gradio_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(InputError, match=r"app: gradio is not installed; pip install .*\[app\]"):
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
def test_mask_edit_and_switch_the_method(page) -> None:
    from playwright.sync_api import expect

    view = ask(page, "The cat is sleeping.")
    page.get_by_role("checkbox", name="cat", exact=True).check()
    changed = page.get_by_label("What changes")
    expect(changed).to_have_value(re.compile(r"box without cat\n  change of log p: Die .*Katze -\d"), timeout=60_000)
    assert "the model now translates: " in changed.input_value()
    page.get_by_label("Method", exact=True).click()
    page.get_by_role("option", name="alti", exact=True).click()
    expect(page.get_by_role("checkbox", name="cat", exact=True)).to_be_checked()
    page.get_by_label("Translation to explain").fill("Der Hund schläft.")
    page.get_by_label("Translation to explain").press("Enter")
    view.get_by_role("button", name="Hund").wait_for(timeout=60_000)
    page.get_by_label("Translation to explain").fill("")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").click()
    found = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert found[0]["masked"]["words"] == ["cat"]
    ask(page, "I like tea.")  # another sentence: nothing is masked
    expect(changed).to_have_value("", timeout=60_000)


@pytest.mark.browser
def test_injected_html_stays_text(page) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    page.get_by_label("Translation to explain").fill(hostile)  # the model's own translation of this is long
    view = ask(page, PAYLOAD)
    assert view.locator("button.word", has_text="src=x").count()
    assert view.locator("img").count() == 0
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.benchmark
def test_a_short_sentence_takes_less_than_a_second(box) -> None:
    """The fastest of some requests, on the clock and of its own CPU time: other processes slow down the clock only."""
    requests = {"explained": [], "with a masked word": [1]}
    for name, words in requests.items():
        times = []
        for _ in range(6):
            clock, cpu = time.perf_counter(), time.process_time()
            found = explain_text(box, "The cat is sleeping on the sofa.")
            changes(mask_text(box, found, words))
            frame(page_of(found))
            times.append((time.perf_counter() - clock, time.process_time() - cpu))
        best, own = min(times[1:])
        print(f"a request, {name}: {best:.2f} s, of which {own:.2f} s of CPU")
        assert own < 1
