"""A public translator of base size: OPUS-MT Chinese-English, in the folder named by HF_NMT_INTERP_MODELS."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.text.pharaoh import read_gold

pytestmark = pytest.mark.data
SENTENCE = "昨天我在市场上买了新鲜的面包。"


@pytest.fixture(scope="module")
def folder() -> Path:
    if "HF_NMT_INTERP_MODELS" not in os.environ:
        pytest.skip("HF_NMT_INTERP_MODELS names no folder of public models")
    return Path(os.environ["HF_NMT_INTERP_MODELS"], "opus-mt-zh-en").absolute()


@pytest.fixture(scope="module")
def translator(folder: Path):
    return load(str(folder), "cpu")


@pytest.fixture(scope="module")
def pairs(data_dir: Path) -> tuple[list[str], list[str]]:
    """Fifty everyday sentences and their references."""
    sides = [Path(data_dir, "tatoeba_zh-en", f"test.{side}").read_text(encoding="utf-8") for side in ("zh", "en")]
    return sides[0].split("\n")[:50], sides[1].split("\n")[:50]


def test_relevance_is_conserved(translator, pairs) -> None:
    results = hni.attribute(*translator, *pairs)
    assert len(results) == 50
    assert max(result.conservation_gap for result in results) <= 1e-4


@pytest.mark.parametrize("method", ["lrp", "attention", "saliency"])
def test_a_sentence_has_the_same_scores_alone_and_in_a_batch(translator, pairs, method) -> None:
    sources, targets = (side[:6] for side in pairs)
    for source, target, found in zip(
        sources, targets, hni.attribute(*translator, sources, targets, method), strict=True
    ):
        alone = hni.attribute(*translator, source, target, method)
        for name in ("source", "prefix", "start", "log_probs"):
            expected = getattr(alone, name)
            np.testing.assert_allclose(getattr(found, name), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_gated_is_pruned_is_reloaded(folder, translator, pairs, tmp_path) -> None:
    model, tokenizer = translator
    gated = hni.GatedMarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tokenizer(pairs[0][:8], text_target=pairs[1][:8], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(gated(**inputs).logits, model(**inputs).logits)  # open gates change nothing
        gated.set_kept_heads({"encoder": [[0, 1, 5], [2], [3, 5], [], [0, 1, 2, 3, 4, 5, 6, 7], [4, 7]]})
        expected = gated(**inputs).logits
        pruned = gated.prune()
        pruned.save_pretrained(tmp_path)
        reloaded = hni.GatedMarianMTModel.from_pretrained(tmp_path).eval()
        for small in (pruned, reloaded):
            torch.testing.assert_close(small(**inputs).logits, expected, atol=1e-4, rtol=1e-4)
    assert (expected - model(**inputs).logits).abs().max() > 1  # closed gates change something
    assert reloaded.num_parameters() < model.num_parameters() - 2e6


def test_words_of_a_sentence_without_spaces_and_their_links(translator) -> None:
    result = hni.add_links(translator[0], hni.attribute(*translator, SENTENCE))
    assert "".join(result.source_side.words) == SENTENCE
    assert len(result.source_side.words) >= 8
    named = {(result.source_side.words[i], result.target_side.words[j].lower()) for i, j in result.links}
    assert {("昨天", "yesterday"), ("面包", "bread"), ("市场上", "market")} <= named


def test_the_default_aligner_needs_no_gold(translator, data_dir) -> None:
    gold = Path(data_dir, "gold_zh-en")
    sides = [[line.split() for line in (gold / f"dev.{side}").open(encoding="utf-8")] for side in ("zh", "en")]
    assert hni.alignment_error_rate(hni.align(*translator, *sides), *read_gold(gold / "dev.gold"))["aer"] <= 0.27
