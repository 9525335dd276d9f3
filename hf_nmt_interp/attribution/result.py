"""The explanation of one sentence pair.

Definitions: docs/methods.md, Attribution result.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np

from hf_nmt_interp.attribution.scores import compares_prefixes
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tokens import TokenWords

_FORMAT, _VERSION = "hf_nmt_interp.attribution", 2


@dataclass(frozen=True, eq=False, repr=False)
class AttributionResult:
    """Contributions of every token to every step of one translation.

    Attributes:
        source_side: source tokens and their words.
        target_side: target tokens (without the start token, with EOS) and their words.
        source: [T, S], contribution of source token i to step t.
        prefix: [T, T], contribution of target token j to step t; 0 for j >= t (word level: for j > t).
        start: [T], contribution of the decoder start token.
        log_probs: [T], log-probability of the target tokens.
        conservation_gap: largest difference over the steps between the total and its expected value: 1 for LRP,
            including the relevance that biases absorb under some rules; the score minus that of the baseline for
            integrated gradients. None for methods without a fixed total.
        method: name of the method.
        settings: its settings.
        level: "token", or "word" after `to_words()`.
        chosen: [T], whether the tokens of a given target are the model's first choices (of a word: all its tokens);
            None for the model's own translations.
        translation: the ids that were explained.
        contrast: [T], words that the tokens are compared with (with `score="kl"`, the other prefix of each step); None
            at steps, or overall, without a comparison.
        links: word alignment, (source word, target word) in the order of `source_side.words` and `target_side.words`;
            None if it was not requested.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> result = hni.attribute(model, tokenizer, "I like tea.")
    >>> result.text, result.source.shape, result.prefix.shape
    ('Ich mag Tee.', (5, 5), (5, 5))
    >>> result.to_words().target_tokens
    ['Ich', 'mag', 'Tee', '.', '</s>']
    """

    source_side: TokenWords
    target_side: TokenWords
    source: np.ndarray
    prefix: np.ndarray
    start: np.ndarray
    log_probs: np.ndarray | None = None
    conservation_gap: float | None = None
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    level: str = "token"
    chosen: list[bool] | None = None
    translation: Translation | None = None
    links: Links | None = None
    contrast: list[str | None] | None = None

    def __post_init__(self) -> None:
        S, T = len(self.source_side.tokens), len(self.target_side.tokens)
        shapes = {
            "source": (T, S),
            "prefix": (T, T),
            "start": (T,),
            "log_probs": (T,),
            "chosen": (T,),
            "contrast": (T,),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is not None and np.shape(value) != shape:
                raise InputError(name, None, f"shape {np.shape(value)} does not fit {T} target and {S} source tokens")

    @property
    def source_tokens(self) -> list[str]:
        """Source tokens."""
        return self.source_side.tokens

    @property
    def target_tokens(self) -> list[str]:
        """Target tokens, without the start token, with EOS."""
        return self.target_side.tokens

    @property
    def text(self) -> str:
        """The translation."""
        return self.target_side.text

    @property
    def source_contribution(self) -> np.ndarray:
        """[T], source mass / (source + prefix mass); 1 at the first step (voita2021, section 2.3)."""
        source, prefix = self.source.sum(-1), self.prefix.sum(-1)
        total = source + prefix
        return np.divide(source, total, out=np.full_like(source, np.nan), where=total != 0)

    @property
    def source_part(self) -> np.ndarray:
        """[T], source mass / (source + prefix + start mass), as in the figures of voita2021."""
        source = self.source.sum(-1)
        total = source + self.prefix.sum(-1) + self.start
        return np.divide(source, total, out=np.full_like(source, np.nan), where=total != 0)

    def to_words(self) -> "AttributionResult":
        """The result at word level: sum over the subwords of a contributing word, mean over those of an explained one.

        For a word with a contrast, only the compared subwords count.

        Special tokens stay separate, so totals are kept. The contribution of a word's first subwords to its later ones
        is on the diagonal of `prefix`.
        """
        if self.level == "word":
            return self
        columns, source_side = _merge(self.source_side)
        summed, target_side = _merge(self.target_side)
        explained = np.array([[text is not None] for text in self.contrast or [""] * len(summed)], dtype=np.float32)
        count = (summed * explained).sum(0)
        mean = (summed * explained / np.where(count == 0, 1, count)).T  # [words, T]
        return replace(
            self,
            source_side=source_side,
            target_side=target_side,
            source=mean @ self.source @ columns,
            prefix=mean @ self.prefix @ summed,
            start=mean @ self.start,
            log_probs=None if self.log_probs is None else self.log_probs @ summed,
            chosen=None if self.chosen is None else (~np.array(self.chosen) @ summed == 0).tolist(),
            contrast=None if self.contrast is None else _join(self.contrast, summed, compares_prefixes(self.settings)),
            level="word",
        )

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; `load` reads it."""
        arrays, rest = _parts(self)
        _write(path, arrays, result=rest)

    @classmethod
    def load(cls, path: str | Path) -> "AttributionResult":
        """Read what `save` wrote."""
        results = _load(path)
        if len(results) != 1:
            raise InputError("path", None, f"{path} has {len(results)} results", "use AttributionResults.load")
        return results[0]

    def to_html(self) -> str:
        """A self-contained HTML page."""
        from hf_nmt_interp.report.html import render

        return render([self])

    def _repr_html_(self) -> str:
        from hf_nmt_interp.report.html import frame

        return frame([self])

    def __repr__(self) -> str:
        shares = self.source_contribution[~np.isnan(self.source_contribution)]
        share = shares.mean() if shares.size else float("nan")
        shown = (side.text for side in (self.source_side, self.target_side))
        pair = " -> ".join(repr(text if len(text) <= 40 else text[:37] + "...") for text in shown)
        gap = "" if self.conservation_gap is None else f", conservation gap {self.conservation_gap:.1e}"
        T, S = self.source.shape
        return f"AttributionResult({pair}, {self.method}, {S} x {T} {self.level}s, source share {share:.2f}{gap})"


