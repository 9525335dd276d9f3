"""Random combinations of model, method, wrapper, dtype, batch and generation settings, against plain references.

Saliency is compared with one backward pass of torch a step, every method with the sentence alone, a translation with
`generate()` itself. A few combinations in the quick run, 2,000 in the slow one; each is made from its seed.
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
from tests.tiny_models import FAMILIES, RECURRENT, random_batch, tiny_model

KINDS = {name: partial(tiny_model, name) for name in (*FAMILIES, *RECURRENT)}
KINDS |= {f"calibrated {name}": partial(tiny_calibrated, name) for name in CLASSES}
DTYPES = {torch.float64: 1e-9, torch.float32: 1e-4}  # and how near to a reference, relative to the largest score
LENGTHS = [(1, 1), (1, 4), (5, 1), (3, 6), (7, 4), (9, 9)]
SETTINGS = {"smoothgrad": {"smoothgrad": 2}, "smoothed_attention": {"smoothgrad": 2}}
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


WRAPPERS = {"plain": lambda model: None, "hook": hooked, "mask": masked, "frozen": frozen, "training": training}


@cache
def built(kind, dtype):
    return KINDS[kind](dtype=dtype)


def near(found, expected, bound):
    scale = max(expected.abs().max().item(), 1e-3)
    return found.shape == expected.shape and (found - expected).abs().max().item() <= bound * scale


def attack(seed):
    """What is wrong with one combination; None if it holds or is refused."""
    draw = random.Random(seed)
    kind, dtype, wrapper = draw.choice(list(KINDS)), draw.choice(list(DTYPES)), draw.choice(list(WRAPPERS))
    name = draw.choice(list(METHODS))
    torch.manual_seed(seed)
    model = copy.deepcopy(built(kind, dtype))
    WRAPPERS[wrapper](model)
    lengths = [draw.choice(LENGTHS) for _ in range(draw.randint(1, 4))]
    batch, what = random_batch(model, lengths, seed), f"seed {seed}: {kind}, {dtype}, {wrapper}, {name}, {lengths}"
    mode = model.training
    try:
        method = make_method(model, name, **SETTINGS.get(name, {}))
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
