"""Random combinations of model, method, settings, wrapper, dtype, batch and generation settings.

Saliency is compared with one backward pass of torch a step, every method with the sentence alone (in half precision
with the float32 model), a translation with `generate()` itself. A few combinations in the quick run, 2,000 in the
slow one; each is made from its seed.
"""

import copy
import random
from functools import cache, partial

import pytest
import torch
from torch.nn.utils import prune

from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.decoding.batch import Translation, collate
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.errors import InputError
from tests.calibrated_models import CLASSES, tiny_calibrated
from tests.plain_autograd import plain_saliency
from tests.robustness.test_numerics import HALF, HALF_OF_GATED_T5
from tests.tiny_models import FAMILIES, RECURRENT, random_batch, tiny_model

KINDS = {name: partial(tiny_model, name) for name in (*FAMILIES, *RECURRENT)}
KINDS |= {f"calibrated {name}": partial(tiny_calibrated, name) for name in CLASSES}
DTYPES = {torch.float64: 1e-9, torch.float32: 1e-4}  # and how near to a reference, relative to the largest score
LENGTHS = [(1, 1), (1, 4), (5, 1), (3, 6), (7, 4), (9, 9)]
HALVES = (torch.float16, torch.bfloat16)
MEASURED = [(5, 4), (3, 6), (7, 7)]  # lengths for which their bounds were measured
# settings to draw from; the first ones are the defaults
SETTINGS = {
    "lrp": [{}, {"logit": "label"}, {"attention": "values"}, {"norm": "scale"}, {"alpha": 2.0, "beta": -1.0}]
    + [{"rule": rule} for rule in ("attnlrp", "cp_lrp", "gamma", "epsilon")]
    + [{"rule": "ratio", "norm": "scale"}, {"max_memory": 5000}],
    "smoothgrad": [{"smoothgrad": 2}, {"smoothgrad": 2, "sigma": 0.3}, {"smoothgrad": 3, "seed": 5}],
    "smoothed_attention": [{"smoothgrad": 2}, {"smoothgrad": 2, "sigma": 0.3}],
    "attention": [{}, {"layer": 0}, {"layer": 0, "head": 0}],
    "shifted_attention": [{}, {"layer": 0}, {"layer": 0, "head": 0}],
}
CALLS = [{}, {"num_beams": 3}, {"num_beams": 2, "length_penalty": 0.5}, {"max_length": 5}, {"num_return_sequences": 1}]


def hooked(model):
    norm = next(module for module in model.modules() if isinstance(module, torch.nn.Linear))
    norm.register_forward_hook(lambda module, args, output: output * 1.25)


def masked(model):
    linear = next(module for module in model.get_encoder().modules() if isinstance(module, torch.nn.Linear))
    prune.random_unstructured(linear, "weight", 0.3)


def frozen(model):
    model.requires_grad_(False)


def training(model):
    model.train()


def compiled(model):
    return torch.compile(model, backend="eager")


def compiled_in_place(model):
    model.compile(backend="eager")


WRAPPERS = {"plain": lambda model: None, "hook": hooked, "mask": masked, "frozen": frozen, "training": training}
WRAPPERS |= {"compiled": compiled, "compiled in place": compiled_in_place}


@cache
def built(kind, dtype):
    return KINDS[kind](dtype=dtype)


def near(found, expected, bound):
    scale = max(expected.abs().max().item(), 1e-3)
    return found.shape == expected.shape and (found - expected).abs().max().item() <= bound * scale


def attack(seed):
    """What is wrong with one combination; None if it holds or is refused."""
    draw = random.Random(seed)
    kind, wrapper = draw.choice(list(KINDS)), draw.choice(list(WRAPPERS))
    dtype, name = draw.choice([*DTYPES, *HALVES]), draw.choice(list(METHODS))
    settings = draw.choice(SETTINGS.get(name, [{}]))
    torch.manual_seed(seed)
    model = copy.deepcopy(built(kind, torch.float32 if dtype in HALVES else dtype))
    wrapped = WRAPPERS[wrapper](model)
    model = model if wrapped is None else wrapped
    lengths = [draw.choice(LENGTHS) for _ in range(draw.randint(1, 4))] if dtype in DTYPES else MEASURED
    batch, what = (
        random_batch(model, lengths, seed),
        f"seed {seed}: {kind}, {dtype}, {wrapper}, {name}, {settings}, {lengths}",
    )
    if dtype in HALVES:
        wrong = in_half(model, dtype, batch, kind, name, settings)
        return f"{what}: {wrong}" if wrong else None
    mode = model.training
    try:
        method = make_method(model, name, **settings)
        scores = method(**batch)
    except InputError:
        return None
    bound = DTYPES[dtype]
    row, (source, target) = draw.choice(list(enumerate(lengths)))
    cut = {"input_ids": source, "attention_mask": source, "labels": target}
    alone = method(**{part: batch[part][row : row + 1, :size] for part, size in cut.items()})
    for part, size in (("source", source), ("prefix", target)):
        if not near(getattr(scores, part)[row, :target, :size], getattr(alone, part)[0], bound):
            return f"{what}: row {row} differs from the sentence alone in {part}"
    if name == "saliency":
        model.eval()
        if not near(scores.source, plain_saliency(model, batch), bound):
            return f"{what}: differs from autograd"
        model.train(mode)
    if model.training != mode:
        return f"{what}: left in another mode"
    return f"{what}: {wrong}" if (wrong := generation(model, method, batch, draw.choice(CALLS))) else None


def in_half(model, dtype, batch, kind, name, settings):
    """Whether a model in half precision is explained as in float32, within the bounds of test_numerics.py."""
    bounds = (HALF_OF_GATED_T5 if kind == "t5_gated" else HALF)[dtype]
    bound = bounds.get(name, bounds["attention"] if name.endswith("attention") else None)
    try:
        expected = make_method(model, name, **settings)(**batch).source
        found = make_method(model.to(dtype), name, **settings)(**batch).source.float()
    except InputError:
        return None
    if not found.isfinite().all():
        return "not finite"
    # a ReLU that is switched changes gradients by more
    is_measured = bound is not None and name not in ("saliency", "smoothgrad")
    if is_measured and settings == SETTINGS.get(name, [{}])[0]:
        error = ((found - expected).norm() / expected.norm()).item()
        return f"differs from float32 by {error:.2g}" if error > bound else None
    return None


def generation(model, method, batch, call):
    """Whether what is recorded of `generate()` is what it returns without being recorded."""
    model.eval()
    inputs = {part: batch[part] for part in ("input_ids", "attention_mask")}
    call = {"max_length": 8, "do_sample": False} | call
    expected = model.generate(**inputs, **call)
    with record_generation(model) as caught:
        if not torch.equal(model.generate(**inputs, **call), expected):
            return f"generate() gives something else while it is recorded, {call}"
    for row, translation in enumerate(caught):
        if expected[row, 1 : 1 + len(translation.target_ids)].tolist() != translation.target_ids:
            return f"translation {row} is not what generate() returned, {call}"
    again = [Translation(one.source_ids, one.target_ids, one.start_id) for one in caught]
    if not method(**collate(again, model.config.pad_token_id)).source.isfinite().all():
        return f"what was generated is not explained, {call}"
    return None


def test_random_combinations():
    assert [wrong for seed in range(25) if (wrong := attack(seed))] == []


@pytest.mark.slow
def test_two_thousand_random_combinations():
    assert [wrong for seed in range(2000) if (wrong := attack(seed))] == []
