"""What benchmarks share."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """One thread, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
