"""All methods at base size: against LRP and a forward pass, and against Inseq where it has the same method.

How to name a Python that has Inseq: see test_saliency_speed.py.

Attention weights and value zeroing are compared by value only, layer by layer. Inseq does not multiply layers as our
value zeroing does, and it divides the scores of self-attention and cross-attention in a decoder layer by separate
sums; here, both are compared before our rollout, each divided by its own sum. Inseq's hook on layers fails with
transformers 5, whose layers return tensors and not tuples, so it is replaced by one for tensors. Inseq sets scores
below 1e-5 to 0, so the model gets larger weights.
"""

import json
import time
from pathlib import Path

import pytest
import torch

from hf_nmt_interp.attribution import (
    ALTI,
    LRP,
    AttentionWeights,
    IntegratedGradients,
    NormAttention,
    Occlusion,
    Rollout,
    Saliency,
    ValueZeroing,
)
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.attribution.value_zeroing import _normalised, _Sentence
from hf_nmt_interp.decoding.batch import make_batch
from tests.benchmarks.base_size import base_model, run_with_inseq, word_tokenizer
from tests.benchmarks.test_lrp_speed import fastest, sentence

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]
UNKNOWN = 2  # Inseq's baseline
OURS = {
    "integrated_gradients": lambda model: IntegratedGradients(model, "probability", 50, UNKNOWN),
    "occlusion": lambda model: Occlusion(model, "probability", baseline=UNKNOWN),
}
IN_BFLOAT16 = {
    "integrated_gradients": lambda model: IntegratedGradients(model, "probability", 50, UNKNOWN, precision="bfloat16"),
}


def test_against_lrp_and_a_forward_pass():
    """ALTI and value zeroing take at most as long as LRP, norms and rollout at most three forward passes."""
    model, inputs = base_model(), sentence(20, 23)
    batch = make_batch(model, **inputs)

    @torch.no_grad()
    def forward():
        model(**batch.inputs())

    seconds = {"a forward pass": fastest(forward, 5)}
    kinds = (LRP, ALTI, ValueZeroing, NormAttention, Rollout, Saliency, Occlusion)
    for method in [kind(model) for kind in kinds]:
        seconds[method.name] = fastest(lambda method=method: method(**inputs))
    print("\n20 source and 23 target tokens, one thread")
    for name, taken in seconds.items():
        passes, lrp = taken / seconds["a forward pass"], taken / seconds["lrp"]
        print(f"{name:20} {taken:6.2f} s  {passes:5.1f} forward passes  {lrp:5.2f} times LRP")
    assert seconds["alti"] <= seconds["lrp"]
    assert seconds["value_zeroing"] <= seconds["lrp"]
    assert seconds["norm_attention"] <= 3 * seconds["a forward pass"]
    assert seconds["rollout"] <= 3 * seconds["a forward pass"]


def has_bfloat16() -> bool:
    """Whether the processor has products of bfloat16."""
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and any(flag in cpu.read_text() for flag in ("avx512_bf16", "amx_bf16"))


@pytest.mark.skipif(not has_bfloat16(), reason="the processor has no products of bfloat16")
@pytest.mark.parametrize(
    ("name", "sentences", "settings"),
    [("saliency", 4, {}), ("smoothgrad", 1, {"smoothgrad": 8}), ("integrated_gradients", 1, {"steps": 16})],
)
def test_products_in_bfloat16(name, sentences, settings):
    """Gradients with products in bfloat16 are at least 1.6 times as fast as in float32."""
    model, inputs = base_model(), {key: ids.repeat(sentences, 1) for key, ids in sentence(20, 23).items()}
    seconds = {"float32": [], "bfloat16": []}
    for _ in range(3):  # in turn, so that both meet the same load
        for precision, found in seconds.items():
            method = make_method(model, name, precision=precision, **settings)
            found.append(fastest(lambda method=method: method(**inputs), 1))
    wide, narrow = map(min, seconds.values())
    ratio = wide / narrow
    print(f"\n{name}, {sentences} sentences, {settings}: {wide:.2f} s, {narrow:.2f} s: {ratio:.2f} times faster")
    assert ratio >= 1.6


