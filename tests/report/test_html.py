"""The page: self-contained, escaped, complete."""

import html.parser
import json
import re
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.head_maps import HeadMaps
from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.report.html import frame, render, render_table
from tests.fitting import fitting
from tests.made_up_results import PAYLOAD, make_result


class _Page(html.parser.HTMLParser):
    """Elements of a page, and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text: dict[str, str] = {}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        self.text[self.open] = self.text.get(self.open, "") + data

    @property
    def data(self) -> list[dict]:
        return json.loads(self.text["data"])


def test_data_has_words_and_subwords(result) -> None:
    page = _Page(render([result], title="One & all"))
    assert page.text["title"] == "One & all"
    (card,) = page.data
    (view,) = card["views"]
    assert (card["source"], view["target"]) == ("A cat sleeps", "Eine Katze schläft")
    assert view["name"] == "lrp"
    assert view["token"]["source_tokens"] == result.source_tokens
    assert view["word"]["target_tokens"] == ["Eine", "Katze", "schläft", "</s>"]
    assert view["token"]["source"][0][0] == pytest.approx(float(result.source[0, 0]), rel=1e-3)
    assert view["word"]["shares"][0] == 1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_drawn(translator_of, method) -> None:
    model, tokenizer = translator_of("marian")
    result = hni.attribute(fitting(method, model), tokenizer, "A small dog!", "Ein kleiner Hund!", method=method)
    (view,) = _Page(render([result])).data[0]["views"]
    assert view["name"] == method
    for level in (result, result.to_words()):
        shown = view[level.level]
        for name in ("source", "prefix", "start"):
            scores = getattr(level, name)
            np.testing.assert_allclose(np.array(shown[name]), scores, rtol=1e-3, atol=1e-4 * np.abs(scores).max())
        assert (shown["shares"] is None) == (method not in ("lrp", "alti"))
        assert (shown["conservation_gap"] is None) == (method not in ("lrp", "alti", "integrated_gradients"))


def test_text_from_data_is_escaped() -> None:
    hostile = make_result([f"▁{PAYLOAD}", "</s>"], [f"▁{PAYLOAD}", "</s>"], method=PAYLOAD, note=PAYLOAD)
    page = _Page(render([hostile], title=PAYLOAD))
    harmless = _Page(render([make_result(["▁a", "</s>"], ["▁b", "</s>"], method="mine")]))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.data[0]["source"] == PAYLOAD
    assert page.text["title"] == PAYLOAD
    assert PAYLOAD in page.text["p"]


def test_page_needs_no_network(result) -> None:
    text = render([result])
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bsrc=|\bhref=", text)
    assert "default-src 'none'" in text


def test_methods_of_one_pair_share_a_card(result) -> None:
    attention = replace(result, method="attention", settings={"layer": 2}, conservation_gap=None)
    other = make_result(["▁B", "</s>"], ["▁C", "</s>"])
    cards = _Page(render([result, attention, other, result, result])).data
    assert [[view["name"] for view in card["views"]] for card in cards] == [
        ["lrp", "attention (layer 2)"],
        ["lrp"],
        ["lrp"],
        ["lrp"],
    ]
    assert cards[0]["views"][1]["word"]["shares"] is None


def test_the_gap_is_named_by_the_method(result) -> None:
    integrated = replace(result, method="integrated_gradients", settings={}, conservation_gap=0.21)
    (card,) = _Page(render([result, integrated])).data
    names = ["relevance lost or made up", "error of the integral, in units of the score"]
    for level in ("token", "word"):
        assert [view[level]["gap"] for view in card["views"]] == names


def test_models_are_compared_on_one_card(result) -> None:
    other = make_result(result.source_tokens, ["▁C", "</s>"])
    (card,) = _Page(render({"small": [result], "large": [other]})).data
    assert [(view["name"], view["target"]) for view in card["views"]] == [
        ("small: lrp", "Eine Katze schläft"),
        ("large: lrp", "C"),
    ]
    with pytest.raises(ValueError, match="shorter"):
        render({"small": [result], "large": []})


def test_models_and_methods_on_one_card_though_tokenizers_differ(result) -> None:
    def attention(one):
        return replace(one, method="attention", conservation_gap=None)

    split = make_result(["▁A", "▁cat", "▁sleeps", "</s>"], ["▁C", "</s>"])
    text = render({"small": [result, attention(result)], "large": [split, attention(split)]})
    (card,) = _Page(text).data
    names = ["small: lrp", "large: lrp", "small: attention", "large: attention"]
    assert [view["name"] for view in card["views"]] == names
    options = [attributes["value"] for tag, attributes in _Page(text).elements if tag == "option"]
    assert options == [*names, ""]
    assert 'id="view"' not in render([result, result])


def test_low_shares_can_be_flagged_where_there_are_shares(result) -> None:
    attention = replace(result, method="attention", conservation_gap=None)
    assert 'id="low"' in render([result])
    assert 'id="low"' not in render([attention])


def test_word_results_have_no_subword_switch(result) -> None:
    switch = 'name="level"'
    assert switch in render([result])
    assert switch not in render([result.to_words()])


def test_heads_are_bytes_of_their_weights(result) -> None:
    weights = np.array([[[0.0, 1.0], [0.4, 0.6]]])
    maps = [HeadMaps("Cross-attention", ["x", PAYLOAD], ["a", "b"], {2: ([5], weights)})]
    (card,) = _Page(render([result], heads=[maps])).data
    (kind,) = card["heads"]
    assert (kind["name"], kind["rows"], kind["columns"]) == ("Cross-attention", ["x", PAYLOAD], ["a", "b"])
    assert (kind["layers"][0]["layer"], kind["layers"][0]["heads"]) == (2, [5])
    assert list(b64decode(kind["layers"][0]["weights"][0])) == [0, 255, 102, 153]
    assert "heads" not in _Page(render([result])).data[0]


def test_no_results() -> None:
    assert _Page(render([])).data == []


def test_to_html_and_frame(result) -> None:
    assert result.to_html() == render([result])
    page = _Page(frame([result]))
    assert [tag for tag, _ in page.elements] == ["iframe"]
    assert page.elements[0][1]["srcdoc"] == render([result])


def test_table_page() -> None:
    page = _Page(render_table([{"name": PAYLOAD, "value": 0.123456}], title="Rows"))
    assert page.text["td"] == f"{PAYLOAD}0.1235"
    assert "script" not in [tag for tag, _ in page.elements]
    assert "<tbody>" in render_table([], title="None")
