"""Neural machine translation that explains itself, for Hugging Face models.

>>> import hf_nmt_interp as hni
>>> hni.__version__.count(".")
2
"""

from importlib import import_module
from typing import Any

from hf_nmt_interp.auto import register_with_transformers
from hf_nmt_interp.version import __version__

# module -> public names that it defines; imported on first use, so that `import hf_nmt_interp` stays light
_NAMES = {
    "analysis.alignment": "add_links align align_words dispersion joint_links soft_alignment",
    "analysis.calibration": "CalibrationReport calibration_report",
    "analysis.flips": "flip_influence",
    "analysis.heads": "HeadReport head_report",
    "analysis.ibm1": "IBM1",
    "analysis.markup": "strip_markup transfer_markup",
    "analysis.online": "align_generation",
    "analysis.probe": "lexical_probe",
    "analysis.symmetrization": "symmetrize",
    "attribution.api": "attribute explain_generation",
    "attribution.result": "AttributionResult",
    "decoding.translators": "load",
    "errors": "InputError",
    "hub": "push_folder push_to_hub",
    "metrics.aer.rate": "alignment_error_rate",
    "models.calibrated": (
        "CalibratedBartConfig CalibratedBartForConditionalGeneration CalibratedM2M100Config "
        "CalibratedM2M100ForConditionalGeneration CalibratedMBartConfig "
        "CalibratedMBartForConditionalGeneration CalibratedMarianConfig CalibratedMarianMTModel"
    ),
    "models.conv": "ConvSeq2SeqConfig ConvSeq2SeqForConditionalGeneration",
    "models.demo": "load_demo",
    "models.gated": (
        "GatedBartConfig GatedBartForConditionalGeneration GatedM2M100Config "
        "GatedM2M100ForConditionalGeneration GatedMBartConfig GatedMBartForConditionalGeneration "
        "GatedMarianConfig GatedMarianMTModel GatedT5Config GatedT5ForConditionalGeneration"
    ),
    "models.lstm": (
        "LSTMAttentionConfig LSTMAttentionForSequenceClassification LuongSeq2SeqConfig "
        "LuongSeq2SeqForConditionalGeneration"
    ),
    "models.proxy": "BagOfWordsConfig BagOfWordsProxy",
    "report.bridges": "to_dataset to_inseq to_pandas",
    "studies.best_attention": "best_attention",
    "studies.contribution_study": "ContributionStudy contribution_study",
    "training.calibration": "CalibrationConfig CalibrationTrainer load_calibrated",
    "training.callbacks": "ContributionCallback",
    "training.l0": "L0Config L0Trainer load_gated",
    "training.mrt": "MRTConfig MRTTrainer",
    "training.word_dropout": "WordDropout",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hf_nmt_interp' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"hf_nmt_interp.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_with_transformers()
