"""The alignment head against its literal twin."""

import torch

from hf_nmt_interp.models.aligned import AlignmentHead
from tests.reference.alignment_head import soft_links


def test_the_head_is_its_twin_and_padding_is_hidden():
    torch.manual_seed(0)
    head = AlignmentHead(6, 3).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    states, memory = torch.randn(2, 4, 6).double(), torch.randn(2, 5, 6).double()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    found = head(states, memory, mask)
    parts = {name: value.tolist() for name, value in head.state_dict().items()}
    for row, size in enumerate((5, 3)):
        expected = soft_links(states[row].tolist(), memory[row, :size].tolist(), parts, heads=3)
        # scores are in float32, whatever the model's precision
        torch.testing.assert_close(found[row, :, :size].double(), torch.tensor(expected).double(), atol=1e-6, rtol=0)
        assert not found[row, :, size:].any()
