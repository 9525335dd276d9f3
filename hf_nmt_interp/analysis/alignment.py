"""Word alignment from attribution (ding2019, sections 4 and 5); definitions: docs/methods.md, Word alignment."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from hf_nmt_interp.analysis.contributions import contribution_entropy
from hf_nmt_interp.analysis.links import (
    SUBWORD_ARGMAX,
    check_extraction,
    extract_links,
    normalise,
    subword_links,
    word_scores,
)
from hf_nmt_interp.analysis.own_attention import known_choice, own_attention
from hf_nmt_interp.analysis.symmetrization import flip, symmetrize
from hf_nmt_interp.attribution.alignment_head import AlignmentHeadMethod
from hf_nmt_interp.attribution.attention import AttentionWeights, soft_links
from hf_nmt_interp.attribution.base import AttributionMethod, naming_dtypes
from hf_nmt_interp.attribution.parsing import Named
from hf_nmt_interp.attribution.registry import make_method, parse_methods, word_settings
from hf_nmt_interp.attribution.result import AttributionResult, AttributionResults
from hf_nmt_interp.decoding.pairs import Pair, Pairs, Splitting, Text
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError, rows_among
from hf_nmt_interp.models.families import any_parts
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tokens import (
    Encoded,
    Punctuation,
    Words,
    as_sentences,
    encode_source,
    encode_target,
    join_words,
    words_of,
)

_MARK = re.compile(r"[^\w\s%&#@*/+=§°$€£]+")  # signs that are read as words do not count as punctuation


def soft_alignment(result: AttributionResult) -> np.ndarray:
    """p(i | t) [target words, source words] of an explained sentence, without special tokens.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> soft_alignment(hni.attribute(model, tokenizer, "I like tea.")).sum(1).round(3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if result.level != "token":
        raise InputError(
            "result", None, f"scores of {result.level}s", "give the token-level result, before to_words()"
        )
    return normalise(word_scores(result.source, result.source_side, result.target_side))


def dispersion(soft: Iterable[np.ndarray]) -> float:
    """Entropy (nats) of p(i | t), mean over all target words; NaN if there are none.

    >>> round(dispersion([np.array([[0.5, 0.5], [1.0, 0.0]])]), 4)
    0.3466
    """
    rows = [contribution_entropy(p[p.any(1)]) for p in soft if p.size]
    values = np.concatenate(rows) if rows else np.zeros(0)
    return float(values.mean()) if values.size else float("nan")


def subword_dispersion(soft: Iterable[np.ndarray]) -> float:
    """Entropy (nats) of p(i | t) [T, S] over tokens: mean over the steps of a sentence, then over sentences.

    As in the authors' code (ding2019), special tokens such as EOS are included on both sides. Steps without a positive
    score are left out; NaN if there are no others.

    >>> round(subword_dispersion([np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5]])]), 4)
    0.5199
    """
    means = [contribution_entropy(p[p.any(1)]).mean() for p in soft if p.any()]
    return float(np.mean(means)) if means else float("nan")


def joint_scores(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """p(i | t) p(t | i): scores [target words, source words] of links, from both directions of translation.

    `forward` are scores [target words, source words], `backward` [source words, target words] from the other
    translator. 0 becomes -inf, so such a link is never chosen.

    >>> joint_scores(np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 3.0]])).tolist()
    [[0.75, 0.0625], [-inf, 0.375]]
    """
    return _possible(normalise(forward) * normalise(backward).T)


def joint_links(
    forward: np.ndarray,
    backward: np.ndarray,
    heuristic: str = "grow-diag-final",
    extraction: str = "argmax",
    threshold: float | None = None,
    least: float = 0.0,
) -> Links:
    """Symmetrised links of both directions' `joint_scores`, without doubtful links.

    Args:
        forward: see `joint_scores`.
        backward: see `joint_scores`.
        heuristic: see `symmetrize`.
        extraction: see `extract_links`.
        threshold: see `extract_links`.
        least: minimum geometric mean of a link's shares of the scores of its source word and its target word.

    >>> forward, backward = np.array([[8.0, 1.0], [1.0, 1.0]]), np.array([[4.0, 1.0], [1.0, 1.0]])
    >>> [sorted(joint_links(forward, backward, least=p)) for p in (0, 0.8)]
    [[(0, 0), (1, 1)], [(0, 0)]]
    """
    scores = joint_scores(forward, backward)
    one, other = (extract_links(direction, extraction, threshold) for direction in (scores, scores.T))
    return at_least(symmetrize(one, flip(other), heuristic), mutual_shares(scores, scores.T), least)


def mutual_shares(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """[target words, source words]: geometric mean of a link's shares of the scores of its two words.

    `forward` and `backward` as in `joint_scores`, or joint scores and their transpose.

    >>> mutual_shares(np.array([[3.0, 1.0]]), np.array([[1.0], [1.0]])).round(3).tolist()
    [[0.866, 0.5]]
    """
    return np.sqrt(normalise(forward) * normalise(backward).T)


def at_least(links: Links, shares: np.ndarray, least: float) -> Links:
    """The links whose share [target words, source words] is at least `least`.

    >>> at_least({(0, 0), (1, 0)}, np.array([[0.8, 0.1]]), 0.2)
    {(0, 0)}
    """
    if not 0 <= least <= 1:
        raise InputError("least", least, "must be from 0 to 1")
    return {(i, j) for i, j in links if shares[j, i] >= least}


def combined_scores(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Combined scores [target words, source words] of several methods: the geometric mean of their p(i | t).

    >>> combined_scores([np.array([[3.0, 1.0, 0.0]]), np.array([[1.0, 3.0, 4.0]])]).round(3).tolist()
    [[0.306, 0.306, -inf]]
    """
    if len(scores) == 1:
        return scores[0]
    return _possible(np.prod([normalise(matrix) for matrix in scores], 0) ** (1 / len(scores)))


def _possible(scores: np.ndarray) -> np.ndarray:
    """Replace 0 by -inf, so such a link is never chosen."""
    return np.where(scores > 0, scores, -np.inf)


@dataclass(frozen=True, eq=False)
class WordAlignment:
    """The alignment of one sentence pair.

    Attributes:
        source_words: words of the source.
        target_words: words of the target, given or translated.
        target_text: the target as text.
        scores: [target words, source words], see `word_scores`.
        links: (source word, target word).
    """

    source_words: list[str]
    target_words: list[str]
    target_text: str
    scores: np.ndarray
    links: Links

    @property
    def soft(self) -> np.ndarray:
        """p(i | t) [target words, source words]."""
        return normalise(self.scores)


def make_aligner(model: Any, method: str, **settings: Any) -> AttributionMethod:
    """The method with this name and its settings for alignment."""
    return make_method(model, method, **word_settings(method, settings))


def make_aligners(model: Any, method: str, **settings: Any) -> list[AttributionMethod]:
    """`make_aligner` of each method in `NAME+NAME:SETTING=VALUE+...`; `settings` are for a single method only."""
    methods = parse_methods(method, "method")
    if settings and len(methods) > 1:
        name = min(settings)
        raise InputError(name, None, "with several methods, each needs its own settings", f"write {method}:{name}=...")
    return [make_aligner(model, name, **own | settings) for name, own in methods]


def own_method(model: Any, pairs: Pairs | None, batch_size: int = 16, cached: bool = True) -> Named | None:
    """The default method of a model: its alignment head, or its own best attention.

    Without pairs to choose attention on, None if it has not been chosen yet; for `cached` see `own_attention`.
    """
    if AlignmentHeadMethod.fits(model):
        return AlignmentHeadMethod.name, {}
    choice = own_attention(model, pairs, batch_size, cached) if pairs else known_choice(model, cached)
    return ("attention", choice.settings) if choice else None


def own_aligner(model: Any, pairs: Pairs, batch_size: int = 16) -> AttributionMethod:
    """`own_method` for pairs."""
    name, settings = own_method(model, pairs, batch_size) or ("attention", {})
    return make_aligner(model, name, **settings)


def token_scores(
    aligners: Sequence[AttributionMethod], pairs: Pairs, batch_size: int = 16
) -> list[tuple[np.ndarray, ...]]:
    """Source scores [T, S] of the tokens of each pair, by each aligner of the pairs' model.

    Aligners that only read attention share a forward pass.
    """
    reading = [aligner for aligner in aligners if type(aligner).soft_links is AttentionWeights.soft_links]
    found: dict[int, tuple[np.ndarray, ...]] = {}
    for rows, batch in pairs.batches(batch_size, "Aligning"):
        with naming_dtypes(pairs.model):
            shared = iter(soft_links(reading, batch) if reading else ())  # type: ignore[arg-type]
            scores = [next(shared) if aligner in reading else aligner.soft_links(batch) for aligner in aligners]
        for aligner, one in zip(aligners, scores, strict=True):
            aligner.check_finite(one)
        arrays = [one.float().cpu().numpy() for one in scores]
        for b, n in enumerate(rows):
            ids = pairs[n].ids
            found[n] = tuple(array[b, : len(ids.target_ids), : len(ids.source_ids)] for array in arrays)
    return [found[n] for n in range(len(pairs))]


@takes_names
def align_words(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],
    targets: Sequence[Text] | None = None,
    method: str | None = None,
    batch_size: int = 16,
    extraction: str = "argmax",
    threshold: float | None = None,
    punctuation: Punctuation = "attached",
    words: Words = "pieces",
    generate: dict[str, Any] | None = None,
    **settings: Any,
) -> list[WordAlignment]:
    """`align` with words and soft scores; the arguments are the same.

    A pair with an empty side is not passed to the model and has no links; the translation of an empty source is empty.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> (found,) = hni.align_words(model, tokenizer, ["I like tea."])
    >>> found.target_text, found.soft.shape
    ('Ich mag Tee.', (3, 3))
    """
    if settings and not method:
        name = min(settings)
        problem, remedy = "is a setting of a method, but no method is named", 'name one, e.g. method="smoothgrad"'
        raise InputError(name, settings[name], problem, remedy)
    explainers = make_aligners(model, method, **settings) if method else []
    if not method:
        any_parts(model)  # raises early for an unsupported model
    check_extraction(extraction)  # wrong settings are reported early
    by_subwords = extraction == SUBWORD_ARGMAX
    extract_links(np.zeros((0, 0)), "argmax" if by_subwords else extraction, threshold)
    sources = as_sentences("sources", sources)
    given: Sequence[Any] = [None] * len(sources) if targets is None else as_sentences("targets", targets)
    if len(given) != len(sources):
        raise InputError("targets", len(given), f"targets for {len(sources)} sources", "give one each")
    texts = [(_text(s), None if t is None else _text(t)) for s, t in zip(sources, given, strict=True)]
    full = [n for n, pair in enumerate(texts) if all(text is None or text.strip() for text in pair)]
    sides = [sources[n] for n in full], None if targets is None else [given[n] for n in full]
    splitting = {"punctuation": punctuation, "words": words}
    with rows_among(full):
        pairs = Pairs.make(model, tokenizer, *sides, splitting, batch_size=batch_size, generate=generate)
    if not method and pairs:
        explainers = [own_aligner(model, pairs, batch_size)]
    found: dict[int, WordAlignment] = {}
    for n, pair, each in zip(full, pairs, token_scores(explainers, pairs, batch_size), strict=True):
        scores = combined_scores([word_scores(scores, pair.source, pair.target) for scores in each])
        text = texts[n][1] or " ".join(words_of(tokenizer, pair.ids.target_ids, is_target=True, words="spaces").words)
        if by_subwords:
            links = subword_links(combined_scores(each), pair.source, pair.target)
        else:
            links = extract_links(scores, extraction, threshold)
        found[n] = WordAlignment(pair.source.words, pair.target.words, text, scores, links)
    for n in {*range(len(texts))} - {*full}:
        found[n] = _unaligned(tokenizer, sources[n], given[n] or "", splitting)
    return [found[n] for n in range(len(texts))]


@takes_names
def add_links(model: Any, results: Any, batch_size: int = 16) -> Any:
    """Results of `attribute` or `explain_generation` with word links, as from `align` without a method.

    A punctuation mark that is a word is only linked to other marks.

    Args:
        model: the translator, or its name.
        results: one result of subwords, or a list.
        batch_size: sentences aligned at a time.

    Returns:
        The same results with `AttributionResult.links`.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> result = hni.add_links(model, hni.attribute(model, tokenizer, "I like tea."))
    >>> sorted(result.links)  # the full stop is a word here
    [(0, 0), (1, 1), (2, 2), (3, 3)]
    """
    if isinstance(results, AttributionResult):
        return add_links(model, [results], batch_size)[0]
    pairs = []
    for result in results:
        if result.translation is None or result.level != "token":
            raise InputError("results", None, "expected subword results with ids", "give those of attribute()")
        pairs.append(Pair(result.translation, result.source_side, result.target_side))
    links = own_links(model, Pairs(model, pairs), batch_size)
    both = zip(results, pairs, links, strict=True)
    return AttributionResults(replace(result, links=_marks_apart(pair, own)) for result, pair, own in both)


def _marks_apart(pair: Pair, links: Links) -> Links:
    """The links without those between a punctuation mark and a word."""
    marks = [[bool(_MARK.fullmatch(word)) for word in side.words] for side in (pair.source, pair.target)]
    return {(i, j) for i, j in links if marks[0][i] == marks[1][j]}


def own_links(model: Any, pairs: Pairs, batch_size: int = 16) -> list[Links]:
    """Links of each pair as from `align` without a method, see `own_aligner`."""
    full = [n for n, pair in enumerate(pairs) if pair.source.words and pair.target.words]
    found: list[Links] = [set() for _ in pairs]
    if full:
        aligner = own_aligner(model, pairs.pick(full), batch_size)
        for n, (scores,) in zip(full, token_scores([aligner], pairs.pick(full), batch_size), strict=True):
            found[n] = extract_links(word_scores(scores, pairs[n].source, pairs[n].target))
    return found


def _text(text: Text) -> str:
    if isinstance(text, Encoded):
        return text.token_words.text
    return text if isinstance(text, str) else join_words(text)[0]


def _unaligned(tokenizer: Any, source: Text, target: Text, splitting: Splitting) -> WordAlignment:
    """A pair with an empty side."""

    def words(text: Text, encode: Callable[..., Encoded]) -> list[str]:
        if isinstance(text, str):
            text = encode(tokenizer, text, **splitting) if text.strip() else []
        return text.token_words.words if isinstance(text, Encoded) else list(text)

    own, others = words(source, encode_source), words(target, encode_target)
    return WordAlignment(own, others, _text(target), np.full((len(others), len(own)), -np.inf), set())


@overload
def align(
    model: Any,
    tokenizer: Any,
    sources: str,
    targets: str | None = None,
    method: str | None = None,
    **settings: Any,
) -> Links: ...
@overload
def align(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],
    targets: Sequence[Text] | None = None,
    method: str | None = None,
    **settings: Any,
) -> list[Links]: ...
@takes_names
def align(
    model: Any, tokenizer: Any, sources: Any, targets: Any = None, method: str | None = None, **settings: Any
) -> Any:
    """Align the words of sentence pairs: given ones (force decoding), or with the model's own translations.

    Args:
        model: a translator, or a name that is passed to `load` (further arguments of `load` are then accepted too).
        tokenizer: its tokenizer; None with a name.
        sources: one sentence, or a list of sentences; each a string of space-separated words, or a list of words that
            are kept unchanged (the segmentation of gold links).
        targets: its translation or a list of them, in the same format; None lets the model translate.
        method: an attribution method; None for the model's alignment head, or without one its own best attention
            (`own_attention`; stored if chosen on at least 100 words); `lrp` explains the logit of the label here.
            Several, e.g. `attention+saliency:aggregate=li2016`, are combined by the geometric mean of p(i | t).
        settings: `batch_size`; `extraction` and `threshold`, see `extract_links`; `extraction="subword_argmax"`, see
            `subword_links`; `punctuation` and `words`, see `encode_source`; `generate`, arguments of `generate()`; all
            others are settings of the named method.

    Returns:
        A set of links (source word, target word) for one sentence, a list of sets for a list.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> sorted(hni.align(model, tokenizer, "I like tea.", "Ich mag Tee."))
    [(0, 0), (1, 1), (2, 2)]
    """
    if isinstance(sources, str):
        return align(model, tokenizer, [sources], None if targets is None else [targets], method, **settings)[0]
    return [found.links for found in align_words(model, tokenizer, sources, targets, method, **settings)]
