"""`attribute` and `explain_generation`: from text or `generate()` to results."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import torch
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.registry import make_method, word_settings
from hf_nmt_interp.attribution.result import AttributionResult, AttributionResults
from hf_nmt_interp.attribution.scores import contrast_steps as score_steps
from hf_nmt_interp.decoding.batch import Translation, evaluating, first_choices, run_model
from hf_nmt_interp.decoding.contrasts import check_steps, contrasted
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.decoding.pairs import SHOWN, Pair, Pairs, Text, check_tokenizer
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import Punctuation, Words


@overload
def attribute(
    model: Any,
    tokenizer: Any,
    sources: str,
    targets: Text | None = None,
    method: str = "lrp",
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    punctuation: Punctuation = "separate",
    words: Words = "pieces",
    contrast: Any = None,
    contrast_steps: str = "first",
    **settings: Any,
) -> AttributionResult: ...
@overload
def attribute(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],
    targets: Sequence[Text] | None = None,
    method: str = "lrp",
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    punctuation: Punctuation = "separate",
    words: Words = "pieces",
    contrast: Any = None,
    contrast_steps: str = "first",
    **settings: Any,
) -> AttributionResults: ...
@takes_names
def attribute(
    model: Any,
    tokenizer: Any,
    sources: Any,
    targets: Any = None,
    method: str = "lrp",
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    punctuation: Punctuation = "separate",
    words: Words = "pieces",
    contrast: Any = None,
    contrast_steps: str = "first",
    **settings: Any,
) -> Any:
    """Explain translations: given ones, or the model's own.

    Args:
        model: a translator, or a name that is passed to `load` (further arguments of `load` are then accepted too).
        tokenizer: its tokenizer; None with a name.
        sources: one sentence, or a list of sentences (each a string, or a list of words that are kept unchanged).
        targets: its translation or a list of them; None lets the model translate. `target` is accepted too.
        method: name of an attribution method.
        batch_size: sentences explained at a time.
        generate: arguments of `model.generate()`, if the model translates, and `seed` (default: 0) for sampling.
        punctuation: "separate": punctuation marks are words; "attached": they belong to the word they touch.
        words: what a word is in text without spaces: "pieces" (of the tokenizer), "spaces", or a function that splits
            text into words, e.g. `jieba.lcut`; see `encode_source`.
        contrast: explain why this translation was chosen over another: one contrast per sentence, either another
            translation or `{"word": "other word"}`; see `contrasted`. Only steps that are compared get scores.
        contrast_steps: "first" compares the first token that differs, "all" each one; "kl" compares prefixes.
        settings: settings of the method. `lrp` explains the word in the translation, even if it was not the model's
            first choice, unless `logit="top1"` is given.

    Returns:
        One `AttributionResult` for one sentence; `AttributionResults`, a list, for a list.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> result = hni.attribute(model, tokenizer, "I like tea.")
    >>> result.text, result.source.shape == (len(result.target_tokens), len(result.source_tokens))
    ('Ich mag Tee.', True)
    """
    check_steps(contrast_steps)
    settings = word_settings(method, settings)
    explainer = make_method(model, method, **settings)
    single = isinstance(sources, str)
    if isinstance(targets, str) and not single:
        raise InputError("targets", targets, "is one sentence for a list of sources", "give a list of targets")
    sources, targets = ([sources], None if targets is None else [targets]) if single else (sources, targets)
    splitting = {"punctuation": punctuation, "words": words}
    pairs = Pairs.make(model, tokenizer, sources, targets, splitting, batch_size=batch_size, generate=generate)
    if contrast is not None:
        steps = score_steps(settings, contrast_steps)
        pairs = contrasted(pairs, tokenizer, [contrast] if single else contrast, steps, splitting)
    results = explain(explainer, pairs, batch_size, settings, choices=True)
    return results[0] if single else results


def explain(
    explainer: AttributionMethod,
    pairs: Pairs,
    batch_size: int = 16,
    settings: dict[str, Any] | None = None,
    choices: bool = False,
) -> AttributionResults:
    """Explain sentence pairs; order is kept.

    Args:
        explainer: the method.
        pairs: pairs encoded for its model.
        batch_size: pairs explained at a time.
        settings: settings of the method, stored in the results.
        choices: whether results record which tokens of given targets are the model's first choices.
    """
    found: dict[int, AttributionResult] = {}
    for rows, batch in pairs.batches(batch_size, "Explaining"):
        scores = explainer.run(batch)
        if choices and scores.chosen is None and any(pairs[row].origin == "given" for row in rows):
            with torch.no_grad(), evaluating(explainer.model):
                scores.chosen = first_choices(run_model(explainer.model, batch.inputs()).logits, batch)
        for b, row in enumerate(rows):
            found[row] = _result(scores, b, pairs[row], explainer.name, settings or {}, choices)
    return AttributionResults(found[row] for row in range(len(pairs)))


def _result(
    scores: Scores, b: int, pair: Pair, method: str, settings: dict[str, Any], choices: bool
) -> AttributionResult:
    S, T = len(pair.source.tokens), len(pair.target.tokens)
    chosen = scores.chosen if choices and pair.origin == "given" else None
    gap = scores.conservation_gap
    return AttributionResult(
        pair.source,
        pair.target,
        source=scores.source[b, :T, :S].float().cpu().numpy(),
        prefix=scores.prefix[b, :T, :T].float().cpu().numpy(),
        start=scores.start[b, :T].float().cpu().numpy(),
        log_probs=scores.log_probs[b, :T].float().cpu().numpy(),
        conservation_gap=None if gap is None else float(gap[b]),
        method=method,
        settings=settings,
        translation=pair.ids,
        chosen=None if chosen is None else chosen[b, :T].tolist(),
        contrast=pair.contrast_words,
    )


class Explained:
    """Translations recorded from `generate()`; `results` explains those not explained yet."""

    def __init__(
        self, explainer: AttributionMethod, tokenizer: Any, translations: list[Translation], settings
    ) -> None:
        self._explainer, self._tokenizer, self._settings = explainer, tokenizer, settings
        self.translations = translations
        self._results = AttributionResults()
        self._explaining = threading.Lock()

    @property
    def results(self) -> AttributionResults:
        """One result per returned sequence, in the order of the calls and of their outputs."""
        with self._explaining:
            new = self.translations[len(self._results) :]
            pairs = Pairs.caught(self._explainer.model, self._tokenizer, new, splitting=SHOWN)
            self._results += explain(self._explainer, pairs, settings=self._settings)
            return self._results[:]


@contextmanager
def explain_generation(
    model: PreTrainedModel, tokenizer: Any = None, method: str = "lrp", **settings
) -> Iterator[Explained]:
    """Context that explains the output of every `model.generate()` call inside, from the generated ids.

    Args:
        model: any supported translator, whose `generate()` is called inside; not a name.
        tokenizer: its tokenizer.
        method: name of an attribution method.
        settings: settings of the method.

    Yields:
        An object whose `results` has one `AttributionResult` per returned sequence, inside the context or after it.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> with hni.explain_generation(model, tokenizer) as explained:
    ...     _ = model.generate(**tokenizer("I like tea.", return_tensors="pt"))
    >>> [result.text for result in explained.results]
    ['Ich mag Tee.']
    """
    settings = word_settings(method, settings)
    explainer = make_method(model, method, **settings)
    check_tokenizer(model, tokenizer)
    with record_generation(model) as translations:
        yield Explained(explainer, tokenizer, translations, settings)
