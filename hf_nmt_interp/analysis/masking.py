"""Effect of masking source words on a translation. Definitions: docs/methods.md, Occlusion."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hf_nmt_interp.attribution.occlusion import Occlusion
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.batch import batch_of, evaluating, label_log_probs, run_model
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import Encoded


@dataclass(frozen=True)
class Masked:
    """Changes caused by masking some source words.

    Attributes:
        words: the masked words.
        target: words of the translation.
        changes: change of the log-probability of each target word, in nats.
        translation: the model's new translation.
    """

    words: list[str]
    target: list[str]
    changes: list[float]
    translation: str


@torch.no_grad()
def mask_words(model: Any, tokenizer: Any, result: AttributionResult, words: Sequence[int]) -> Masked:
    """Mask source words of an explained translation together: their embeddings become 0, positions are kept.

    Args:
        model: the translator.
        tokenizer: its tokenizer.
        result: a token-level result of `attribute`.
        words: indices in `result.source_side.words`.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> result = hni.attribute(model, tokenizer, "I like tea.")
    >>> found = mask_words(model, tokenizer, result, [2])
    >>> found.words, min(zip(found.changes, found.target))[1]
    (['tea'], 'Tee')
    """
    side, ids = result.source_side, result.translation
    if ids is None or result.level != "token":
        raise InputError("result", None, "has no token ids", "use the result of attribute() before to_words()")
    if wrong := [n for n in words if not 0 <= n < len(side.words)]:
        raise InputError("words", wrong[0], "is not a word of the sentence", f"it has 0 to {len(side.words) - 1}")
    occlusion, batch = Occlusion(model), batch_of(model, [ids])
    gone = torch.zeros_like(batch.input_ids, dtype=torch.bool)  # [1, S]
    gone[0, [position for n in words for position in side.positions[n]]] = True
    before = label_log_probs(_logits(model, batch), batch.labels)
    with occlusion.masked(gone):
        after = label_log_probs(_logits(model, batch), batch.labels)
        translated = Pairs.translate(model, tokenizer, [Encoded(ids.source_ids, side)])[0].target.text
    change = (after - before)[0].float().cpu().numpy()
    by_word = replace(result, log_probs=change).to_words()
    kept = np.flatnonzero(~np.array(by_word.target_side.special))
    assert by_word.log_probs is not None  # of the change
    target, changes = [by_word.target_tokens[n] for n in kept], by_word.log_probs[kept].tolist()
    return Masked([side.words[n] for n in sorted(set(words))], target, changes, translated)


def _logits(model: Any, batch: Any) -> Any:
    with evaluating(model):
        return run_model(model, batch.inputs()).logits
