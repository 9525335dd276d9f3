"""`attribute` and `explain_generation`: from text or `generate()` to results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, overload

import torch
from transformers import PreTrainedModel

from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.base import AttributionMethod, Scores, check_ids, evaluating
from hf_nmt_interp.attribution.registry import check_type, method_settings
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.generation import plain_generate, record_generation, translations_of
from hf_nmt_interp.decoding.translation import Translation, collate
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import positions
from hf_nmt_interp.text.tokens import TokenWords, as_sentences, encode_source, encode_target, words_of

Text = str | Sequence[str]  # a sentence, or its words
Track = Callable[[list[list[int]]], Iterable[list[int]]]  # what batches of rows pass through, e.g. a progress bar
LONGEST = 4096  # tokens of a sentence, where the model has no limit of its own


def make_method(model: PreTrainedModel, method: str, **settings) -> AttributionMethod:
    """The attribution method of that name for a model."""
    known = method_settings(method)
    for name, value in settings.items():
        if name not in known:
            raise InputError(f"{name}: method {method!r} has no such setting; it has {', '.join(known)}")
        check_type(name, value, known[name].annotation)
    return METHODS[method](model, **settings)


def check_tokenizer(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer that cannot be the model's: it has more tokens, or sentences end by another one."""
    size = model.get_encoder().get_input_embeddings().num_embeddings
    if tokenizer is not None and len(tokenizer) > size:
        raise InputError(f"tokenizer: {len(tokenizer)} tokens, but the model has {size}; use the model's own")
    ends = getattr(tokenizer, "eos_token_id", None), model.config.eos_token_id
    if all(isinstance(end, int) for end in ends) and ends[0] != ends[1]:
        raise InputError(
            f"tokenizer: its sentences end by token {ends[0]}, the model's by {ends[1]}; use the model's own"
        )


def _check_rows(name: str, rows: Sequence[Sequence[int]], stack: Any) -> None:
    """Before any work: the ids of every sentence are the model's, and there is room for them."""
    for i, ids in enumerate(rows):
        if wrong := too_long(len(ids), stack):
            raise InputError(f"{name}[{i}]: {wrong}; cut them")
        check_ids(f"{name}[{i}]", torch.tensor(ids, dtype=torch.long), stack)


def too_long(size: int, stack: Any) -> str:
    """What is wrong with a sentence of more tokens than an encoder or decoder has positions; else nothing.

    T5 and LSTMs have none: they get `LONGEST`, as memory grows with the square of the length.
    """
    limit = positions(stack)
    if size <= (limit or LONGEST):
        return ""
    return f"{size} tokens are more than the " + (
        f"model's {limit} positions" if limit else f"{LONGEST} that are taken"
    )


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
    check_tokenizer(model, tokenizer)
    single = isinstance(sources, str)
    source_list = [sources] if single else as_sentences("sources", sources)
    if target is None:
        pairs = translate(model, tokenizer, source_list, batch_size, generate)
    else:
        if isinstance(target, str) and not single:
            raise InputError(f"target: {target!r} is one sentence for a list of sources; give a list of targets")
        pairs = encode_pairs(tokenizer, source_list, [target] if single else as_sentences("target", target))
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
    if not isinstance(generate or {}, Mapping):
        raise InputError(f"generate: {generate!r} is no dictionary of arguments, as {{'num_beams': 4}}")
    translations = translate_ids(model, [e.ids for e in encoded], batch_size, **(generate or {}))
    target_sides = [words_of(tokenizer, t.target_ids, is_target=True) for t in translations]
    return translations, [e.token_words for e in encoded], target_sides


def translate_ids(model: Any, sources: list[list[int]], batch_size: int, **generate) -> list[Translation]:
    """Translate by `generate()`, one translation a source; order is kept, batches are of similar length."""
    if generate.get("num_return_sequences", 1) != 1:
        raise InputError("num_return_sequences: one translation a source here; use explain_generation for more")
    _check_rows("sources", sources, model.get_encoder())
    found: list[Translation | None] = [None] * len(sources)
    plain = plain_generate(model)
    for rows in batches_of([len(ids) for ids in sources], batch_size):
        batch = collate([Translation(sources[i], [0]) for i in rows], model.config.pad_token_id, model.device)
        del batch["labels"]
        try:
            with evaluating(model):
                translations = translations_of(plain, model, **batch, **generate)
        except IndexError as error:  # the sources have been checked
            raise InputError(
                "generate: a translation grew longer than the model's positions; give a smaller max_new_tokens"
            ) from error
        except InputError:
            raise
        except (ValueError, ZeroDivisionError) as error:  # arguments that transformers does not take, e.g. no beams
            raise InputError(f"generate: {error}") from error
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
    _check_rows("sources", [t.source_ids for t in translations], model.get_encoder())
    _check_rows("targets", [t.target_ids for t in translations], model.get_decoder())
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
    check_tokenizer(model, tokenizer)
    with record_generation(model) as translations:
        yield Explained(explainer, tokenizer, translations, settings)


def batches_of(sizes: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Rows of batches of similar size, longest first."""
    if not isinstance(batch_size, Integral) or batch_size < 1:
        raise InputError(f"batch_size: {batch_size!r} must be a whole number of at least 1")
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
