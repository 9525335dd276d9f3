"""Explanations in pandas, datasets and Inseq; metric folders in evaluate; gated and pruned models with PEFT."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import LRP, Saliency
from hf_nmt_interp.errors import InputError
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN

ROOT = Path(hni.__file__).parents[1]


@pytest.fixture(scope="module")
def results(translator_of):
    return hni.attribute(*translator_of("marian"), ENGLISH[:2], GERMAN[:2], method="attention")


@pytest.mark.parametrize("level", ["token", "word"])
def test_frames_have_every_score_once(results, level) -> None:
    chosen = [result.to_words() if level == "word" else result for result in results]
    frame = hni.to_pandas(chosen)
    assert list(frame) == ["sentence", "step", "target", "side", "position", "token", "score"]
    for number, result in enumerate(chosen):
        part = frame[frame.sentence == number]
        source = part[part.side == "source"].pivot(index="step", columns="position", values="score")
        assert np.allclose(source.to_numpy(), result.source)
        prefix = part[part.side == "prefix"]
        assert prefix.score.sum() == pytest.approx(result.prefix.sum(), abs=1e-5)
        assert all(prefix.position <= prefix.step if level == "word" else prefix.position < prefix.step)
        assert list(part[part.side == "start"].target) == result.target_tokens
    assert len(hni.to_pandas(results[0])) < len(hni.to_pandas(results))
    with pytest.raises(InputError, match="results: none given"):
        hni.to_pandas([])


def test_sets_have_a_row_for_each_result(results) -> None:
    found = hni.to_dataset(results)
    assert found[1]["target_tokens"] == results[1].target_tokens
    assert np.allclose(found[0]["source"], results[0].source, atol=1e-6)
    with pytest.raises(InputError, match="results: none given"):
        hni.to_dataset([])


METRICS = sorted(path.parent for path in (ROOT / "hf_nmt_interp" / "metrics").glob("*/__init__.py"))


@pytest.mark.parametrize("folder", METRICS, ids=lambda folder: folder.name)
def test_metric_folders_load_with_evaluate(folder) -> None:
    import evaluate

    loaded = evaluate.load(str(folder))  # what it computes is tested in tests/metrics
    assert loaded.description


INSEQ = """
import sys, inseq
import hf_nmt_interp as hni
from inseq.data.aggregator import PairAggregator
result, other = map(hni.AttributionResult.load, sys.argv[2:])
out = hni.to_inseq([result, result.to_words()])
first = out.sequence_attributions[0]
assert [t.token for t in first.source] == result.source_tokens
assert [t.token for t in first.target][1:] == result.target_tokens
assert tuple(first.source_attributions.shape) == result.source.T.shape
assert out.show(display=False, return_html=True)
second = hni.to_inseq(other).sequence_attributions[0]
compared = first.aggregate(PairAggregator, paired_attr=second)
assert (compared.source_attributions == second.source_attributions - first.source_attributions).all()
assert compared.show(display=False, return_html=True)
assert first.aggregate("subwords").source_attributions.shape[0] <= len(result.source_tokens)
out.save(sys.argv[1], overwrite=True)
again = inseq.FeatureAttributionOutput.load(sys.argv[1])
assert (again.sequence_attributions[0].source_attributions == first.source_attributions).all()
print("ok")
"""


def test_inseq_shows_compares_saves_and_loads_them(results, translator_of, tmp_path) -> None:
    python = os.environ.get("HF_NMT_INTERP_INSEQ_PYTHON")
    if not python:
        pytest.skip("HF_NMT_INTERP_INSEQ_PYTHON names no Python with Inseq")
    other = hni.attribute(*translator_of("marian"), ENGLISH[0], GERMAN[0], method="saliency")
    saved = [str(tmp_path / f"{result.method}.safetensors") for result in (results[0], other)]
    for path, result in zip(saved, (results[0], other), strict=True):
        result.save(path)
    command = [python, "-c", INSEQ, str(tmp_path / "inseq.json"), *saved]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout.strip().endswith("ok")) == (0, True), done.stderr


def test_without_inseq_the_extra_is_named(results, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "inseq.data.attribution", None)
    monkeypatch.setitem(sys.modules, "inseq", None)
    with pytest.raises(InputError, match=r"pip install -e '\.\[inseq\]'"):
        hni.to_inseq(results)


@pytest.mark.parametrize("kind", ["gated", "pruned", "without a layer"])
def test_lora_trains_gated_and_pruned_models(tmp_path, kind) -> None:
    peft = pytest.importorskip("peft", reason="the extra peft is not installed")
    import torch

    tiny_model("marian").save_pretrained(tmp_path)
    model = hni.GatedMarianMTModel.from_pretrained(tmp_path)
    modules: list[str] | str = ["q_proj", "v_proj"]
    if kind != "gated":
        model.set_kept_heads({"encoder": [[1], [0] if kind == "pruned" else []]})
        model = model.prune()
    if kind == "without a layer":  # it has nothing to adapt
        modules = r".*(encoder\.layers\.0|decoder)\..*(q_proj|v_proj)"
    batch = {"input_ids": torch.tensor([[7, 8, 9, 2]]), "labels": torch.tensor([[11, 12, 2]])}
    before = model.eval()(**batch).logits
    config = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=modules)
    adapted = peft.get_peft_model(model, config)
    assert torch.allclose(adapted.eval()(**batch).logits, before)  # a new adapter changes nothing
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        adapted.train()(**batch).loss.backward()
        optimizer.step()
    after = adapted.eval()(**batch).logits
    assert not torch.allclose(after, before)
    Saliency(adapted.get_base_model())(**batch)
    with pytest.raises(InputError, match=r"LRP has no rule for .*merge adapters into the weights"):
        LRP(adapted.get_base_model())(**batch)
    merged = adapted.merge_and_unload()
    LRP(merged)(**batch)
    assert torch.allclose(merged(**batch).logits, after, atol=1e-5)
    merged.save_pretrained(tmp_path / "merged")
    again = hni.GatedMarianMTModel.from_pretrained(tmp_path / "merged")
    assert torch.allclose(again.eval()(**batch).logits, after, atol=1e-5)
