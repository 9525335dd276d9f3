"""Alignment error rate of word alignments, 1 - (|A and S| + |A and P|) / (|A| + |S|), over the corpus, with precision
over the possible and recall over the sure gold links. Lower is better.
"""

import datasets
import evaluate

from hf_nmt_interp.metrics import metric_info
from hf_nmt_interp.metrics.aer import rate
from hf_nmt_interp.text.pharaoh import parse_links

_INPUTS = """
Args:
    predictions: links of each sentence pair as a Pharaoh line, e.g. `0-0 1-2`.
    references: gold links in the same format; `1p2` or `1?2` is a possible link.
    base: number of the first word in the references, 0 (default) or 1.
    predictions_base: the same for the predictions.

Returns:
    aer, precision, recall.

Examples:
    >>> aer = evaluate.load("path/to/aer")
    >>> aer.compute(predictions=["0-0 1-1"], references=["0-0 2-1 1p1"])
    {'aer': 0.25, 'precision': 1.0, 'recall': 0.5}
"""

_CITATION = """@article{och2003systematic, title={A Systematic Comparison of Various Statistical Alignment Models},
author={Och, Franz Josef and Ney, Hermann}, journal={Computational Linguistics}, volume={29}, number={1}, year={2003}}
"""


class AlignmentErrorRate(evaluate.Metric):
    """The metric."""

    primary, greater_is_better = rate.primary, rate.greater_is_better

    def _info(self) -> evaluate.MetricInfo:
        return metric_info(datasets.Value("string"), __doc__, _INPUTS, _CITATION)

    def _compute(self, predictions, references, base: int = 0, predictions_base: int = 0) -> dict[str, float]:
        rows = enumerate(predictions)
        links = [parse_links(line, predictions_base, f"predictions[{n}]")[1] for n, line in rows]
        gold = [parse_links(line, base, f"references[{n}]") for n, line in enumerate(references)]
        return rate.alignment_error_rate(links, [sure for sure, _ in gold], [possible for _, possible in gold])
