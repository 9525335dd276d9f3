"""Numbers that would be wrong without a word: settings, global states of torch, batches, pruned twins."""

import copy
from itertools import product

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from hf_nmt_interp.attribution import LRP
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedBartForConditionalGeneration, GatedT5ForConditionalGeneration
from tests.calibrated_models import tiny_calibrated
from tests.plain_autograd import plain_saliency
from tests.tiny_models import random_batch, tiny_model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_epsilon_is_right_or_refused(dtype):
    """Right: as with weights that differ in the last digits. Conservation alone can hold by luck."""
    model = tiny_model("marian", dtype)
    batch = random_batch(model, [(5, 4)])
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1 + 4 * torch.finfo(dtype).eps * torch.randn(weight.shape, dtype=dtype))

    def scores(model, **settings):
        try:
            return LRP(model, rule="epsilon", **settings)(**batch).source
        except InputError as error:
            return str(error)

    found = 0
    for epsilon, norm in product((1e-6, 1e-3, 1.0, 1e3, 1e30), ("jacobian", "scale")):
        both = [scores(each, epsilon=epsilon, norm=norm) for each in (model, other)]
        refused = [one for one in both if isinstance(one, str)]
        problem = "has a conservation gap of" if dtype == torch.float64 else "needs a float64 model"
        assert all(problem in one for one in refused)
        if not refused:
            torch.testing.assert_close(*both, rtol=1e-2, atol=1e-2)
            found += 1
    assert (found > 0) == (dtype == torch.float64)
    with pytest.raises(InputError, match="epsilon: inf must be positive and finite"):
        LRP(model, rule="epsilon", epsilon=float("inf"))


@pytest.mark.parametrize("method", ["smoothgrad", "smoothed_attention"])
def test_noise_does_not_depend_on_the_default_dtype(method):
    model = tiny_model("marian")
    batch = random_batch(model, [(5, 4)])
    expected = make_method(model, method, smoothgrad=3)(**batch).source
    torch.set_default_dtype(torch.float64)
    try:
        found = make_method(model, method, smoothgrad=3)(**batch).source
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
def test_hooks_on_all_modules_are_seen(register):
    """They change what the model computes: gradients are those of the changed model, and LRP refuses."""
    model = tiny_model("marian")
    batch = random_batch(model, [(5, 4)])

    def scale(module, args, output=None):
        if isinstance(module, torch.nn.LayerNorm):
            return (args[0].tanh(),) if output is None else output * 1.5

    plain = make_method(model, "saliency")(**batch).source
    handle = register(scale)
    try:
        found = make_method(model, "saliency")(**batch).source
        expected = plain_saliency(model, batch)
        if register is register_module_forward_hook:
            with pytest.raises(InputError, match="it does something that LRP has no rule for"):
                LRP(model)(**batch)
    finally:
        handle.remove()
    assert (found - plain).abs().max() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


KINDS = {
    "calibrated": lambda dtype: tiny_calibrated("marian", dtype=dtype),
    "gated": lambda dtype: gated(GatedBartForConditionalGeneration, "bart", dtype),
    "t5": lambda dtype: tiny_model("t5", dtype),
}


def gated(kind, family, dtype=torch.float32, closed=0):
    """A gated copy of a tiny model; some first encoder heads are closed."""
    plain = tiny_model(family, dtype)
    config = kind.config_class(**plain.config.to_dict())
    config._attn_implementation = plain.config._attn_implementation
    model = kind(config)
    model.load_state_dict(plain.state_dict(), strict=False)
    layers = len(model.attentions()["encoder"])
    model.set_kept_heads({name: [[0, 1]] * layers for name in ("encoder", "decoder", "cross")})
    if closed:
        model.set_kept_heads({"encoder": [[1]] * layers})
    return model.to(dtype).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_smoothgrad_of_a_sentence_does_not_depend_on_its_batch(kind):
    """In float32 rounding reaches 1e-4 of the largest score, as noisy copies meet large gradients."""
    lengths = [(9, 8), (5, 4), (3, 6)]
    for dtype, bound in ((torch.float32, 1e-4), (torch.float64, 1e-11)):
        model = KINDS[kind](dtype)
        together = make_method(model, "smoothgrad", smoothgrad=5)(**(batch := random_batch(model, lengths)))
        for row, (source, target) in enumerate(lengths):
            cut = {"input_ids": source, "attention_mask": source, "labels": target}
            alone = make_method(model, "smoothgrad", smoothgrad=5)(
                **{name: batch[name][row : row + 1, :size] for name, size in cut.items()}
            ).source[0]
            error = (together.source[row, :target, :source] - alone).abs().max() / alone.abs().max()
            assert error < bound


def test_pruned_twins_differ_by_the_share_of_the_bias_only():
    """b / n of the output projection goes to each of its n inputs: a closed head has some, a pruned one is not there.

    Without that bias, and in T5, which has none, both are the same.
    """

    def difference(model):
        batch = random_batch(model, [(6, 5), (4, 3)])
        return (LRP(model)(**batch).source - LRP(model.prune())(**batch).source).abs().max().item()

    model = gated(GatedBartForConditionalGeneration, "bart", torch.float64, closed=1)
    assert difference(model) > 1e-3
    for attention in model.attentions()["encoder"]:
        attention.out_proj.bias.data.zero_()
    assert difference(model) < 1e-9
    assert difference(gated(GatedT5ForConditionalGeneration, "t5", torch.float64, closed=1)) < 1e-9
