"""Peak memory of the methods that have `max_memory`, against that budget and against a sentence's forward pass."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.benchmark
BUDGET = 32  # MiB
MESSAGES = {"LRP": 16}  # MiB of messages inside an operation, which do not depend on the budget
METHODS = {
    "LRP": "LRP(model, max_memory={})",
    "ALTI": "ALTI(model, max_memory={})",
    "value zeroing": "ValueZeroing(model, max_memory={})",
    "saliency": "Saliency(model, max_memory={})",
    "integrated gradients": "IntegratedGradients(model, steps=4, max_memory={})",
    "occlusion": "Occlusion(model, max_memory={})",
}
SMALL = """
from tests.tiny_models import tiny_model
heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
model = tiny_model("marian", d_model=64, encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=2000, **heads)
"""
BASE = """
from tests.benchmarks.base_size import base_model
model = base_model()
"""
PROGRAM = """
import ctypes
import gc
from hf_nmt_interp.attribution import ALTI, LRP, IntegratedGradients, Occlusion, Saliency, ValueZeroing
from hf_nmt_interp.attribution.recording import Recording
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.models.families import any_parts
from hf_nmt_interp.studies.methods_compared import measured
from tests.tiny_models import random_batch
torch.set_num_threads(1)
method = {method}
method(**random_batch(model, [(3, 3)]))

def needed(run):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else what is left from before would be used again
    return measured(run, "cpu", 1)[1]["MB"]

batch = random_batch(model, [({tokens}, {tokens})] * {sentences})
one = make_batch(model, **{{name: ids[:1] for name, ids in batch.items()}})
floor = needed(lambda: Recording(model, any_parts(model), one, "").logits)
print(floor, needed(lambda: method(**batch)))
"""


def peak(name: str, model: str, tokens: int, sentences: int, budget: int = BUDGET) -> tuple[float, float]:
    """MiB beyond those already in use, for one recorded sentence and for the method."""
    given = {"method": METHODS[name].format(budget * 2**20), "tokens": tokens, "sentences": sentences}
    program = "import torch\n" + model + PROGRAM.format(**given)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    floor, found = map(float, done.stdout.split())
    size = f"{sentences} x {tokens} tokens{' at base size' * (model == BASE)}"
    print(f"\n{name}, {size}, budget {budget} MiB: {found:.0f} MiB; one recorded sentence: {floor:.0f} MiB")
    return floor, found


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_stays_within_the_budget(name):
    """16 sentences of 60 tokens, of which a few fit into half of the budget."""
    _, found = peak(name, SMALL, 60, 16)
    assert found < BUDGET + MESSAGES.get(name, 0)


def test_saliency_by_autograd_stays_within_the_budget():
    """The same for a model with a hook, whose gradients are not propagated by the library."""
    _, found = peak("saliency", SMALL + "model.register_forward_hook(lambda *_: None)\n", 60, 16)
    assert found < BUDGET


@pytest.mark.parametrize(("name", "tokens"), [("LRP", 30), ("ALTI", 80), ("value zeroing", 40), ("saliency", 30)])
def test_a_sentence_above_the_budget_needs_little_more_than_its_forward_pass(name, tokens):
    """At base size, a recorded sentence alone takes about the budget: that is the minimum."""
    floor, found = peak(name, BASE, tokens, 1)
    assert found < floor + BUDGET + MESSAGES.get(name, 0)
