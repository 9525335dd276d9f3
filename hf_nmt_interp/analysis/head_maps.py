"""Attention maps of every head in one sentence pair, for the head browser of the report."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hf_nmt_interp.analysis.heads import attention_of
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.batch import batch_of
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import parts

NAMES = {"cross": "Cross-attention", "encoder": "Encoder attention"}


class HeadMaps(NamedTuple):
    """Attention of all heads of one kind in one sentence pair.

    Attributes:
        name: name of the kind.
        queries: tokens that attend.
        keys: tokens that they attend to.
        layers: indices of the heads of each layer and their weights [H, queries, keys], by layer index.
    """

    name: str
    queries: list[str]
    keys: list[str]
    layers: dict[int, tuple[Sequence[int], np.ndarray]]


def head_maps(model: Any, result: AttributionResult) -> list[HeadMaps]:
    """Cross-attention and encoder attention of every layer and head, for the ids that were explained.

    Cross-attention has a line for each target token: the step that predicts it.

    Args:
        model: the translator, of a family whose layers are known.
        result: a subword result with ids, from `attribute`.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> cross, encoder = head_maps(model, hni.attribute(model, tokenizer, "I like tea.", method="attention"))
    >>> cross.name, encoder.queries == encoder.keys, cross.layers[0][1].shape[1] == len(cross.queries)
    ('Cross-attention', True, True)
    """
    if result.translation is None or result.level != "token":
        raise InputError("result", None, "expected a subword result with ids", "give one that attribute() returned")
    sides = {"cross": result.target_tokens, "encoder": result.source_tokens}
    batch = batch_of(model, [result.translation])
    found: dict[str, dict[int, tuple[Sequence[int], np.ndarray]]] = {kind: {} for kind in sides}
    for attention, layer, weights in attention_of(model, parts(model), batch, list(sides)):
        own = weights[0][:, : len(sides[attention.kind]), : len(result.source_tokens)]
        found[attention.kind][layer] = (attention.heads, own)
    return [HeadMaps(NAMES[kind], sides[kind], result.source_tokens, found[kind]) for kind in sides if found[kind]]
