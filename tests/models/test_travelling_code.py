"""Saved models load by the Auto classes: with the package imported, and by their own code without it.

Also for auto.py, models/aligned/configuration_aligned.py, models/calibrated/configuration_calibrated.py and
models/gated/configuration_gated.py.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_nmt_interp.models.conv import ConvSeq2SeqConfig, ConvSeq2SeqForConditionalGeneration
from hf_nmt_interp.models.gated import GatedMarianMTModel
from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration
from tests.aligned_models import aligned_copy
from tests.calibrated_models import calibrated_copy
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import make_marian_tokenizer

SENTENCE = "Two children are looking for shells."
PROGRAM = """
import importlib.util, json
{first}
{second}
import torch
found = {{}}
for kind in {kinds}:
    folder = f"{folder}/{{kind}}"
    config = AutoConfig.from_pretrained(folder{remote})
    model = AutoModelForSeq2SeqLM.from_pretrained(folder{remote}).eval()
    inputs = {{"input_ids": torch.tensor({ids}), "attention_mask": torch.ones_like(torch.tensor({ids}))}}
    if {tokenizer}:
        assert AutoTokenizer.from_pretrained(folder)({sentence!r})["input_ids"] == {ids}[0]
    with torch.no_grad():
        logits = model(**inputs, labels=inputs["input_ids"]).logits
        written = model.generate(**inputs, num_beams=3, max_length=9)
    found[kind] = [config.model_type, type(model).__module__, logits.flatten().tolist(), written.tolist()]
found["installed"] = [name for name in {looked_for} if importlib.util.find_spec(name)]
json.dump(found, open({out!r}, "w"))
"""
LOOKED_FOR = ["hf_nmt_interp", "accelerate", "datasets", "sentencepiece", "transformers", "torch"]
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
        "aligned": aligned_copy(plain),
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
    return root, expected, inputs["input_ids"].tolist()


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory):
    """Python of a second virtual environment that has transformers, torch and what they need, linked to ours."""
    place = tmp_path_factory.mktemp("plain")
    venv.create(place, symlinks=True, with_pip=False)
    folder = Path(sysconfig.get_path("purelib", "venv", {"base": str(place)}))
    left, done = ["transformers", "torch"], set()
    while left:
        name = canonicalize_name(left.pop())
        if name in done:
            continue
        done.add(name)
        found = distribution(name)
        for top in {file.parts[0] for file in found.files if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(found.locate_file(top))
        needed = map(Requirement, found.requires or [])
        left += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return str(place / "bin" / "python")


def load(saved, tmp_path, python: str, first: str, second: str, remote: str, path: Path | None) -> dict:
    root, expected, ids = saved
    out, tokenizer = tmp_path / "found.json", path is not None  # Marian's tokenizer needs sentencepiece
    program = PROGRAM.format(
        **{"first": first, "second": second, "kinds": list(expected), "folder": root, "remote": remote},
        **{"sentence": SENTENCE, "ids": ids, "tokenizer": tokenizer, "looked_for": LOOKED_FOR, "out": str(out)},
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


def test_transformers_and_torch_alone_load_them_by_the_code_beside_the_weights(saved, plain_python, tmp_path) -> None:
    found = load(saved, tmp_path, plain_python, "", AUTO, ", trust_remote_code=True", None)
    assert found["installed"] == ["transformers", "torch"]
    assert all(found[kind][1].startswith("transformers_modules.") for kind in saved[1])
