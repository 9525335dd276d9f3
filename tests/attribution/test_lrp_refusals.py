"""What LRP refuses, and how it says so.

Also for attribution/recording.py and attribution/tape.py.
"""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel, LEDConfig, LEDForConditionalGeneration

from hf_nmt_interp.attribution import LRP
from hf_nmt_interp.errors import InputError
from tests.tiny_models import FAMILIES, random_batch, tiny_model


def test_an_unknown_family_is_named():
    model = LEDForConditionalGeneration(
        LEDConfig(vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
                  decoder_attention_heads=1, attention_window=2)
    )  # fmt: skip
    with pytest.raises(
        InputError, match="the layers of LEDForConditionalGeneration are not known; supported are MarianMTModel, Bart"
    ):
        LRP(model)


def test_an_encoder_decoder_of_two_widths_is_refused():
    sizes = {"vocab_size": 20, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    encoder, decoder = BertConfig(hidden_size=8, **sizes), BertConfig(hidden_size=16, **sizes)
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
    with pytest.raises(InputError, match="different width"):
        LRP(model)


def test_an_unknown_operation_is_named():
    class LowRank(nn.Module):
        def __init__(self, base: nn.Linear):
            super().__init__()
            self.base, self.weight, self.bias = base, base.weight, base.bias

        def forward(self, x):
            return 2 * self.base(x)

    model = tiny_model("marian")
    layer = model.model.encoder.layers[1]
    layer.fc1 = LowRank(layer.fc1)
    with pytest.raises(InputError, match=r"no rule for LowRank \(model.encoder.layers.1.fc1\)"):
        LRP(model)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("where", ["weights", "branch", "stream", "activation", "memory", "output"])
def test_what_a_model_does_between_known_operations_is_not_skipped(family, where):
    model = tiny_model(family)
    parts = LRP(model).parts
    _, cross, ffn = parts.decoder.layers[0]
    reader, names = {
        "weights": (cross.branch.output, ["v_proj", "EncDecAttention.v", "value"]),
        "branch": (cross.norm, ["out_proj", "EncDecAttention.o", "output.dense"]),
        "stream": (ffn.branch.inner, ["fc2", "layer_norm", "output.dense"]),
        "activation": (ffn.branch.outer, ["fc1", "wi", "wi_0", "intermediate.dense"]),
        "memory": (cross.branch.key, ["k_proj", "EncDecAttention.k", "key"]),
        "output": (parts.output_head.dense if parts.output_head else parts.projection, ["norm", "LayerNorm"]),
    }[where]
    reader.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with pytest.raises(InputError, match=rf"at \S+({'|'.join(names)}) it does something that LRP has no rule for"):
        LRP(model)(**random_batch(model, [(4, 3)]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_no_operation_may_do_more_than_its_rule_says(family, side):
    model = tiny_model(family)
    batch = random_batch(model, [(4, 3)])
    for module in LRP(model).parts.operations:
        if side == "before":
            hook = module.register_forward_pre_hook(lambda module, args: (args[0].flip(-1) + 1,))
        else:
            hook = module.register_forward_hook(lambda module, args, output: 1 - 3 * output)
        with pytest.raises(InputError, match=r"at \S+ it does something that LRP has no rule for"):
            LRP(model)(**batch)
        hook.remove()
    LRP(model)(**batch)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_nothing_between_the_embeddings_and_the_first_layer_is_skipped(family, stack):
    model = tiny_model(family)
    module = getattr(LRP(model).parts, stack).module
    module = getattr(module, "encoder", module)  # BERT's own
    layers = next(getattr(module, name) for name in ("layers", "block", "layer") if hasattr(module, name))
    layers[0].register_forward_pre_hook(lambda layer, args: (args[0].roll(1, 1), *args[1:]))
    with pytest.raises(InputError, match=r"at \S+(embed|shared|norm|Norm)\S* it does something that LRP has no rule"):
        LRP(model)(**random_batch(model, [(4, 3)]))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_that_are_changed_afterwards_are_refused(family):
    model = tiny_model(family)
    projection = LRP(model).parts.projection
    model.register_forward_hook(lambda module, args, output: output.__setitem__("logits", 2 * output.logits))
    name = next(name for name, module in model.named_modules() if module is projection)
    with pytest.raises(InputError, match=f"at {name} it does something that LRP has no rule for"):
        LRP(model)(**random_batch(model, [(4, 3)]))


@pytest.fixture
def no_accelerator():
    """accelerate's settings are of the whole process: without those of tests before, and none are left."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("no_accelerator")
def test_mixed_precision_is_left_out(family):
    """Autocast of the caller, and what accelerate wraps around a model that is trained in bfloat16."""
    model = tiny_model(family)
    batch = random_batch(model, [(4, 3)])
    plain = LRP(model)(**batch).source
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(LRP(model)(**batch).source, plain)
    model = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model, evaluation_mode=True)
    assert hasattr(model, "_original_forward")
    assert torch.equal(LRP(model)(**batch).source, plain)
    model.register_forward_hook(lambda module, args, output: None)
    with pytest.raises(InputError, match="model: it has hooks besides accelerate's mixed precision; pass accelerator"):
        LRP(model)(**batch)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "z_plus"}, "rule: 'z_plus' is not one of alpha_beta, epsilon, ratio, attnlrp, cp_lrp, gamma"),
        ({"logit": "best"}, "logit: 'best' is not one of top1, label"),
        ({"attention": "keys"}, "attention: 'keys' is not one of full, values"),
        ({"norm": "identity"}, "norm: 'identity' is not one of jacobian, scale"),
        ({"stabilizer": -1.0}, "stabilizer: -1.0 must be at least 0 and finite"),
        ({"alpha": 2.0, "beta": -1.0}, "alpha, beta: 2.0, -1.0 must be at least 0 and add up to 1"),
        ({"alpha": 0.5}, "alpha, beta: 0.5, 0.0 must be at least 0 and add up to 1"),
        ({"max_memory": 0}, "max_memory: 0 bytes must be more than 0"),
        ({"rule": "epsilon", "epsilon": 0.0}, "epsilon: 0.0 must be positive and finite"),
        ({"rule": "attnlrp", "epsilon": -1.0}, "epsilon: -1.0 must be positive and finite; the default is 1e-09"),
        ({"rule": "cp_lrp", "gamma": 0.25}, "gamma: rule 'cp_lrp' has no such setting; it has epsilon"),
        ({"rule": "gamma", "epsilon": 0.0}, "epsilon: 0.0 must be positive and finite"),
        ({"rule": "gamma", "gamma": -0.1}, "gamma: -0.1 must be at least 0 and finite; the default is 0.25"),
        ({"rule": "gamma", "gamma": float("inf")}, "gamma: inf must be at least 0 and finite"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        LRP(tiny_model("marian"), **settings)


def test_bad_batches_are_named():
    model = tiny_model("marian")
    explainer, batch = LRP(model), random_batch(model, [(4, 3), (2, 2)])
    ids, labels, mask = batch["input_ids"], batch["labels"], batch["attention_mask"]
    with pytest.raises(InputError, match=r"input_ids: expected integers of shape \[batch, length\], .* of \[4\]"):
        explainer(ids[0], labels)
    with pytest.raises(InputError, match=r"labels: expected integers .* torch.float32"):
        explainer(ids, labels.float())
    with pytest.raises(InputError, match=r"labels: 1 rows, but input_ids has 2"):
        explainer(ids, labels[:1])
    with pytest.raises(InputError, match="attention_mask: padding must be at the end"):
        explainer(ids, labels, mask.flip(-1))
    with pytest.raises(InputError, match="labels: padding must be at the end"):
        explainer(ids, labels.flip(-1), mask)
    with pytest.raises(InputError, match=r"labels\[1\]: has no tokens"):
        explainer(ids, labels.where(torch.tensor([[True], [False]]), -100), mask)
    with pytest.raises(InputError, match="input_ids: 40 is not among the model's 40 tokens"):
        explainer(ids + 40 * (ids == ids[0, 0]) - ids[0, 0] * (ids == ids[0, 0]), labels, mask)
    with pytest.raises(InputError, match="labels: -1 is not among the model's 40 tokens"):
        explainer(ids, labels.masked_fill(labels == labels[0, 0], -1), mask)
    for family in ("marian", "bert2bert"):
        with pytest.raises(InputError, match="input_ids: 65 tokens, but the model has 64 positions; split"):
            LRP(tiny_model(family))(torch.full((1, 65), 5), torch.full((1, 2), 5))
    with pytest.raises(InputError, match="batches: no batch was given"):
        explainer.head_relevance([])


def test_logits_that_are_not_finite():
    model = tiny_model("marian")
    nn.init.constant_(model.final_logits_bias, torch.nan)
    with pytest.raises(InputError, match="logits are not finite"):
        LRP(model)(**random_batch(model, [(3, 2)]))
