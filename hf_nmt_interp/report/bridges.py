"""Explanations for other libraries: pandas, datasets, Inseq."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.records import record


def to_pandas(results: AttributionResult | Iterable[AttributionResult]) -> Any:
    """A DataFrame with a row for each score: sentence, step, target, side, position, token, score.

    `side` is source, prefix or start; the prefix has no rows for later target tokens.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> frame = hni.to_pandas(hni.attribute(model, tokenizer, "I like tea.", method="attention"))
    >>> frame.columns.tolist()
    ['sentence', 'step', 'target', 'side', 'position', 'token', 'score']
    """
    import pandas as pd

    frames = []
    for sentence, result in enumerate(_listed(results)):
        S, T = len(result.source_tokens), len(result.target_tokens)
        later = 0 if result.level == "word" else -1  # a word's first subwords contribute to its later ones
        seen = np.tril(np.ones((T, T), dtype=bool), later)
        sides = (
            ("source", result.source, np.ones((T, S), dtype=bool), result.source_tokens),
            ("prefix", result.prefix, seen, result.target_tokens),
            ("start", result.start[:, None], np.ones((T, 1), dtype=bool), [""]),
        )
        for side, scores, kept, tokens in sides:
            step, position = np.nonzero(kept)
            target, token = np.array(result.target_tokens, object)[step], np.array(tokens, object)[position]
            columns = {"sentence": sentence, "step": step, "target": target, "side": side, "position": position}
            frames.append(pd.DataFrame(columns | {"token": token, "score": scores[kept].astype(float)}))
    if not frames:
        raise InputError("results", None, "none given", "a frame needs at least one")
    return pd.concat(frames, ignore_index=True)


def to_dataset(results: AttributionResult | Iterable[AttributionResult]) -> Any:
    """A `datasets.Dataset` with a row for each result: tokens, words and arrays as lists.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> found = hni.to_dataset(hni.attribute(model, tokenizer, "I like tea.", method="attention"))
    >>> found[0]["target_words"]
    ['Ich', 'mag', 'Tee', '.']
    """
    from datasets import Dataset

    rows = [record(result) for result in _listed(results)]
    if not rows:
        raise InputError("results", None, "none given", "a dataset needs at least one")
    for row in rows:
        row["settings"] = str(row["settings"])  # they differ between methods
    return Dataset.from_list(rows)


def to_inseq(results: AttributionResult | Iterable[AttributionResult]) -> Any:
    """Inseq's `FeatureAttributionOutput`, for its viewers, aggregators and files; needs the extra `inseq`.

    Rows are the contributing tokens, columns the steps; the start token, `<s>`, is the first token of the target.
    Log-probabilities become the step score `logprob`.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> result = hni.attribute(model, tokenizer, "I like tea.", method="saliency")
    >>> hni.to_inseq(result).show()  # doctest: +SKIP
    """
    try:
        import torch
        from inseq.data.attribution import CoarseFeatureAttributionSequenceOutput, FeatureAttributionOutput
        from inseq.utils.typing import TokenWithId
    except ImportError as error:
        raise InputError("to_inseq", None, "Inseq is not installed", "pip install -e '.[inseq]'") from error

    found, listed = [], _listed(results)
    for result in listed:
        ids = result.translation
        known = ids if result.level == "token" else None
        source_ids = known.source_ids if known else [-1] * len(result.source_tokens)
        target_ids = known.target_ids if known else [-1] * len(result.target_tokens)
        start_id = -1 if ids is None or ids.start_id is None else ids.start_id
        prefix = np.concatenate([result.start[None], result.prefix.T])  # [1 + T, T]
        tokens = zip(["<s>", *result.target_tokens], [start_id, *target_ids], strict=True)
        sequence = CoarseFeatureAttributionSequenceOutput(
            source=[TokenWithId(t, i) for t, i in zip(result.source_tokens, source_ids, strict=True)],
            target=[TokenWithId(t, i) for t, i in tokens],
            source_attributions=torch.tensor(result.source.T),  # [S, T]
            target_attributions=torch.tensor(prefix),
            step_scores={} if result.log_probs is None else {"logprob": torch.tensor(result.log_probs)},
            sequence_scores={},
            attr_pos_start=1,
            attr_pos_end=1 + len(result.target_tokens),
        )
        found.append(sequence)
    info = {"attribution_method": listed[0].method, "attribution_args": dict(listed[0].settings)} if listed else {}
    return FeatureAttributionOutput(sequence_attributions=found, info=info)


def _listed(results: AttributionResult | Iterable[AttributionResult]) -> list[AttributionResult]:
    return [results] if isinstance(results, AttributionResult) else list(results)
