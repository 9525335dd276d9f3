"""What an alignment head costs beyond the translator: decoding and aligning, as ratios of one run."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from hf_nmt_interp.attribution.alignment_head import AlignmentHeadMethod
from hf_nmt_interp.decoding.batch import make_batch
from tests.aligned_models import aligned_copy
from tests.benchmarks.test_calibration_overhead import HEADS, IDS, SIZES, compare

pytestmark = pytest.mark.usefixtures("one_thread")


def translator():
    torch.manual_seed(0)
    return aligned_copy(MarianMTModel(MarianConfig(**SIZES, **HEADS, **IDS)).eval())


@pytest.mark.benchmark
def test_decoding_with_alignment_costs_at_most_1_05_decoding():
    model = translator()
    inputs = {
        "input_ids": torch.randint(1, 7999, (16, 12)),
        "max_new_tokens": 12,
        "min_new_tokens": 12,
        "num_beams": 4,
    }
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    ratio, spread = compare(
        lambda: model.generate(**inputs), lambda: model.generate(**inputs, output_alignment=True), turns=9
    )
    print(f"\ndecoding with alignment: {ratio:.3f} times decoding ({spread})")
    assert ratio <= 1.05


@pytest.mark.benchmark
def test_aligning_costs_at_most_1_2_forward_passes():
    model = translator()
    ids, labels = torch.randint(1, 7999, (32, 12)), torch.randint(1, 7999, (32, 12))
    batch = make_batch(model, ids, labels, torch.ones_like(ids))
    method = AlignmentHeadMethod(model)

    @torch.no_grad()
    def forward() -> None:
        model(**batch.inputs())

    ratio, spread = compare(forward, lambda: method.soft_links(batch), turns=15)
    print(f"\nlinks: {ratio:.3f} forward passes ({spread})")
    assert ratio <= 1.2
