"""Word dropout: replaces some tokens that a translator reads in training (voita2021, section 5).

Definitions: docs/methods.md, Minimum risk training and word dropout.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor

from hf_nmt_interp.decoding.batch import decoder_inputs
from hf_nmt_interp.errors import InputError, check_choice

REPLACEMENTS = ("random", "unk")


class WordDropout:
    """Data collator that replaces tokens of the source and of the decoder's input; labels are unchanged.

    Special tokens (EOS, padding, language codes, the decoder's start) are neither replaced nor drawn. The trainers
    here evaluate with the collator in `clean`, and seed each training batch by its position in the data, so a
    resumed run reads the same tokens.

    Args:
        collate: collator for batches with `input_ids` and `labels`.
        model: model that shifts the labels.
        tokenizer: tokenizer with the special tokens and the vocabulary.
        source: share of the source tokens that are replaced.
        target: share of the decoder's input tokens that are replaced.
        replacement: "random" (any vocabulary item) or "unk".
        seed: seed for drawing tokens.

    >>> import hf_nmt_interp as hni
    >>> from transformers import DataCollatorForSeq2Seq
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> collate = DataCollatorForSeq2Seq(tokenizer, model)
    >>> noisy = hni.WordDropout(collate, model, tokenizer, source=0.5, replacement="unk")
    >>> batch = noisy([tokenizer("I like green tea.", text_target="Ich mag grünen Tee.")])
    >>> tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    ['<unk>', '▁like', '<unk>', '<unk>', '<unk>', '</s>']
    """

    def __init__(
        self,
        collate: Callable[[list], dict[str, Any]],
        model: Any,
        tokenizer: Any,
        *,
        source: float = 0.0,
        target: float = 0.0,
        replacement: str = "random",
        seed: int = 0,
    ) -> None:
        for name, rate in (("source", source), ("target", target)):
            if not 0 <= rate < 1:
                raise InputError(name, rate, "must be at least 0 and below 1")
        check_choice("replacement", replacement, REPLACEMENTS)
        if replacement == "unk" and tokenizer.unk_token_id is None:
            problem = f"is not a token of {type(tokenizer).__name__}"
            raise InputError("replacement", replacement, problem, "use random")
        self.clean, self.model, self.source, self.target = collate, model, source, target
        self._special = torch.tensor(sorted(reserved_ids(tokenizer)))
        words = torch.arange(len(tokenizer))
        self._items = words[~torch.isin(words, self._special)]
        if replacement == "unk":
            self._items = torch.tensor([tokenizer.unk_token_id])
        self._generator = torch.Generator().manual_seed(seed)

    def reseed(self, key: str) -> None:
        """Make the next draws depend on `key` only, not on earlier batches."""
        self._generator.manual_seed(Random(key).getrandbits(63))

    def __call__(self, examples: list) -> dict[str, Any]:
        """A batch, with `decoder_input_ids` if tokens of the target are replaced."""
        batch = self.clean(examples)
        if self.source:
            batch["input_ids"] = self._replace(batch["input_ids"], self.source)
        if self.target:
            batch["decoder_input_ids"] = self._replace(decoder_inputs(self.model, batch["labels"]), self.target)
        return batch

    def _replace(self, ids: Tensor, rate: float) -> Tensor:
        hit = (torch.rand(ids.shape, generator=self._generator) < rate) & ~torch.isin(ids, self._special)
        drawn = self._items[torch.randint(len(self._items), ids.shape, generator=self._generator)]
        return torch.where(hit, drawn, ids)


def reserved_ids(tokenizer: Any) -> set[int]:
    """Special tokens of a tokenizer and its language codes, which Marian and M2M100 do not count as special."""
    codes = [*getattr(tokenizer, "supported_language_codes", ()), *getattr(tokenizer, "lang_token_to_id", ())]
    return {*tokenizer.all_special_ids, *(tokenizer.convert_tokens_to_ids(code) for code in codes)}
