"""Agreement, its random baseline, xi and Kendall's tau against literal twins and by hand.

Also for metrics/agreement/agreement.py and metrics/agreement/score.py.
"""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_nmt_interp.analysis.distributions import kendall_tau
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics import agreement as folder
from hf_nmt_interp.metrics.agreement.score import agreement, contextualized_agreement, in_top, random_agreement
from tests.reference import agreement as twin
from tests.reference.calibration import kendall_tau as kendall_tau_b

scores = st.integers(1, 45).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-3, 3).map(float), min_size=n, max_size=n)] * 2)  # many ties
)


def padded(rows: list[list[float]], value: float = 7.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [N, L] with high scores as padding, and which are kept."""
    width = max(map(len, rows))
    kept = torch.tensor([[i < len(row) for i in range(width)] for row in rows])
    filled = [row + [value] * (width - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.float64), kept


@given(st.lists(scores, min_size=1, max_size=4), st.sampled_from(["0.05", "0.1", "0.5", "1"]))
def test_equals_its_twin_whatever_the_batch(pairs, top):
    us, vs = (list(side) for side in zip(*pairs, strict=True))
    (u, kept), (v, _) = padded(us), padded(vs, math.nan)
    found = agreement(u, v, kept, top=float(top))
    baseline = random_agreement(kept, v=v, top=float(top))
    taus = {"a": twin.kendall_tau_a, "b": kendall_tau_b}
    for row, (one, other) in enumerate(pairs):
        assert found[row] == twin.agreement(one, other, top)
        assert baseline[row] == pytest.approx(twin.random_agreement(other, top), abs=1e-12)
        for variant, tau in taus.items():
            tensors = [torch.tensor(z, dtype=torch.float64) for z in (one, other)]
            value = kendall_tau(*tensors, torch.ones(len(one)).bool(), variant).item()
            assert value == pytest.approx(tau(one, other), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("length", [1, 2, 14, 19, 20, 21, 40, 41, 60, 140, 141, 180])
def test_the_baseline_is_exact_where_five_percent_is_a_whole_number(length):
    kept = torch.ones(length, dtype=torch.bool)
    assert random_agreement(kept) == twin.random_agreement([float(i) for i in range(length)])
    assert random_agreement(kept) == math.ceil(length / 20) / length


def test_the_baseline_is_the_mean_over_random_scores():
    v = torch.randn(4000, 14, generator=torch.Generator().manual_seed(0))
    u = torch.randn(4000, 14, generator=torch.Generator().manual_seed(1))
    expected = random_agreement(torch.ones(14).bool()).item()
    assert agreement(u, v).mean() == pytest.approx(expected, abs=4 * math.sqrt(expected / 4000))


def test_ties_by_hand():
    v = torch.tensor([3.0, 1.0, 3.0, 2.0])
    # equals of v do not count against a position: both 3.0 are on top, nobody else of four
    assert in_top(v).tolist() == [True, False, True, False]
    assert agreement(torch.tensor([0.0, 0.0, 1.0, 0.0]), v) == 1
    assert agreement(torch.tensor([0.0, 0.0, 0.0, 1.0]), v) == 0
    assert random_agreement(torch.ones(4).bool(), v=v) == 0.5
    assert random_agreement(torch.ones(4).bool()) == 0.25
    # the highest of u is not unique: positions 1 and 2
    u = torch.tensor([0.0, 1.0, 1.0, 0.0])
    assert agreement(u, v) == 0
    assert agreement(u, v, ties="mean") == 0.5
    flat = torch.zeros(4)
    assert agreement(flat, v, ties="mean") == random_agreement(torch.ones(4).bool(), v=v)
    assert agreement(u, flat) == 1  # a flat v has nothing above anything


def test_it_is_not_symmetric():
    u, v = torch.tensor([2.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 3.0])
    assert agreement(u, v, ties="mean", top=0.5) == 0.5
    assert agreement(v, u, top=0.5) == 0


def test_rows_without_positions_are_nan():
    kept = torch.tensor([[True, True], [False, False]])
    u = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert agreement(u, u, kept)[0] == 1
    assert agreement(u, u, kept)[1].isnan()
    assert random_agreement(kept)[1].isnan()


steps = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1)


@given(steps, st.integers(0, 5))
def test_xi_equals_its_twin(curve, value):
    agreements, performances = ({step: pair[i] for step, pair in curve.items()} for i in (0, 1))
    found = contextualized_agreement(value, agreements, performances)
    assert found.performance == twin.contextualized(value, agreements, performances)
    assert (found.step is None) == (max(agreements.values()) <= value)


def test_kendall_by_hand():
    x, y, kept = torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 2, 2, 0]), torch.ones(4).bool()
    # pairs of y: 2 concordant, 3 discordant, 1 tied of 6
    assert kendall_tau(x, y, kept, "a") == pytest.approx(-1 / 6)
    assert kendall_tau(x, y, kept, "b") == pytest.approx(-1 / math.sqrt(6 * 5))


def test_wrong_input_is_named():
    u, kept = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(InputError, match=r"u \[2, 3\], v \[2, 2\]: all must have the same shape"):
        agreement(u, u[:, :2])
    with pytest.raises(InputError, match=r"u: has NaN at kept positions"):
        agreement(u * math.nan, u)
    with pytest.raises(InputError, match=r"ties: 'last' is not one of first, mean"):
        agreement(u, u, ties="last")
    with pytest.raises(InputError, match=r"top: 5 must be above 0 and at most 1"):
        agreement(u, u, top=5)
    with pytest.raises(InputError, match=r"variant: 'c' is not one of a, b"):
        kendall_tau(u, u, kept, "c")
    with pytest.raises(InputError, match=r"have the steps \[0\] and \[1\]; give both for the same steps"):
        contextualized_agreement(0.1, {0: 0.1}, {1: 0.1})


def test_evaluate_loads_it_from_its_folder(tmp_path, monkeypatch):
    evaluate = pytest.importorskip("evaluate")
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)
    metric = evaluate.load(str(Path(folder.__file__).parent), cache_dir=str(tmp_path))
    rows = {"predictions": [[0.1, 0.7, 0.2], [0.9, 0.1]], "references": [[5.0, 4.0, 1.0], [2.0, 1.0]]}
    found = metric.compute(**rows)
    assert found[metric.primary] == found["agreement"] == 0.5
    assert found["random_agreement"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert found["kendall_tau"] == pytest.approx((-1 / 3 + 1) / 2)
    more = metric.compute(**rows, agreements={0: 0.1, 50: 0.6}, performances={0: 0.01, 50: 0.2})
    assert (more["contextualized_agreement"], more["step"]) == (0.2, 50)
    with pytest.raises(
        InputError, match=r"predictions\[0\]: has 1 positions, but references\[0\] has 2; give the same positions"
    ):
        metric.compute(predictions=[[1.0]], references=[[1.0, 2.0]])
