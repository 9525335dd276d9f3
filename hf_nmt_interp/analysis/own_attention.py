"""The cross-attention layer and head of a model that aligns words best, chosen without gold links.

Deleting a source word lowers the probability of the target words that translate it. This needs a forward pass for each
source word, so it is only done for a few sentences, and the layer and head whose links agree best with it are chosen.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from huggingface_hub.constants import HF_HOME

from hf_nmt_interp.analysis.links import extract_links, word_scores
from hf_nmt_interp.attribution.attention import all_labels_as_inputs, attention_weights, returned_weights
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Batch, Translation, batch_of, evaluating, label_log_probs, run_model
from hf_nmt_interp.decoding.pairs import Pair, Pairs, Text
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Parts, any_parts, capacity
from hf_nmt_interp.models.loading import weights_fingerprint
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.pharaoh import Links

logger = logging.getLogger(__name__)

SENTENCES, WORDS = 40, 250  # maximum sentences, and approximate source words, used for the choice
_KEPT = 100  # minimum source words for a choice to be stored
_FOLDER = Path(HF_HOME) / "hf_nmt_interp" / "alignment"  # a file for each model
_BOX = Path(__file__).with_name("own_attention.json")  # choices for the bundled translators, by fingerprint
Key = tuple[int, int | None, bool]  # layer, head (None is the mean of all), shifted


class AttentionChoice(NamedTuple):
    """The attention used to align: `AttentionWeights(model, layer, head, shifted)`; head None is the mean of all."""

    layer: int
    head: int | None
    shifted: bool
    aer: float

    def store(self, model: Any) -> None:
        """Make it the default of `attention` for this model; `save_pretrained` keeps it in config.json."""
        model.config.alignment = self._asdict()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for the method `attention`."""
        return {"layer": self.layer, "head": self.head, "shifted": self.shifted}

    def ctranslate2(self, model: Any) -> dict[str, list[list[int]]]:
        """`alignment_heads` as in CTranslate2's config.json: a list of [layer, head], with all heads for a mean."""
        if self.shifted:
            problem = "CTranslate2 returns the attention of the step that predicts a token"
            raise InputError("shifted", None, problem, "choose attention without shift")
        heads = any_parts(model).cross[self.layer].heads if self.head is None else [self.head]
        return {"alignment_heads": [[self.layer, head] for head in heads]}


_CHOSEN: WeakKeyDictionary[Any, tuple[int, AttentionChoice]] = WeakKeyDictionary()  # with the version of the weights


def own_attention(model: Any, pairs: Pairs, batch_size: int = 16, cached: bool = True) -> AttentionChoice:
    """The `known_choice` of a model, or the result of `choose_attention` on the first of these pairs.

    If chosen on enough words, it is stored for this model, and for later runs in the Hugging Face cache if `cached`.
    """
    if known := known_choice(model, cached):
        return known
    words = list(accumulate(len(pair.source.words) for pair in pairs[:SENTENCES]))
    number = 1 + sum(total < WORDS for total in words[:-1])
    choice = choose_attention(model, pairs[:number], batch_size)
    head = "mean of its heads" if choice.head is None else f"head {choice.head}"
    step = "one step later" if choice.shifted else "at the same step"
    sentences = f"{number} sentence{'s' * (number > 1)}"
    how = f"{1 - choice.aer:.0%} of its links agree with deleting source words in {sentences}"
    logger.warning("aligning by cross-attention layer %d, %s, %s: %s", choice.layer, head, step, how)
    if cached and words[-1] >= _KEPT:
        _CHOSEN[model] = _version(model), choice
        file = _FOLDER / f"{_fingerprint(model)}.json"
        try:
            write_whole(file, json.dumps(choice._asdict()) + "\n", shared=True)
        except OSError as error:
            logger.warning("the choice cannot be stored in %s: %s", file, error)
    return choice


def known_choice(model: Any, cached: bool = True) -> AttentionChoice | None:
    """The choice in the model's config, for a bundled translator, or from an earlier run if `cached`."""
    if stored := getattr(model.config, "alignment", None):
        return _read_choice(stored)
    if cached and model in _CHOSEN and _CHOSEN[model][0] == _version(model):
        return _CHOSEN[model][1]
    name = _fingerprint(model)
    found = json.loads(_BOX.read_text(encoding="utf-8")).get(name)
    if not found and cached:
        try:
            found = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # missing or damaged
            return None
    if not found:
        return None
    _CHOSEN[model] = _version(model), AttentionChoice(**found)
    return _CHOSEN[model][1]


def _read_choice(stored: Any) -> AttentionChoice:
    """The entry `alignment` of a config.json, checked."""
    kinds = {"layer": int, "head": int | None, "shifted": bool, "aer": int | float}
    is_whole = isinstance(stored, dict) and stored.keys() == kinds.keys()
    if not is_whole or not all(isinstance(stored[name], kind) for name, kind in kinds.items()):
        problem = f"the entry alignment of its config.json, {str(stored)[:80]}, is not a layer, head, shift and rate"
        raise InputError("model", None, problem, "remove it, or write it with best-attention --save")
    return AttentionChoice(**stored)


def _version(model: Any) -> int:
    """Increases when weights change."""
    return sum(weight._version for weight in model.parameters())


def _fingerprint(model: Any) -> str:
    """Name of a model by its weights, except those of an alignment head, which does not affect the attention."""
    kind = type(model).__name__.removeprefix("Aligned")
    return f"{kind}-{weights_fingerprint(model, without=('alignment_head.',))}"


