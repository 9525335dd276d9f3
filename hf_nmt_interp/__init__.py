"""Neural machine translation that explains itself, for Hugging Face models.

>>> import hf_nmt_interp as hni
>>> hni.__version__.count(".")
2
"""

from importlib import import_module
from typing import Any

from hf_nmt_interp.auto import register_with_transformers
from hf_nmt_interp.version import __version__

# public name -> module that defines it; imported on first use, so that `import hf_nmt_interp` stays light
_HOME = {
    "AttributionResult": "attribution.result",
    "BagOfWordsConfig": "models.proxy",
    "BagOfWordsProxy": "models.proxy",
    "CalibratedBartConfig": "models.calibrated",
    "CalibratedBartForConditionalGeneration": "models.calibrated",
    "CalibratedM2M100Config": "models.calibrated",
    "CalibratedM2M100ForConditionalGeneration": "models.calibrated",
    "CalibratedMBartConfig": "models.calibrated",
    "CalibratedMBartForConditionalGeneration": "models.calibrated",
    "CalibratedMarianConfig": "models.calibrated",
    "CalibratedMarianMTModel": "models.calibrated",
    "CalibrationConfig": "training.calibration",
    "CalibrationReport": "analysis.calibration",
    "CalibrationTrainer": "training.calibration",
    "ContributionCallback": "training.callbacks",
    "ContributionStudy": "studies.contribution_study",
    "ConvSeq2SeqConfig": "models.conv",
    "ConvSeq2SeqForConditionalGeneration": "models.conv",
    "GatedBartConfig": "models.gated",
    "GatedBartForConditionalGeneration": "models.gated",
    "GatedM2M100Config": "models.gated",
    "GatedM2M100ForConditionalGeneration": "models.gated",
    "GatedMBartConfig": "models.gated",
    "GatedMBartForConditionalGeneration": "models.gated",
    "GatedMarianConfig": "models.gated",
    "GatedMarianMTModel": "models.gated",
    "GatedT5Config": "models.gated",
    "GatedT5ForConditionalGeneration": "models.gated",
    "HeadReport": "analysis.heads",
    "IBM1": "analysis.ibm1",
    "InputError": "errors",
    "L0Config": "training.l0",
    "L0Trainer": "training.l0",
    "LSTMAttentionConfig": "models.lstm",
    "LSTMAttentionForSequenceClassification": "models.lstm",
    "LuongSeq2SeqConfig": "models.lstm",
    "LuongSeq2SeqForConditionalGeneration": "models.lstm",
    "MRTConfig": "training.mrt",
    "MRTTrainer": "training.mrt",
    "WordDropout": "training.word_dropout",
    "align": "analysis.alignment",
    "align_generation": "analysis.online",
    "align_words": "analysis.alignment",
    "alignment_error_rate": "metrics.aer.rate",
    "attribute": "attribution.api",
    "best_attention": "studies.best_attention",
    "calibration_report": "analysis.calibration",
    "contribution_study": "studies.contribution_study",
    "dispersion": "analysis.alignment",
    "explain_generation": "attribution.api",
    "flip_influence": "analysis.flips",
    "head_report": "analysis.heads",
    "joint_links": "analysis.alignment",
    "lexical_probe": "analysis.probe",
    "load_calibrated": "training.calibration",
    "load_demo": "models.demo",
    "load_gated": "training.l0",
    "push_folder": "hub",
    "push_to_hub": "hub",
    "soft_alignment": "analysis.alignment",
    "strip_markup": "analysis.markup",
    "symmetrize": "analysis.symmetrization",
    "to_dataset": "report.bridges",
    "to_inseq": "report.bridges",
    "to_pandas": "report.bridges",
    "transfer_markup": "analysis.markup",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hf_nmt_interp' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"hf_nmt_interp.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_with_transformers()
