"""Share of output words whose highest position in u is among the 5 % highest of v, with its exact value for random
positions, and Kendall's tau of u and v. Higher is better.
"""

from typing import Any

import datasets
import evaluate
import torch

from hf_nmt_interp.analysis.distributions import kendall_tau
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics import metric_info
from hf_nmt_interp.metrics.agreement import score
from hf_nmt_interp.metrics.agreement.score import TOP, agreement, contextualized_agreement, random_agreement

_INPUTS = """
Args:
    predictions: u, the scores of all source positions for each output word.
    references: v, in the same format.
    top: share of the positions that counts as top, 0.05.
    ties: with several highest positions of u, use the "first", or the "mean" over them.
    variant: of Kendall's tau, "b" (ties in u or v are not counted) or "a".
    agreements: optional, {step: A} of a second training run's attention with the first run's final one.
    performances: {step: performance} of the second run; needed with agreements.

Returns:
    agreement; random_agreement; kendall_tau, over words where it is defined; with agreements and performances also
    contextualized_agreement and its step (None: the second run never agrees as well, and it is the last performance).

Examples:
    >>> metric = evaluate.load("path/to/agreement")
    >>> metric.compute(predictions=[[0.1, 0.7, 0.2], [0.9, 0.1]], references=[[5.0, 4.0, 1.0], [2.0, 1.0]])
    {'agreement': 0.5, 'random_agreement': 0.41666666666666663, 'kendall_tau': 0.3333333333333333}
"""

_CITATION = """@inproceedings{snell2021approximating, title={Approximating How Single Head Attention Learns},
author={Snell, Charlie and Zhong, Ruiqi and Klein, Dan and Steinhardt, Jacob}, year={2021}}
"""


class Agreement(evaluate.Metric):
    """The metric."""

    primary, greater_is_better = score.primary, score.greater_is_better

    def _info(self) -> evaluate.MetricInfo:
        return metric_info(datasets.Sequence(datasets.Value("float64")), __doc__, _INPUTS, _CITATION)

    def _compute(
        self,
        predictions: Any,
        references: Any,
        top: float = TOP,
        ties: str = "first",
        variant: str = "b",
        agreements: dict[int, float] | None = None,
        performances: dict[int, float] | None = None,
    ) -> dict[str, Any]:
        for n, (u, v) in enumerate(zip(predictions, references, strict=True)):
            if len(u) != len(v) or not len(u):
                problem = f"has {len(u)} positions, but references[{n}] has {len(v)}"
                raise InputError("predictions", None, problem, "give the same positions, at least one", row=n)
        u, v = (_padded(rows) for rows in (predictions, references))
        kept = _padded([[1.0] * len(row) for row in predictions]).bool()
        found: dict[str, Any] = {
            "agreement": agreement(u, v, kept, top=top, ties=ties).mean().item(),
            "random_agreement": random_agreement(kept, top=top).mean().item(),
            "kendall_tau": kendall_tau(u, v, kept, variant).nanmean().item(),
        }
        if agreements is not None or performances is not None:
            xi = contextualized_agreement(found["agreement"], agreements or {}, performances or {})
            found |= {"contextualized_agreement": xi.performance, "step": xi.step}
        return found


def _padded(rows: Any) -> torch.Tensor:
    """[N, L], 0 after the end of a row."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True)