def choose_attention(model: Any, pairs: Pairs, batch_size: int = 16) -> AttentionChoice:
    """The layer and head, plain or shifted, whose links agree best with `occlusion_links`; `aer` is 1 - agreement."""
    return best_agreement(occlusion_agreements(model, pairs, batch_size))


def best_agreement(found: dict[Key, float], heads: bool = True, shifted: bool | None = None) -> AttentionChoice:
    """The best of `occlusion_agreements`, the first if several are equal.

    Without `heads`, only means over the heads of a layer are compared; `shifted` compares only shifted or plain ones.
    """
    best = max(
        (key for key in found if (heads or key[1] is None) and shifted in (None, key[2])), key=found.__getitem__
    )
    return AttentionChoice(*best, 1 - found[best])


def occlusion_agreements(model: Any, pairs: Pairs, batch_size: int = 16) -> dict[Key, float]:
    """The share of `occlusion_links` that are also links of each layer and head, plain and shifted."""
    _, limit = capacity(model, "target")  # shifted weights need one more position
    pairs = pairs.pick([n for n, pair in enumerate(pairs) if limit is None or len(pair.ids.target_ids) < limit])
    found = links_of_pairs(model, pairs, batch_size)
    reference = [occlusion_links(model, pair, batch_size) for pair in pairs]
    total = sum(map(len, reference))
    if not found or not total:
        raise InputError("sources", None, "have no words to align", "choose a method")
    return {
        key: sum(len(a & b) for a, b in zip(links, reference, strict=True)) / total for key, links in found.items()
    }


@torch.no_grad()
def occlusion_links(model: Any, pair: Pair, batch_size: int = 16) -> Links:
    """Link each target word to the source word whose deletion lowers its probability most."""
    ids = pair.ids
    without = [[i for n, i in enumerate(ids.source_ids) if n not in own] for own in pair.source.positions]
    # a word may have no subwords, or all of them
    kept = [word for word, source in enumerate(without) if source and len(source) < len(ids.source_ids)]
    sources = [ids.source_ids, *(without[word] for word in kept)]
    rows = [Translation(source, ids.target_ids, ids.start_id) for source in sources]
    found = []
    with evaluating(model):
        for start in range(0, len(rows), batch_size):
            batch = batch_of(model, rows[start : start + batch_size])
            found.append(label_log_probs(run_model(model, batch.inputs()).logits, batch.labels).cpu())
    log_probs = torch.cat(found).double().numpy()  # [1 + kept words, T]
    drops = np.full((len(pair.target.words), len(pair.source.words)), -np.inf)
    for j, positions in enumerate(pair.target.positions):
        if positions:
            drops[j, kept] = (log_probs[:1, positions] - log_probs[1:, positions]).sum(1)
    return extract_links(drops)


def attention_links(
    model: Any, tokenizer: Any, sources: Sequence[Text], targets: Sequence[Text], batch_size: int = 16
) -> dict[Key, list[Links]]:
    """Links of each sentence pair for each (layer, head, shifted), from one pass over the data."""
    return links_of_pairs(model, Pairs.force(model, tokenizer, sources, targets), batch_size)


def links_of_pairs(model: Any, pairs: Pairs, batch_size: int = 16) -> dict[Key, list[Links]]:
    """`attention_links` of encoded pairs."""
    translator = any_parts(model)
    links: dict[Key, list[Links]] = {}
    for rows, batch in pairs.batches(batch_size, "Choosing attention"):
        for (layer, head), weights in cross_weights(model, translator, batch)[1].items():
            for shifted in (False, True):
                found = links.setdefault((layer, head, shifted), [set()] * len(pairs))
                for b, n in enumerate(rows):
                    S, T = len(pairs[n].ids.source_ids), len(pairs[n].ids.target_ids)
                    scores = weights[b, shifted : shifted + T, :S].float().cpu().numpy()
                    found[n] = extract_links(word_scores(scores, pairs[n].source, pairs[n].target))
    return links


@torch.no_grad()
def cross_weights(
    model: Any, translator: Parts, batch: Batch
) -> tuple[torch.Tensor, dict[tuple[int, int | None], torch.Tensor]]:
    """Logits [B, T + 1, V] and cross-attention weights [B, T + 1, S] of each layer and head; head None is the mean.

    The last step reads the last label.
    """
    inputs = batch.inputs() | {"decoder_input_ids": all_labels_as_inputs(model, batch)}
    found: dict[tuple[int, int | None], torch.Tensor] = {}

    def add(layer: int, heads: Iterable[int], weights: torch.Tensor) -> None:
        found[layer, None] = weights.mean(1)
        found.update({(layer, head): weights[:, h] for h, head in enumerate(heads)})

    if not translator.cross:
        with evaluating(model):
            logits, cross, _, _ = returned_weights(model, inputs)
        for layer, weights in enumerate(cross):
            add(layer, range(weights.shape[1]), weights)
        return logits, found
    layers = [(n, a) for n, a in enumerate(translator.cross) if a.heads]
    if not layers:
        raise InputError("model", None, "it has no cross-attention heads left", "use another model")
    with evaluating(model), Tape([m for _, a in layers for m in a.recorded]) as tape:
        logits = run_model(model, inputs).logits
    for layer, attention in layers:
        add(layer, attention.heads, attention_weights(tape, attention, batch.attention_mask))
    return logits, found