def measure() -> dict[str, dict[str, float]]:
    """Processor seconds of Inseq and of ours, one thread, and how far their source scores are apart."""
    import inseq

    model, batch = base_model(), sentence(20, 23)
    model.set_attn_implementation("eager")  # what Inseq chooses for the models that it loads
    for ids in batch.values():
        ids.clamp_(min=3)[:, -1] = model.config.eos_token_id
    texts = [" ".join(f"w{i}" for i in ids[0, :-1].tolist()) for ids in batch.values()]
    found = {}
    for name, make in OURS.items():
        other, ours = inseq.load_model(model, name, tokenizer=word_tokenizer()), make(model)
        settings = {"n_steps": 50, "internal_batch_size": 50} if name == "integrated_gradients" else {}
        start = time.process_time()
        result = other.attribute(
            *texts, attribute_target=True, include_eos_baseline=True, show_progress=False, **settings
        )
        seconds = time.process_time() - start
        theirs = result.sequence_attributions[0].source_attributions
        theirs = (theirs.sum(-1) if theirs.ndim == 3 else theirs).T  # [T, S]
        runs = {name: ours}
        if name in IN_BFLOAT16 and has_bfloat16():
            runs[f"{name}, bfloat16"] = IN_BFLOAT16[name](model)
        for label, method in runs.items():
            own = method(**batch).source[0]
            own = own.abs() if name == "occlusion" else own  # as Inseq returns it
            apart = ((own - theirs).abs().max() / theirs.abs().max()).item()
            taken = fastest(lambda method=method: method(**batch), 1)
            found[label] = {"inseq": seconds, "ours": taken, "apart": apart}
    return found


@torch.no_grad()
def compare_layers() -> dict[str, float]:
    """Largest differences of attention weights (two layers) and of value zeroing (all layers), by kind."""
    import inseq
    from inseq.attr.feat.ops.value_zeroing import ValueZeroing as Theirs

    def hook_of(self, block_idx, hidden_state_idx=0):
        def swap(module, args, output):
            self.corrupted_block_output_states[block_idx] = output.clone()
            return self.clean_block_output_states[block_idx]

        return swap

    Theirs.get_states_extract_and_patch_hook = hook_of
    model, batch = base_model(), sentence(8, 6)
    model.set_attn_implementation("eager")
    for weights in model.parameters():
        weights.mul_(3 if weights.ndim == 2 else 1)
    for ids in batch.values():
        ids.clamp_(min=3)[:, -1] = model.config.eos_token_id
    texts = [" ".join(f"w{i}" for i in ids[0, :-1].tolist()) for ids in batch.values()]

    def theirs(name):
        other = inseq.load_model(model, name, tokenizer=word_tokenizer())
        return other.attribute(*texts, attribute_target=True, show_progress=False).sequence_attributions[0]

    def apart(own, other):
        return (own - other.nan_to_num()).abs().max().item()

    found = theirs("attention").source_attributions.mean(-1)  # [S, T, L], mean over heads
    weights = [AttentionWeights(model, layer=layer)(**batch).source[0] for layer in (0, -1)]
    result = {"attention": max(apart(own, found[..., n].T) for n, own in zip((0, -1), weights, strict=True))}
    method = ValueZeroing(model)
    ours = _Sentence(method, method.record(make_batch(model, **batch)), 0, 2**29)
    encoder, decoder = method.parts.encoder.layers, method.parts.decoder.layers
    scores = theirs("value_zeroing")
    kinds = {
        "encoder": (encoder, 0, scores.sequence_scores["encoder_self_scores"]),
        "decoder": (decoder, 0, scores.target_attributions[:-1]),
        "cross": (decoder, 1, scores.source_attributions),
    }
    for kind, (layers, place, found) in kinds.items():
        own = torch.stack([_normalised(ours._distances(layer, place)) for layer in layers], -1)  # [P, S, L]
        result[f"value zeroing, {kind}"] = apart(own.transpose(0, 1), found)
    return result


def test_against_inseq():
    """Occlusion is at least 4 times as fast as Inseq's, integrated gradients (50 points) at least twice in float32."""
    found = run_with_inseq(__file__)
    for name, apart in found.pop("layers").items():
        print(f"\n{name}: largest difference {apart:.0e}", end="")
        assert apart < 1e-4  # of shares that sum to 1
    print("\nInseq 0.7.1, source and prefix explained, one thread")
    for name, times in found.items():
        ratio = times["inseq"] / times["ours"]
        print(f"{name:20} {times['ours']:6.2f} s, Inseq {times['inseq']:6.2f} s: {ratio:.1f} times faster")
        assert times["apart"] < 0.01  # its prefix baseline keeps the start token
    assert found["occlusion"]["inseq"] / found["occlusion"]["ours"] >= 4
    # nine tenths of it are products in float32; Inseq needs 2.35 times as many
    assert found["integrated_gradients"]["inseq"] / found["integrated_gradients"]["ours"] >= 2
    if narrow := found.get("integrated_gradients, bfloat16"):  # 4.0 to 5.8 were measured
        assert narrow["inseq"] / narrow["ours"] >= 3.5


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure() | {"layers": compare_layers()}))
