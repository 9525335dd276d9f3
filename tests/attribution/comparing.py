"""How scores are compared with those of a twin."""

import torch

LENGTHS = [(5, 4), (3, 6), (2, 1)]
KINDS = {"product": "psi", "abs_product": "abs_psi", "li2016": "li2016"}


def pair_of(batch, row, lengths=LENGTHS):
    """Source and target ids of one sentence pair, without padding."""
    S, T = lengths[row]
    return batch["input_ids"][row, :S], batch["labels"][row, :T]


def assert_close(found, expected, tolerance=1e-5):
    """Within the tolerance, of the largest score where that is above 1."""
    largest = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found, expected, atol=tolerance * largest, rtol=0)


def assert_is(scores, row, expected, tolerance):
    """One sentence of a batch is what is expected, and 0 outside."""
    T, S = expected["source"].shape
    for name, shape in (("source", (T, S)), ("prefix", (T, T)), ("start", (T,))):
        found = getattr(scores, name)[row].double().clone()
        inside = tuple(slice(n) for n in shape)
        assert_close(found[inside], expected[name], tolerance)
        found[inside] = 0
        assert not found.any(), name


def assert_relevance(scores, row: int, expected: dict, tolerance: float) -> None:
    """Compare relative to the step's largest value, or absolutely where that is below 1."""
    T, S = expected["source"].shape
    largest = torch.cat([expected["source"], expected["prefix"], expected["start"][:, None]], 1).abs().amax(1)
    for name, actual in {
        "source": scores.source[row, :T, :S],
        "prefix": scores.prefix[row, :T, :T],
        "start": scores.start[row, :T, None],
    }.items():
        error = (actual - expected[name].reshape(actual.shape)).abs() / largest.clamp(min=1)[:, None]
        assert error.max() <= tolerance, (name, error.max())
