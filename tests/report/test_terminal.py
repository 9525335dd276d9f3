"""The terminal view: width, colour, encoding, hostile text."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import hf_nmt_interp as hni
from hf_nmt_interp.report.terminal import legend, show, table
from tests.made_up_results import make_result


def _shown(result, encoding: str = "utf-8", **options) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, **({"width": 80} | options))
    show(result, console)
    console.print(legend(result))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_words_links_shares_and_log_probabilities(result) -> None:
    linked = replace(result, links={(0, 0), (1, 1), (0, 1)})
    lines = [line.rstrip() for line in _shown(linked.to_words()).splitlines()]
    assert lines[0] == "  A¹ cat² sleeps³"
    assert lines[1] == "→ Eine¹ Katze¹'² schläft"
    assert "Small numbers:" in " ".join(lines)
    rows = [line.split() for line in lines[5:8]]
    assert [row[0] for row in rows] == ["Eine", "Katze", "schläft"]
    assert rows[0][1:3] == ["████████████", "100%"]
    assert [row[3] for row in rows] == ["A", "cat", "sleeps"]
    assert [row[-1] for row in rows] == ["-0.50", "-0.50", "-1.00"]
    assert not any("</s>" in line for line in lines)


@pytest.mark.parametrize("kind", ["nllb", "mbart", "m2m100"])
def test_words_are_counted_from_1_after_a_language_token(translator_of, kind) -> None:
    model, tokenizer = translator_of(kind)
    pair = "The old baker opens.", "Der alte Bäcker öffnet."
    result = hni.attribute(model, tokenizer, *pair, method="attention")
    assert sum(result.source_side.special) == 2  # the end and the language
    words = replace(result, links={(i, i) for i in range(5)}).to_words()
    lines = _shown(words).splitlines()
    assert lines[0].strip() == "The¹ old² baker³ opens⁴ .⁵"
    assert lines[1].strip() == "→ Der¹ alte² Bäcker³ öffnet⁴ .⁵"


def test_the_earlier_word_is_shown_where_it_matters(result) -> None:
    little = replace(result, source=result.source / 4, prefix=result.prefix * 3)
    lines = _shown(little.to_words()).splitlines()
    assert "earlier" in lines[3]
    rows = [line.split() for line in lines[5:8]]
    assert rows[1][-2:] == ["Eine", "-0.50"]
    assert "earlier: the earlier target word" in " ".join(lines)
    assert "earlier" not in _shown(replace(result, prefix=result.prefix * 0))


def test_subwords_show_special_tokens(result) -> None:
    assert "</s>" in _shown(result)


def test_ascii_and_no_colour(result, monkeypatch) -> None:
    one = make_result(["▁A", "</s>"], ["▁Ein", "</s>"]).to_words()
    text = _shown(replace(one, links={(0, 0)}), encoding="ascii")
    assert "-> Ein[1]" in text
    assert "-> Ein \n" in _shown(one, encoding="ascii")  # links are not known
    assert "############ 100%" in text
    assert "\x1b[" in _shown(result, force_terminal=True, color_system="256")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;5" not in _shown(result, force_terminal=True, color_system="256")


def test_fits_80_columns(result) -> None:
    long = make_result(["▁" + "x" * 90, "▁b", "</s>"] * 8, ["▁" + "y" * 90, "▁b", "</s>"] * 8)
    for one in (result, result.to_words(), long, long.to_words()):
        assert max(map(len, _shown(one).splitlines())) <= 80


def test_text_cannot_steer_the_terminal() -> None:
    text = _shown(make_result(["▁[red]\x1b[2J", "</s>"], ["▁[/bold]\x07", "</s>"]).to_words(), force_terminal=True)
    assert "[red]�[2J" in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text


def test_methods_without_a_total_have_no_share(result) -> None:
    text = _shown(replace(result, method="attention", conservation_gap=None))
    assert "from the source" not in text
    assert "most relevant" in text


def test_the_gap_is_named_by_the_method(result) -> None:
    assert "Method: lrp (relevance lost or made up: 1e-07)." in _shown(replace(result, conservation_gap=1e-7))
    integrated = replace(result, method="integrated_gradients", settings={"score": "logit"}, conservation_gap=0.21)
    text = " ".join(_shown(integrated).split())
    assert "Method: integrated_gradients (score logit; error of the integral, in units of the score: 2e-01)." in text
    unknown = replace(integrated, method="unknown", settings={})
    assert "unknown (relevance lost or made up: 2e-01)" in _shown(unknown)


def test_a_contrast_and_a_divergence_are_named(result) -> None:
    words = replace(result, contrast=[None, "▁Hund", None, None, None]).to_words()
    text = " ".join(_shown(words).split())
    assert "target and not from" in text
    assert "the difference of their scores is explained" in text
    assert "divergence" not in text
    long = "Ein Hund, der sehr müde ist,"
    settings = {"method": "saliency", "settings": {"score": "kl"}}
    both = replace(result, contrast=[None, "Ein", long, None, None], **settings).to_words()
    text = " ".join(_shown(both).split())
    assert "target other prefix most relevant" in text
    assert "Katze Ein cat" in text
    assert f"schläft ...{long[-19:]} " in text
    assert "the divergence of the predictions after the two is explained" in text
    assert "and not" not in text


@pytest.mark.parametrize("value", [np.nan, -1.0, 0.0])
def test_strange_scores(result, value) -> None:
    assert "-" in _shown(replace(result, source=np.full_like(result.source, value), log_probs=None))


def test_table() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(table([{"name": "[b]x", "value": 0.123456, "count": 3}]))
    console.print(table([]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[b]x" in text
    assert "0.1235" in text
