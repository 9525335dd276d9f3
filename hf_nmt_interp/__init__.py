"""Neural machine translation that explains itself, for Hugging Face models.

>>> import hf_nmt_interp as hni
>>> hni.__version__.count(".")
2
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_nmt_interp.auto import register_with_transformers
from hf_nmt_interp.version import __version__

if TYPE_CHECKING:  # the public names: editors read them here, and `__getattr__` imports each on first use
    from hf_nmt_interp.analysis.alignment import add_links as add_links
    from hf_nmt_interp.analysis.alignment import align as align
    from hf_nmt_interp.analysis.alignment import align_words as align_words
    from hf_nmt_interp.analysis.alignment import dispersion as dispersion
    from hf_nmt_interp.analysis.alignment import joint_links as joint_links
    from hf_nmt_interp.analysis.alignment import soft_alignment as soft_alignment
    from hf_nmt_interp.analysis.calibration import CalibrationReport as CalibrationReport
    from hf_nmt_interp.analysis.calibration import calibration_report as calibration_report
    from hf_nmt_interp.analysis.checking import Check as Check
    from hf_nmt_interp.analysis.checking import check as check
    from hf_nmt_interp.analysis.flips import flip_influence as flip_influence
    from hf_nmt_interp.analysis.heads import HeadReport as HeadReport
    from hf_nmt_interp.analysis.heads import head_report as head_report
    from hf_nmt_interp.analysis.ibm1 import IBM1 as IBM1
    from hf_nmt_interp.analysis.markup import strip_markup as strip_markup
    from hf_nmt_interp.analysis.markup import transfer_markup as transfer_markup
    from hf_nmt_interp.analysis.online import align_generation as align_generation
    from hf_nmt_interp.analysis.probe import lexical_probe as lexical_probe
    from hf_nmt_interp.analysis.symmetrization import symmetrize as symmetrize
    from hf_nmt_interp.attribution.api import attribute as attribute
    from hf_nmt_interp.attribution.api import explain_generation as explain_generation
    from hf_nmt_interp.attribution.result import AttributionResult as AttributionResult
    from hf_nmt_interp.attribution.result import AttributionResults as AttributionResults
    from hf_nmt_interp.decoding.translators import load as load
    from hf_nmt_interp.errors import InputError as InputError
    from hf_nmt_interp.hub import push_folder as push_folder
    from hf_nmt_interp.hub import push_to_hub as push_to_hub
    from hf_nmt_interp.metrics.aer.rate import alignment_error_rate as alignment_error_rate
    from hf_nmt_interp.models.aligned import AlignedBartConfig as AlignedBartConfig
    from hf_nmt_interp.models.aligned import AlignedBartForConditionalGeneration as AlignedBartForConditionalGeneration
    from hf_nmt_interp.models.aligned import AlignedM2M100Config as AlignedM2M100Config
    from hf_nmt_interp.models.aligned import (
        AlignedM2M100ForConditionalGeneration as AlignedM2M100ForConditionalGeneration,
    )
    from hf_nmt_interp.models.aligned import AlignedMarianConfig as AlignedMarianConfig
    from hf_nmt_interp.models.aligned import AlignedMarianMTModel as AlignedMarianMTModel
    from hf_nmt_interp.models.aligned import AlignedMBartConfig as AlignedMBartConfig
    from hf_nmt_interp.models.aligned import (
        AlignedMBartForConditionalGeneration as AlignedMBartForConditionalGeneration,
    )
    from hf_nmt_interp.models.aligned import AlignedMT5Config as AlignedMT5Config
    from hf_nmt_interp.models.aligned import AlignedMT5ForConditionalGeneration as AlignedMT5ForConditionalGeneration
    from hf_nmt_interp.models.aligned import AlignedT5Config as AlignedT5Config
    from hf_nmt_interp.models.aligned import AlignedT5ForConditionalGeneration as AlignedT5ForConditionalGeneration
    from hf_nmt_interp.models.calibrated import CalibratedBartConfig as CalibratedBartConfig
    from hf_nmt_interp.models.calibrated import (
        CalibratedBartForConditionalGeneration as CalibratedBartForConditionalGeneration,
    )
    from hf_nmt_interp.models.calibrated import CalibratedM2M100Config as CalibratedM2M100Config
    from hf_nmt_interp.models.calibrated import (
        CalibratedM2M100ForConditionalGeneration as CalibratedM2M100ForConditionalGeneration,
    )
    from hf_nmt_interp.models.calibrated import CalibratedMarianConfig as CalibratedMarianConfig
    from hf_nmt_interp.models.calibrated import CalibratedMarianMTModel as CalibratedMarianMTModel
    from hf_nmt_interp.models.calibrated import CalibratedMBartConfig as CalibratedMBartConfig
    from hf_nmt_interp.models.calibrated import (
        CalibratedMBartForConditionalGeneration as CalibratedMBartForConditionalGeneration,
    )
    from hf_nmt_interp.models.conv import ConvSeq2SeqConfig as ConvSeq2SeqConfig
    from hf_nmt_interp.models.conv import ConvSeq2SeqForConditionalGeneration as ConvSeq2SeqForConditionalGeneration
    from hf_nmt_interp.models.demo import load_demo as load_demo
    from hf_nmt_interp.models.gated import GatedBartConfig as GatedBartConfig
    from hf_nmt_interp.models.gated import GatedBartForConditionalGeneration as GatedBartForConditionalGeneration
    from hf_nmt_interp.models.gated import GatedM2M100Config as GatedM2M100Config
    from hf_nmt_interp.models.gated import GatedM2M100ForConditionalGeneration as GatedM2M100ForConditionalGeneration
    from hf_nmt_interp.models.gated import GatedMarianConfig as GatedMarianConfig
    from hf_nmt_interp.models.gated import GatedMarianMTModel as GatedMarianMTModel
    from hf_nmt_interp.models.gated import GatedMBartConfig as GatedMBartConfig
    from hf_nmt_interp.models.gated import GatedMBartForConditionalGeneration as GatedMBartForConditionalGeneration
    from hf_nmt_interp.models.gated import GatedMT5Config as GatedMT5Config
    from hf_nmt_interp.models.gated import GatedMT5ForConditionalGeneration as GatedMT5ForConditionalGeneration
    from hf_nmt_interp.models.gated import GatedT5Config as GatedT5Config
    from hf_nmt_interp.models.gated import GatedT5ForConditionalGeneration as GatedT5ForConditionalGeneration
    from hf_nmt_interp.models.lstm import LSTMAttentionConfig as LSTMAttentionConfig
    from hf_nmt_interp.models.lstm import (
        LSTMAttentionForSequenceClassification as LSTMAttentionForSequenceClassification,
    )
    from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig as LuongSeq2SeqConfig
    from hf_nmt_interp.models.lstm import LuongSeq2SeqForConditionalGeneration as LuongSeq2SeqForConditionalGeneration
    from hf_nmt_interp.models.proxy import BagOfWordsConfig as BagOfWordsConfig
    from hf_nmt_interp.models.proxy import BagOfWordsProxy as BagOfWordsProxy
    from hf_nmt_interp.report.bridges import to_dataset as to_dataset
    from hf_nmt_interp.report.bridges import to_inseq as to_inseq
    from hf_nmt_interp.report.bridges import to_pandas as to_pandas
    from hf_nmt_interp.studies.best_attention import best_attention as best_attention
    from hf_nmt_interp.studies.contribution_study import ContributionStudy as ContributionStudy
    from hf_nmt_interp.studies.contribution_study import contribution_study as contribution_study
    from hf_nmt_interp.text.progress import progress_bars as progress_bars
    from hf_nmt_interp.training.alignment import AlignmentConfig as AlignmentConfig
    from hf_nmt_interp.training.alignment import AlignmentTrainer as AlignmentTrainer
    from hf_nmt_interp.training.alignment import load_aligned as load_aligned
    from hf_nmt_interp.training.calibration import CalibrationConfig as CalibrationConfig
    from hf_nmt_interp.training.calibration import CalibrationTrainer as CalibrationTrainer
    from hf_nmt_interp.training.calibration import load_calibrated as load_calibrated
    from hf_nmt_interp.training.callbacks import ContributionCallback as ContributionCallback
    from hf_nmt_interp.training.l0 import L0Config as L0Config
    from hf_nmt_interp.training.l0 import L0Trainer as L0Trainer
    from hf_nmt_interp.training.l0 import load_gated as load_gated
    from hf_nmt_interp.training.mrt import MRTConfig as MRTConfig
    from hf_nmt_interp.training.mrt import MRTTrainer as MRTTrainer
    from hf_nmt_interp.training.word_dropout import WordDropout as WordDropout


def _read_homes() -> dict[str, str]:
    """Public names and their modules, read from the imports above."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    lines = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(line.module).partition(".")[2] for line in lines for name in line.names}


_HOME = _read_homes()
__all__ = ["__version__", *sorted(_HOME)]

if not TYPE_CHECKING:  # lets type checkers report misspelt names

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'hf_nmt_interp' has no attribute {name!r}; it has {', '.join(__all__)}")
        return getattr(import_module(f"hf_nmt_interp.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_with_transformers()
