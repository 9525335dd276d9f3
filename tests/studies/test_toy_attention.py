"""Parts of the toy studies: first weights, log-odds against the twin, summaries by hand."""

import pytest
import torch

from hf_nmt_interp.studies import toy_attention as study
from tests.reference import toy_attention as reference


def test_weights_of_models_differ_only_as_their_seeds_do():
    def weights(*member):
        return dict(study.new_translator(5, 4, study.Member(*member)).named_parameters())

    one, other_heads, other_model = weights(0, (1,), 0), weights(0, (2, 1), 3), weights(1, (1,), 0)
    head = "attention.weight.weight"
    assert [
        name
        for name in one
        if not torch.equal(one[name], other_heads[name].reshape(-1)[: one[name].numel()].view_as(one[name]))
    ] == [head]
    assert torch.equal(other_heads[head][4:], one[head])
    assert [name for name in one if torch.equal(one[name], other_model[name])] == [head]
    assert one[head].abs().max() <= 0.5  # 4 ** -0.5, as nn.Linear draws
    assert one["encoder.embed_tokens.weight"].abs().max() > 0.5  # normal


def test_gammas_against_the_twin():
    gamma = torch.randn(2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    place = torch.tensor([-1, 0, 3, 4, 5])  # the last one's next word is the last of all
    found = study.gammas(gamma, place)
    for model in range(2):
        expected = reference.gammas(gamma[model].tolist(), place.tolist())
        assert [found[name][model].item() for name in study.GAMMAS] == pytest.approx(expected)
    row = [0.0, 5.0, 3.0, 1.0, 1.0]  # the keyword is the second of five words
    assert reference.gammas([row, row], [1, -1]) == (5.0, 3.0, 2.0, 1.0)


def test_summary_worked_by_hand():
    values = {0: [0.0, 0.96, 0.97], 1: [0.1, 0.5, 0.59], 2: [0.0, 0.95, 0.9], 3: [0.2, 0.3, 0.95]}
    rows = [
        {"curve": "a", "seed": seed, "step": 10 * i, "value": value}
        for seed, run in values.items()
        for i, value in enumerate(run)
    ]
    (found,) = study.summary(rows)
    assert (found["seeds"], found["learned"], found["failed"]) == (4, 2, 1)
    assert found["steps to 95 %"] == "10"  # 10, 10, 20
    assert (found["accuracy"], found["from"], found["to"]) == ("85.2%", "59.0%", "97.0%")