class AttributionResults(list[AttributionResult]):
    """A list of results that can be saved, and that notebooks display as a page.

    >>> results = AttributionResults()
    >>> results.text, type(results[:2]).__name__
    ([], 'AttributionResults')
    """

    @property
    def text(self) -> list[str]:
        """The translations."""
        return [result.text for result in self]

    def to_words(self) -> "AttributionResults":
        """The results at word level."""
        return AttributionResults(result.to_words() for result in self)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each score, see `hf_nmt_interp.to_pandas`."""
        from hf_nmt_interp.report.bridges import to_pandas

        return to_pandas(self)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; `load` reads it."""
        parts = [_parts(result, f"{n}.") for n, result in enumerate(self)]
        arrays = {name: array for own, _ in parts for name, array in own.items()}
        _write(path, arrays, results=[rest for _, rest in parts])

    @classmethod
    def load(cls, path: str | Path) -> "AttributionResults":
        """Read a file written by `save`, of a list or of a single result."""
        return cls(_load(path))

    def to_html(self) -> str:
        """A self-contained HTML page."""
        from hf_nmt_interp.report.html import render

        return render(self)

    def _repr_html_(self) -> str:
        from hf_nmt_interp.report.html import frame

        return frame(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> AttributionResult: ...
    @overload
    def __getitem__(self, index: slice) -> "AttributionResults": ...
    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return AttributionResults(found) if isinstance(index, slice) else found


def _parts(result: AttributionResult, before: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a result, with this prefix in their names, and the other fields, for JSON."""
    found = {f"{before}{name}": getattr(result, name) for name in ("source", "prefix", "start", "log_probs")}
    rest = {
        name: getattr(result, name)
        for name in ("conservation_gap", "method", "settings", "level", "chosen", "contrast")
    }
    rest["translation"] = None if result.translation is None else vars(result.translation)
    rest["links"] = None if result.links is None else sorted(result.links)
    rest |= {"source_side": vars(result.source_side), "target_side": vars(result.target_side)}
    return {name: np.ascontiguousarray(array) for name, array in found.items() if array is not None}, rest


def _write(path: str | Path, arrays: dict[str, np.ndarray], **rest: Any) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    if os.path.exists(path) and not os.path.isfile(path):  # a device would be replaced by a file
        raise InputError("path", None, f"{path} is a folder or a device", "give a file name")
    metadata = {name: json.dumps(value, ensure_ascii=False) for name, value in rest.items()}
    try:
        save_file(arrays, path, {"format": _FORMAT, "version": str(_VERSION)} | metadata)
    except SafetensorError as error:
        raise InputError("path", None, f"{path} cannot be written ({error})") from error


def _load(path: str | Path) -> list[AttributionResult]:
    """The results in a file, of a single result or of a list."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            metadata, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != _FORMAT:
            raise ValueError("it is of another format")
        is_newer = int(metadata["version"]) > _VERSION
        found = [] if is_newer else [AttributionResult(**fields) for fields in _read_all(metadata, arrays)]
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError("path", None, f"{path} is not a saved AttributionResult ({error})") from error
    if is_newer:
        problem = f"{path} has version {metadata['version']}"
        raise InputError("path", None, problem, "update hf_nmt_interp to read it")
    return found


def _read_all(metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    if "results" not in metadata:
        yield _read(json.loads(metadata["result"]), arrays)
        return
    own: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        number, _, name = name.partition(".")
        own.setdefault(number, {})[name] = array
    for n, rest in enumerate(json.loads(metadata["results"])):
        yield _read(rest, own[str(n)])


def _read(rest: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Fields of a saved result; raises ValueError, TypeError or KeyError for anything else."""
    rest = dict(rest)
    if wrong := [name for name, array in arrays.items() if array.dtype.kind != "f"]:
        raise ValueError(f"{wrong[0]} must have floats")
    if not all(type(chosen) is bool for chosen in rest.get("chosen") or ()):
        raise ValueError("chosen: all must be true or false")
    if not all(text is None or isinstance(text, str) for text in rest.get("contrast") or ()):
        raise ValueError("contrast: all must be text")
    for name in ("source_side", "target_side"):
        side = rest[name] = TokenWords(**rest[name])
        if not len(side.tokens) == len(side.word_ids) == len(side.special):
            raise ValueError(f"{name}: its lists differ in length")
        if not all(isinstance(text, str) for text in [*side.tokens, *side.words]):
            raise ValueError(f"{name}: its tokens and words must be text")
        if not all(word is None or (type(word) is int and 0 <= word < len(side.words)) for word in side.word_ids):
            raise ValueError(f"{name}: a token belongs to a missing word")
    if (ids := rest.get("translation")) is not None:
        rest["translation"] = Translation(**ids)
    if (links := rest.get("links")) is not None:
        rest["links"] = {(i, j) for i, j in links}
        sides = [range(len(rest[name].words)) for name in ("source_side", "target_side")]
        if not all(i in sides[0] and j in sides[1] for i, j in rest["links"]):
            raise ValueError("links: all must be between its words")
    return rest | arrays


def _join(texts: list[str | None], summed: np.ndarray, first: bool) -> list[str | None]:
    """The unique texts of each word's tokens, or only the first one, for a matrix [tokens, words]."""
    found = [dict.fromkeys(text for text, own in zip(texts, word, strict=True) if text and own) for word in summed.T]
    return [" ".join([*some][:1] if first else some) or None for some in found]


def _merge(side: TokenWords) -> tuple[np.ndarray, TokenWords]:
    """0/1 matrix [tokens, units] from tokens to words (special tokens are separate units), and the units."""
    units: list[int | str] = []  # a word's index, or the text of a special token
    column = []
    for token, word in zip(side.tokens, side.word_ids, strict=True):
        if word is None or not units or units[-1] != word:
            units.append(token if word is None else word)
        column.append(len(units) - 1)
    names = [unit if isinstance(unit, str) else side.words[unit] for unit in units]
    special = [isinstance(unit, str) for unit in units]
    ids = [None if isinstance(unit, str) else unit for unit in units]
    return np.eye(len(units), dtype=np.float32)[column], TokenWords(names, side.words, ids, special)
