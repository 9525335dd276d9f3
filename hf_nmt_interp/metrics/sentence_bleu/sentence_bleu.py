"""Mean of smoothed sentence BLEU, from 0 to 100, equal to sacrebleu's sentence_bleu. Higher is better."""

import datasets
import evaluate

from hf_nmt_interp.metrics import metric_info
from hf_nmt_interp.metrics.sentence_bleu.score import SentenceBLEU

_INPUTS = """
Args:
    predictions: translations.
    references: one reference for each.
    tokenize: name of a sacrebleu tokenizer, 13a by default.
    smoothing: exp (default), floor, add-k or none.

Returns:
    sentence_bleu (the mean) and scores (of each sentence).

Examples:
    >>> bleu = evaluate.load("path/to/sentence_bleu")
    >>> bleu.compute(predictions=["the cat sat here"], references=["the cat sat here"])["sentence_bleu"]
    100.0
"""

_CITATION = """@inproceedings{chen2014systematic, title={A Systematic Comparison of Smoothing Techniques for
Sentence-Level {BLEU}}, author={Chen, Boxing and Cherry, Colin}, booktitle={WMT}, year={2014}}
"""


class MeanSentenceBLEU(evaluate.Metric):
    """The metric."""

    primary, greater_is_better = SentenceBLEU.primary, SentenceBLEU.greater_is_better

    def _info(self) -> evaluate.MetricInfo:
        return metric_info(datasets.Value("string"), __doc__, _INPUTS, _CITATION)

    def _compute(self, predictions, references, tokenize: str = "13a", smoothing: str = "exp") -> dict:
        score = SentenceBLEU(tokenize, smoothing)
        scores = [score([p], r)[0] for p, r in zip(predictions, references, strict=True)]
        return {"sentence_bleu": sum(scores) / len(scores), "scores": scores}
