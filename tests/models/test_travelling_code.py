"""Saved models load by the Auto classes: with the package imported, and by their own code without it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_nmt_interp.models.conv import ConvSeq2SeqConfig, ConvSeq2SeqForConditionalGeneration
from hf_nmt_interp.models.gated import GatedMarianMTModel
from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration
from tests.calibrated_models import calibrated_copy
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import make_marian_tokenizer

SENTENCE = "Two children are looking for shells."
PROGRAM = """
import json, sys
{first}
{second}
import torch
found = {{}}
for kind in {kinds}:
    folder = f"{folder}/{{kind}}"
    config = AutoConfig.from_pretrained(folder{remote})
    model = AutoModelForSeq2SeqLM.from_pretrained(folder{remote}).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer({sentence!r}, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs, labels=inputs["input_ids"]).logits
        written = model.generate(**inputs, num_beams=3, max_length=9)
    found[kind] = [config.model_type, type(model).__module__, logits.flatten().tolist(), written.tolist()]
found["installed"] = sys.modules.get("hf_nmt_interp") is not None
json.dump(found, open({out!r}, "w"))
"""
AUTO = "from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of each kind of model, and the logits and translations of each."""
    root = tmp_path_factory.mktemp("kinds")
    (root / "tokenizer").mkdir()
    tokenizer = make_marian_tokenizer(root / "tokenizer")
    plain = tiny_model("marian", vocab_size=len(tokenizer))
    plain.save_pretrained(root / "plain")
    gated = GatedMarianMTModel.from_pretrained(root / "plain")
    gated.set_kept_heads({"encoder": [[1], []]})
    pad = tokenizer.pad_token_id
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": tokenizer.eos_token_id}
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16}
    torch.manual_seed(0)
    models = {
        "gated": gated,
        "pruned": gated.prune(),
        "calibrated": calibrated_copy(plain, mask_alpha=0.3),
        "lstm": LuongSeq2SeqForConditionalGeneration(LuongSeq2SeqConfig(**sizes, **special)),
        "conv": ConvSeq2SeqForConditionalGeneration(ConvSeq2SeqConfig(**sizes, **special)),
    }
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    expected = {}
    for kind, model in models.items():
        model.eval().save_pretrained(root / kind)
        tokenizer.save_pretrained(root / kind)
        with torch.no_grad():
            logits = model(**inputs, labels=inputs["input_ids"]).logits
        expected[kind] = logits.flatten().tolist(), model.generate(**inputs, num_beams=3, max_length=9).tolist()
    return root, expected


def load(saved, tmp_path, python: str, first: str, second: str, remote: str, path: Path | None) -> dict:
    root, expected = saved
    out = tmp_path / "found.json"
    program = PROGRAM.format(
        first=first, second=second, kinds=list(expected), folder=root, remote=remote, sentence=SENTENCE, out=str(out)
    )
    hidden = ("PYTHONPATH", "HF_HUB_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    for kind, (logits, written) in expected.items():
        assert found[kind][2] == pytest.approx(logits, abs=1e-5), kind
        assert found[kind][3] == written, kind
    return found


@pytest.mark.parametrize("order", ["package first", "transformers first"])
def test_importing_the_package_is_enough_for_the_auto_classes(saved, tmp_path, order) -> None:
    lines = ("import hf_nmt_interp", AUTO) if order == "package first" else (AUTO, "import hf_nmt_interp")
    found = load(saved, tmp_path, sys.executable, *lines, "", Path(__file__).parents[2])
    assert found["gated"][:2] == ["gated_marian", "hf_nmt_interp.models.gated.modeling_gated"]


def test_without_the_package_the_code_beside_the_weights_is_enough(saved, tmp_path) -> None:
    python = os.environ.get("HF_NMT_INTERP_PLAIN_PYTHON")
    hide = "" if python else 'sys.modules["hf_nmt_interp"] = None'  # as if it were not installed
    found = load(saved, tmp_path, python or sys.executable, hide, AUTO, ", trust_remote_code=True", None)
    assert not found["installed"]
    assert all(found[kind][1].startswith("transformers_modules.") for kind in saved[1])
