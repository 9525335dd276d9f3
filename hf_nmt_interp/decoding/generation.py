"""What `generate()` was given and what it returned, caught while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.decoding.translation import Translation
from hf_nmt_interp.errors import InputError


@contextmanager
def record_generation(model: Any) -> Iterator[list[Translation]]:
    """Context that collects one `Translation` per sequence returned by any `model.generate()` call inside.

    Greedy, beam search and sampling, several returned sequences, padded batches, one call or many. Nothing is left on
    the model afterwards.
    """
    translations: list[Translation] = []
    if "generate" in vars(model):
        raise InputError("model: its generate() is being recorded already; leave the other context first")
    generate = model.generate

    def recorded(inputs: Tensor | None = None, *args, **kwargs) -> Any:
        output = generate(inputs, *args, **kwargs)
        sequences = output if isinstance(output, Tensor) else output.sequences
        source = inputs if inputs is not None else kwargs.get("input_ids")
        if source is None:
            raise InputError("generate(): give input_ids; from encoder_outputs alone the source is not known")
        translations.extend(_translations(model, source, kwargs.get("attention_mask"), sequences))
        return output

    model.generate = recorded
    try:
        yield translations
    finally:
        del model.generate


def _translations(
    model: PreTrainedModel, source: Tensor, mask: Tensor | None, sequences: Tensor
) -> Iterator[Translation]:
    config = model.generation_config
    pad = config.pad_token_id if config.pad_token_id is not None else model.config.pad_token_id
    if mask is None:
        mask = torch.ones_like(source) if pad is None else source.ne(pad)
    ends = config.eos_token_id if config.eos_token_id is not None else model.config.eos_token_id
    stops = set(ends if isinstance(ends, list) else [ends])
    each = len(sequences) // len(source)  # num_return_sequences
    for i, sequence in enumerate(sequences.tolist()):
        kept = mask[i // each].bool()
        if not kept[: int(kept.sum())].all():
            raise InputError("attention_mask: padding must stand at the end of a row (pad with padding_side='right')")
        start, *target = sequence
        end = next((j + 1 for j, token in enumerate(target) if token in stops), len(target))
        yield Translation(source[i // each][kept].tolist(), target[:end], start)
