"""`attribute` and `explain_generation`: from text or `generate()` to results."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

from transformers import PreTrainedModel

from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.base import AttributionMethod, Scores, evaluating
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.decoding.translation import Translation, collate
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import TokenWords, encode_source, encode_target, words_of

Text = str | Sequence[str]  # a sentence, or its words
Track = Callable[[list[list[int]]], Iterable[list[int]]]  # what batches of rows pass through, e.g. a progress bar


def make_method(model: PreTrainedModel, method: str, **settings) -> AttributionMethod:
    """The attribution method of that name for a model."""
    if method not in METHODS:
        raise InputError(f"method: {method!r} is not one of {', '.join(METHODS)}")
    known = list(inspect.signature(METHODS[method]).parameters)[1:]
    for name in settings:
        if name not in known:
            raise InputError(f"{name}: method {method!r} has no such setting; it has {', '.join(known)}")
    return METHODS[method](model, **settings)


@overload
def attribute(
    model: Any, tokenizer: Any, sources: str, target: Text | None = None, method: str = "lrp", **settings: Any
) -> AttributionResult: ...
@overload
def attribute(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],
    target: Sequence[Text] | None = None,
    method: str = "lrp",
    **settings: Any,
) -> list[AttributionResult]: ...
def attribute(
    model: Any,
    tokenizer: Any,
    sources: Any,
    target: Any = None,
    method: str = "lrp",
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """Explain translations: given ones, or those the model makes.

    Args:
        model: any supported translator.
        tokenizer: its tokenizer.
        sources: one sentence, or a list of sentences (each a string, or a list of words to be kept as they are).
        target: its translation or a list of them; None lets the model translate.
        method: name of an attribution method.
        batch_size: sentences explained at a time.
        generate: arguments of `model.generate()`, for translations the model makes.
        settings: of the method.

    Returns:
        One `AttributionResult` for one sentence, a list for a list.
    """
    explainer = make_method(model, method, **settings)
    single = isinstance(sources, str)
    source_list = [sources] if single else list(sources)
    if target is None:
        pairs = translate(model, tokenizer, source_list, batch_size, generate)
    else:
        if isinstance(target, str) and not single:
            raise InputError(f"target: {target!r} is one sentence for a list of sources; give a list of targets")
        pairs = encode_pairs(tokenizer, source_list, [target] if single else list(target))
    results = explain(explainer, *pairs, batch_size, settings)
    return results[0] if single else results


def encode_pairs(
    tokenizer: Any, sources: Sequence[Text], targets: Sequence[Text]
) -> tuple[list[Translation], list[TokenWords], list[TokenWords]]:
    """Sentences and their given translations: what `explain` takes, as from `translate`."""
    if len(targets) != len(sources):
        raise InputError(f"target: {len(targets)} targets for {len(sources)} sources; one each is needed")
    encoded = [encode_source(tokenizer, text) for text in sources]
    encoded_targets = [encode_target(tokenizer, text) for text in targets]
    translations = [Translation(s.ids, t.ids) for s, t in zip(encoded, encoded_targets, strict=True)]
    return translations, [e.token_words for e in encoded], [e.token_words for e in encoded_targets]


def translate(
    model: Any, tokenizer: Any, sources: Sequence[Text], batch_size: int, generate: dict[str, Any] | None = None
) -> tuple[list[Translation], list[TokenWords], list[TokenWords]]:
    """Translate sentences: what `explain` takes, translations with the words of both sides."""
    encoded = [encode_source(tokenizer, text) for text in sources]
    translations = translate_ids(model, [e.ids for e in encoded], batch_size, **(generate or {}))
    target_sides = [words_of(tokenizer, t.target_ids, is_target=True) for t in translations]
    return translations, [e.token_words for e in encoded], target_sides


def translate_ids(model: Any, sources: list[list[int]], batch_size: int, **generate) -> list[Translation]:
    """Translate by `generate()`, one translation a source; order is kept, batches are of similar length."""
    if generate.get("num_return_sequences", 1) != 1:
        raise InputError("num_return_sequences: one translation a source here; use explain_generation for more")
    found: list[Translation | None] = [None] * len(sources)
    for rows in batches_of([len(ids) for ids in sources], batch_size):
        batch = collate([Translation(sources[i], [0]) for i in rows], model.config.pad_token_id, model.device)
        with evaluating(model), record_generation(model) as translations:
            model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **generate)
        for i, translation in zip(rows, translations, strict=True):
            found[i] = translation
    return [translation for translation in found if translation is not None]


def explain(
    explainer: AttributionMethod,
    translations: Sequence[Translation],
    source_sides: Sequence[TokenWords],
    target_sides: Sequence[TokenWords],
    batch_size: int = 16,
    settings: dict[str, Any] | None = None,
) -> list[AttributionResult]:
    """Explain translations given as ids; order is kept, batches are of similar length."""
    results: list[AttributionResult | None] = [None] * len(translations)
    model = explainer.model
    for rows in batches_of([t.size for t in translations], batch_size):
        batch = collate([translations[i] for i in rows], model.config.pad_token_id, model.device)
        scores = explainer(**batch)
        for b, i in enumerate(rows):
            sides = source_sides[i], target_sides[i]
            results[i] = _result(scores, b, translations[i], *sides, explainer.name, settings or {})
    return [result for result in results if result is not None]


def _result(
    scores: Scores,
    b: int,
    translation: Translation,
    source: TokenWords,
    target: TokenWords,
    method: str,
    settings: dict[str, Any],
):
    S, T = len(source.tokens), len(target.tokens)
    gap = scores.conservation_gap
    return AttributionResult(
        source,
        target,
        source=scores.source[b, :T, :S].float().cpu().numpy(),
        prefix=scores.prefix[b, :T, :T].float().cpu().numpy(),
        start=scores.start[b, :T].float().cpu().numpy(),
        log_probs=scores.log_probs[b, :T].float().cpu().numpy(),
        conservation_gap=None if gap is None else float(gap[b]),
        method=method,
        settings=settings,
        translation=translation,
    )


class Explained:
    """Translations caught from `generate()`; `results` explains those not explained yet."""

    def __init__(
        self, explainer: AttributionMethod, tokenizer: Any, translations: list[Translation], settings
    ) -> None:
        self._explainer, self._tokenizer, self._settings = explainer, tokenizer, settings
        self.translations = translations
        self._results: list[AttributionResult] = []

    @property
    def results(self) -> list[AttributionResult]:
        """One result per returned sequence, in the order of the calls and of their outputs."""
        new = self.translations[len(self._results) :]
        source_sides = [words_of(self._tokenizer, t.source_ids) for t in new]
        target_sides = [words_of(self._tokenizer, t.target_ids, is_target=True) for t in new]
        self._results += explain(self._explainer, new, source_sides, target_sides, settings=self._settings)
        return list(self._results)


@contextmanager
def explain_generation(model: PreTrainedModel, tokenizer: Any, method: str = "lrp", **settings) -> Iterator[Explained]:
    """Context that explains what any `model.generate()` call inside returns, from the very ids.

    Args:
        model: any supported translator.
        tokenizer: its tokenizer.
        method: name of an attribution method.
        settings: of the method.

    Yields:
        An object whose `results` has one `AttributionResult` per returned sequence, inside the context or after it.
    """
    explainer = make_method(model, method, **settings)
    with record_generation(model) as translations:
        yield Explained(explainer, tokenizer, translations, settings)


def batches_of(sizes: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Rows of batches of similar size, longest first."""
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} must be at least 1")
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
