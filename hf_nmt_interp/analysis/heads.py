"""Relevance, confidence and roles of heads (voita2019, 4 and 5); definitions: docs/methods.md, Head roles."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from typing import Any, ClassVar

import numpy as np
import torch

from hf_nmt_interp.analysis.reports import Report, sentence_pairs
from hf_nmt_interp.analysis.roles import (
    COMMON,
    DIRECTIONS,
    HEAD_SCORES,
    RELATIONS,
    HeadScore,
    Relation,
    Row,
    View,
    roles_of,
)
from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.lrp import LRP
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Batch, Translation, batch_of, evaluating, run_model, similar_sizes
from hf_nmt_interp.decoding.pairs import Pairs, encode_sources
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Attention, Parts, parts
from hf_nmt_interp.models.kinds import KINDS
from hf_nmt_interp.text.conllu import Sentence
from hf_nmt_interp.text.corpus import Pair
from hf_nmt_interp.text.progress import estimate, track

logger = logging.getLogger(__name__)
_UNSEEN = 0.25  # share of tokens that are not in the counted corpus from which rare words mean little
_Counts = dict[str, Counter[int]]  # how often each token occurs, by side ("source" and "target")
_Scores = dict[tuple[str, int], list[HeadScore]]  # of each kind and layer


@dataclass
class HeadReport(Report):
    """One row for each head, with its scores and roles.

    Attributes:
        about: description of the analysed data.
        rows: kind ("encoder", "decoder", "cross"), layer, head, relevance (LRP; share of the layer's), the columns of
            `HEAD_SCORES` that any head has, roles; None for missing scores.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> report = hni.head_report(model, tokenizer, ["I like tea."], ["Ich mag Tee."])
    >>> report.scores("confidence", kind="cross").shape
    (4, 8)
    >>> report.most_relevant(2, kind="encoder")
    [[4, 7], [3, 4], [3, 6], [4, 7]]
    """

    title: ClassVar = "report of heads"
    writer: ClassVar = "the verb heads"
    about: dict[str, Any] = field(default_factory=dict, kw_only=True)
    rows: list[Row]

    def of_kind(self, kind: str) -> list[Row]:
        """Rows of one kind of attention."""
        if rows := [row for row in self.rows if row["kind"] == kind]:
            return rows
        known = ", ".join(dict.fromkeys(row["kind"] for row in self.rows))
        raise InputError("kind", None, f"the report has no heads of kind {kind!r}", f"it has {known or 'no heads'}")

    def scores(self, name: str, kind: str = "encoder") -> np.ndarray:
        """One score [layers, heads] of one kind of attention; NaN for heads that were pruned or have no such score."""
        rows = self.of_kind(kind)
        if name not in rows[0]:
            known = [name for name in rows[0] if name not in ("kind", "layer", "head", "roles")]
            raise InputError("name", name, f"is not in the report for kind {kind!r}", f"it has {', '.join(known)}")
        found = np.full([1 + max(row[place] for row in rows) for place in ("layer", "head")], np.nan)
        for row in rows:
            found[row["layer"], row["head"]] = np.nan if row[name] is None else row[name]
        return found

    def most_relevant(self, keep: int | Sequence[int], kind: str = "encoder") -> list[list[int]]:
        """The `keep` most relevant heads of each layer, in ascending order, for `set_kept_heads`.

        `keep` is one number for all layers, or one for each.
        """
        relevance = self.scores("relevance", kind)  # [layers, heads]
        if np.isnan(relevance).all():
            raise InputError("relevance", None, "the report has none", "make it with relevance_sentences above 0")
        layers, heads = relevance.shape
        counts = [keep] * layers if isinstance(keep, int) else list(keep)
        if len(counts) != layers:
            raise InputError("keep", len(counts), f"numbers for {layers} layers", "give one, or one for each layer")
        if wrong := [count for count in counts if not 0 <= count <= heads]:
            raise InputError("keep", wrong[0], f"must be from 0 to {heads}, the heads of a layer")
        best = np.argsort(-relevance, axis=1, kind="stable").tolist()  # NaN last
        there = np.isfinite(relevance)
        return [sorted(h for h in best[n][:count] if there[n, h]) for n, count in enumerate(counts)]

    def syntax(self, kind: str = "encoder") -> list[Row]:
        """The best head for each relation and direction, its accuracy and the baseline's (voita2019, table 1)."""
        found = []
        for relation, direction in product(RELATIONS, DIRECTIONS):
            name, baseline = f"{relation}_{direction}", f"{relation}_baseline"
            if rows := [row for row in self.of_kind(kind) if row.get(baseline) is not None]:
                best = max(rows, key=lambda row: row[name])
                head = f"{best['layer']}.{best['head']}"
                row = {"relation": relation, "direction": direction, "head": head, "accuracy": best[name]}
                found.append(row | {"baseline": best[baseline]})
        return found

    def table(self) -> list[Row]:
        """One row per head; several roles are separated by `; `."""
        return [row | {"roles": "; ".join(row["roles"])} for row in self.rows]


@takes_names
def head_report(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    trees: Sequence[Sentence] | None = None,
    *,
    corpus: Iterable[Pair] | None = None,
    relevance_sentences: int | None = None,
    lrp: dict[str, Any] | None = None,
    batch_size: int = 16,
) -> HeadReport:
    """Relevance, confidence, and positional, syntactic and rare-word scores and roles of every head.

    Args:
        model: any supported translator; heads that were pruned are not in the report.
        tokenizer: its tokenizer.
        sources: sentences; None uses the text of the trees.
        targets: their translations; None lets the model translate.
        trees: sentences of the source language with their dependencies, for the encoder's syntactic scores.
        corpus: sentence pairs to count tokens in, ideally the training data; None counts in the given sentences.
        relevance_sentences: number of sentences to compute relevance on, the slowest part; None for all.
        lrp: settings of `LRP`.
        batch_size: sentences at a time.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> report = hni.head_report(model, tokenizer, ["I like tea."], ["Ich mag Tee."])
    >>> len(report.rows), report.rows[0]["kind"], round(report.rows[0]["confidence"], 2)
    (96, 'encoder', 0.26)
    """
    if relevance_sentences is not None and relevance_sentences < 0:
        raise InputError("relevance_sentences", relevance_sentences, "must be at least 0 (none)")
    explainer = None if relevance_sentences == 0 else LRP(model, **lrp or {})
    translator = explainer.parts if explainer else parts(model)
    if translator.weighted_sums:
        raise InputError("model", None, f"{type(model).__name__} has no self-attention", "give a Transformer")
    trees = list(trees or ())
    for tree in trees:
        tree.spans()  # errors are reported early
    if sources is None:
        if not trees:
            raise InputError("sources", None, "none given", "give sentences, or trees")
        sources = [tree.text for tree in trees]
    pairs = sentence_pairs(model, tokenizer, sources, targets, batch_size)
    counts = token_counts(tokenizer, corpus) if corpus is not None else _counts_of(pair.ids for pair in pairs)
    tokens = [i for pair in pairs for i in pair.ids.source_ids]
    unseen = sum(not counts["source"][i] for i in tokens) / len(tokens)
    if unseen > _UNSEEN:
        text = "corpus: %.0f %% of the source tokens do not occur in it, so the scores of rare words mean little; "
        text += "give a corpus in the same script and spelling"
        logger.warning(text, 100 * unseen)
    found = _new_scores()
    for rows, batch in pairs.batches(batch_size, "Attention"):
        for views in _token_views(model, translator, pairs.pick(rows), batch, counts):
            _add(found, views, "token")
    for rows in track(similar_sizes([len(tree.tokens) for tree in trees], batch_size), "Trees"):
        _add(found, _word_views(model, translator, tokenizer, [trees[i] for i in rows]), "word")
    explained = pairs[:relevance_sentences]
    about = {"model": model.name_or_path, "sentences": len(pairs), "trees": len(trees), "relevance": len(explained)}
    shares = {}
    if explainer and explained:
        estimate(explainer.name, lambda: _mean_relevance(explainer, explained.typical(), batch_size), len(explained))
        shares = _mean_relevance(explainer, explained, batch_size)
    layers = [(k, layer, a.heads) for k in KINDS for layer, a in enumerate(translator.attentions(k)) if a.heads]
    relevance = {(k, layer, h): float(shares[k][layer, h]) for k, layer, heads in layers for h in heads if shares}
    for score in found[layers[0][:2]] if layers else ():
        about |= score.about()
    return HeadReport(_rows(layers, found, relevance), about=about)


def _mean_relevance(explainer: LRP, pairs: Pairs, batch_size: int) -> dict[str, Any]:
    return explainer.mean_head_relevance(batch for _, batch in pairs.batches(batch_size, "Relevance"))


def _add(found: _Scores, views: Iterable[tuple[Attention, int, View]], level: str) -> None:
    """Add a sentence to the scores of a level."""
    for attention, layer, view in views:
        for score in found[attention.kind, layer]:
            if score.level == level and view.weights.size:
                score.add(view)


def head_facts(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    counts: _Counts | None = None,
    *,
    relevance: bool = True,
    lrp: dict[str, Any] | None = None,
) -> list[Row]:
    """Facts about each sentence, which `report_of` turns into a report, so a corpus can be processed in parts.

    Args:
        model: any supported translator.
        tokenizer: its tokenizer.
        sources: sentences, processed in one batch.
        targets: their translations; None lets the model translate.
        counts: frequencies of tokens, from `token_counts`; None leaves rare words out.
        relevance: whether to compute relevance, the slowest part.
        lrp: settings of `LRP`.

    Returns:
        `steps`, the number of target tokens, and `heads`, a row of facts (sums over steps) for each head, by sentence.
    """
    pairs = sentence_pairs(model, tokenizer, sources, targets, len(sources))
    batch = batch_of(model, [pair.ids for pair in pairs])
    explainer = LRP(model, **lrp or {}) if relevance else None
    shares = explainer.head_relevance_sums(batch) if explainer else {}
    translator = explainer.parts if explainer else parts(model)
    scores = [make() for make in HEAD_SCORES.values() if make.fact_types]
    found: list[Row] = []
    for b, views in enumerate(_token_views(model, translator, pairs, batch, counts)):
        rows: list[Row] = []
        for attention, layer, view in views:
            known = [score.facts(view) for score in scores if view.weights.size]
            facts = {name: values for one in known for name, values in one.items()}
            for i, head in enumerate(attention.heads):
                row: Row = {"kind": attention.kind, "layer": layer, "head": head}
                row["relevance"] = float(shares[attention.kind][b, layer, head]) if shares else None
                rows.append(row | {name: values[i] for name, values in facts.items()})
        found.append({"steps": len(pairs[b].ids.target_ids), "heads": rows})
    return found


def report_of(sentences: Iterable[Row], about: dict[str, Any]) -> HeadReport:
    """The report of sentences from their `head_facts`; memory use does not depend on their number."""
    found = _new_scores()
    heads: dict[tuple[str, int], list[int]] = {}
    relevance: dict[tuple[str, int, int], float] = defaultdict(float)
    number = steps = 0
    for sentence in sentences:
        number, steps = number + 1, steps + sentence["steps"]
        for (kind, layer), group in groupby(sentence["heads"], key=lambda row: (row["kind"], row["layer"])):
            rows = list(group)
            heads[kind, layer] = [row["head"] for row in rows]
            for row in rows:
                if row["relevance"] is not None:
                    relevance[kind, layer, row["head"]] += row["relevance"]
            facts = {name: [row[name] for row in rows] for name in rows[0]}
            for score in found[kind, layer]:
                score.add_known(facts)
    if not number:
        raise InputError("sentences", None, "none given", "a report needs at least one")
    layers = [(kind, layer, own) for (kind, layer), own in heads.items()]
    shares = {head: total / steps for head, total in relevance.items()}
    about = about | {"sentences": number, "relevance": number if shares else 0}
    return HeadReport(_rows(layers, found, shares), about=about)


def fact_types() -> dict[str, Any]:
    """Python types of the facts that `head_facts` returns; a list of rows is a list with their types."""
    head: dict[str, Any] = {"kind": str, "layer": int, "head": int, "relevance": float}
    for score in HEAD_SCORES.values():
        head |= score.fact_types
    return {"steps": int, "heads": [head]}


def _new_scores() -> _Scores:
    """New scores for each requested kind and layer."""
    return defaultdict(lambda: [make() for make in HEAD_SCORES.values()])


def _counts_of(translations: Iterable[Translation]) -> _Counts:
    counts: _Counts = {"source": Counter(), "target": Counter()}
    for translation in translations:
        counts["source"].update(translation.source_ids)
        counts["target"].update(translation.target_ids)
    return counts


def token_counts(tokenizer: Any, corpus: Iterable[Pair]) -> _Counts:
    """How often each token occurs on the "source" and the "target" side of pairs of sentences."""
    encoded = (tokenizer(source, text_target=target) for source, target in corpus)
    return _counts_of(Translation(e["input_ids"], e["labels"]) for e in encoded)


def _token_views(
    model: Any, translator: Parts, pairs: Pairs, batch: Batch, counts: _Counts | None
) -> Iterator[list[tuple[Attention, int, View]]]:
    """The attention among the tokens of each pair of a batch, by kind and layer."""
    weights = attention_of(model, translator, batch, KINDS)
    common = {side: {i for i, _ in counted.most_common(COMMON)} for side, counted in (counts or {}).items()}
    for b, pair in enumerate(pairs):
        start = pair.ids.start_id or 0
        ids = {"source": pair.ids.source_ids, "target": [start, *pair.ids.target_ids[:-1]]}
        source, target = (~np.array(side.special) for side in (pair.source, pair.target))
        inputs = np.array([False, *target[:-1]])  # the decoder reads a start token, then all but the last target token
        views = []
        for attention, layer, found in weights:
            queries = {"encoder": source, "decoder": inputs, "cross": target}[attention.kind].nonzero()[0]
            side = "target" if attention.kind == "decoder" else "source"
            keys = (inputs if side == "target" else source).nonzero()[0]
            view = View(found[b][:, queries][:, :, keys], queries, keys)
            if counts:
                tokens = [ids[side][i] for i in keys]
                is_common = np.array([i in common[side] for i in tokens], dtype=bool)
                view = replace(view, counts=np.array([counts[side][i] for i in tokens]), common=is_common)
            views.append((attention, layer, view))
        yield views


def _word_views(
    model: Any, translator: Parts, tokenizer: Any, trees: list[Sentence]
) -> Iterator[tuple[Attention, int, View]]:
    """The encoder's attention among the words of each tree: mean over a word's queries, sum over its keys."""
    texts, spans = [tree.text for tree in trees], [tree.spans() for tree in trees]
    encoded = encode_sources(model, tokenizer, texts, spans=spans)
    batch = batch_of(model, [Translation(e.ids, [0]) for e in encoded])
    weights = attention_of(model, translator, batch, ["encoder"])
    for b, (tree, e) in enumerate(zip(trees, encoded, strict=True)):
        words = e.token_words.positions
        belongs = np.zeros((len(words), len(e.ids)), dtype=np.float32)
        for word, positions in enumerate(words):
            belongs[word, positions] = 1
        share = belongs / np.maximum(belongs.sum(-1, keepdims=True), 1)
        relations = list(_relations(tree, words))
        at = np.arange(len(words))
        for attention, layer, found in weights:
            own = found[b][:, : len(e.ids), : len(e.ids)]
            yield attention, layer, View(share @ own @ belongs.T, at, at, relations=relations)


def _relations(tree: Sentence, words: list[list[int]]) -> Iterator[Relation]:
    """Dependencies between two written words that have separate subwords."""
    for child, (parent, name) in enumerate(zip(tree.heads, tree.deprels, strict=True)):
        if parent is not None:
            dependent, head = tree.token_ids[child], tree.token_ids[parent]
            if dependent != head and words[dependent] and words[head]:
                yield Relation(dependent, head, name)


@torch.no_grad()
def attention_of(
    model: Any, translator: Parts, batch: Batch, kinds: Sequence[str]
) -> list[tuple[Attention, int, np.ndarray]]:
    """Attention, its layer and its weights [B, H, Q, K], of the layers that have heads."""
    layers = [(a, layer) for kind in kinds for layer, a in enumerate(translator.attentions(kind)) if a.heads]
    with evaluating(model), Tape([m for a, _ in layers for m in a.recorded]) as tape:
        if tuple(kinds) == ("encoder",):
            model.get_encoder()(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        else:
            run_model(model, batch.inputs())
        found = ((a, layer, attention_weights(tape, a, batch.attention_mask)) for a, layer in layers)
        return [(a, layer, weights.float().cpu().numpy()) for a, layer, weights in found]


def _rows(
    layers: Iterable[tuple[str, int, Sequence[int]]], found: _Scores, relevance: dict[tuple[str, int, int], float]
) -> list[Row]:
    rows: list[Row] = []
    for kind, layer, heads in layers:
        columns = {name: values for score in found[kind, layer] for name, values in score.columns().items()}
        for i, head in enumerate(heads):
            row: Row = {"kind": kind, "layer": layer, "head": head, "relevance": relevance.get((kind, layer, head))}
            row |= {name: values[i] for name, values in columns.items()}
            rows.append(row | {"roles": roles_of(row)})
    names = list(dict.fromkeys(name for row in rows for name in row if name != "roles"))
    return [{name: row.get(name) for name in [*names, "roles"]} for row in rows]
