"""Cards of translators, from what training runs leave behind."""

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedMarianMTModel
from hf_nmt_interp.report.cards import translation_card
from tests.tiny_models import tiny_model

ABOUT = {
    **{"name": "tiny", "source_lang": "en", "target_lang": "de", "data": "made up", "datasets": ["none"]},
    **{"license": "cc0-1.0", "license_name": "CC0", "test_name": "ten sentences", "usage": "..."},
}
TRAINED = {"command": "python train.py --max_steps 5", "train_steps": 5, "train_seconds": 60.0}
SCORES = {"test_bleu": 12.34, "test_chrf": 23.45}


def test_card_of_a_translator(tmp_path):
    model = tiny_model("marian")
    model.save_pretrained(tmp_path)
    card = translation_card(tmp_path, TRAINED | SCORES, **ABOUT)
    assert "BLEU 12.3, chrF 23.4" in card
    assert "python train.py \\\n    --max_steps 5" in card
    assert "heads kept" not in card
    with pytest.raises(InputError, match="'usage' is undefined"):
        translation_card(tmp_path, TRAINED | SCORES, **{k: v for k, v in ABOUT.items() if k != "usage"})


def test_card_of_a_pruned_translator_tells_its_heads_and_scores(tmp_path):
    tiny_model("marian").save_pretrained(tmp_path / "plain")
    gated = GatedMarianMTModel.from_pretrained(tmp_path / "plain")
    gated.set_kept_heads({"encoder": [[1], []]})
    gated.prune().save_pretrained(tmp_path / "pruned")
    card = translation_card(tmp_path / "pruned", TRAINED | {"pruned": SCORES}, **ABOUT, usage_language="bash")
    assert "| heads kept, by layer | encoder 1 0; decoder 2 2; cross 2 2 |" in card
    assert "BLEU 12.3" in card
    assert "```bash\n...\n```" in card
