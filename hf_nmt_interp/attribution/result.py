"""The explanation of one sentence pair.

Definitions: docs/methods.md, Attribution result.
"""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import TokenWords

_FORMAT, _VERSION = "hf_nmt_interp.attribution", 1


@dataclass(frozen=True, eq=False, repr=False)
class AttributionResult:
    """How much every token contributed to every step of one translation.

    Attributes:
        source_side: source tokens and their words.
        target_side: target tokens (without the start token, with EOS) and their words.
        source: [T, S], contribution of source token i to step t.
        prefix: [T, T], contribution of target token j to step t; 0 for j >= t (word level: for j > t).
        start: [T], contribution of the decoder start token.
        log_probs: [T], log-probability of the target tokens.
        conservation_gap: LRP: largest |1 - total| over the steps; None for methods without a fixed total.
        method: name of the method.
        settings: its settings.
        level: "token", or "word" after `to_words()`.
        chosen: [T], whether the tokens of a given target are the model's first choices (of a word: all its tokens);
            None for translations that the model made.
        translation: the ids that were explained.
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

    def __post_init__(self) -> None:
        S, T = len(self.source_side.tokens), len(self.target_side.tokens)
        shapes = {"source": (T, S), "prefix": (T, T), "start": (T,), "log_probs": (T,), "chosen": (T,)}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is not None and np.shape(value) != shape:
                raise InputError(name, None, f"shape {np.shape(value)} does not fit {T} target and {S} source tokens")

    @property
    def source_tokens(self) -> list[str]:
        """Source tokens as shown."""
        return self.source_side.tokens

    @property
    def target_tokens(self) -> list[str]:
        """Target tokens as shown, without the start token, with EOS."""
        return self.target_side.tokens

    @property
    def source_contribution(self) -> np.ndarray:
        """[T], source mass / (source + prefix mass); 1 at the first step (voita2021, section 2.3)."""
        source, prefix = self.source.sum(-1), self.prefix.sum(-1)
        total = source + prefix
        return np.divide(source, total, out=np.full_like(source, np.nan), where=total != 0)

    @property
    def source_part(self) -> np.ndarray:
        """[T], source mass / (source + prefix + start mass): what voita2021's figures show."""
        source = self.source.sum(-1)
        total = source + self.prefix.sum(-1) + self.start
        return np.divide(source, total, out=np.full_like(source, np.nan), where=total != 0)

    def to_words(self) -> "AttributionResult":
        """The same at word level: sum over the subwords of a contributing word, mean over those of an explained one.

        Special tokens stay as units of their own, so totals are kept. What a word's first subwords contribute to its
        later ones stands on the diagonal of `prefix`.
        """
        if self.level == "word":
            return self
        columns, source_side = _merge(self.source_side)
        summed, target_side = _merge(self.target_side)
        mean = (summed / summed.sum(0)).T  # [words, T]
        return replace(
            self,
            source_side=source_side,
            target_side=target_side,
            source=mean @ self.source @ columns,
            prefix=mean @ self.prefix @ summed,
            start=mean @ self.start,
            log_probs=None if self.log_probs is None else self.log_probs @ summed,
            chosen=None if self.chosen is None else (~np.array(self.chosen) @ summed == 0).tolist(),
            level="word",
        )

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; `load` reads it."""
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        if os.path.exists(path) and not os.path.isfile(path):  # a device would be replaced by a file
            raise InputError("path", None, f"{path} is a folder or a device", "give the name of a file")
        arrays = {n: getattr(self, n) for n in ("source", "prefix", "start", "log_probs")}
        rest = {n: getattr(self, n) for n in ("conservation_gap", "method", "settings", "level", "chosen")}
        rest["translation"] = None if self.translation is None else vars(self.translation)
        rest |= {"source_side": vars(self.source_side), "target_side": vars(self.target_side)}
        metadata = {"format": _FORMAT, "version": str(_VERSION), "result": json.dumps(rest, ensure_ascii=False)}
        try:
            save_file({n: np.ascontiguousarray(a) for n, a in arrays.items() if a is not None}, path, metadata)
        except SafetensorError as error:
            raise InputError("path", None, f"{path} cannot be written ({error})") from error

    @classmethod
    def load(cls, path: str | Path) -> "AttributionResult":
        """Read what `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                metadata, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata.get("format") != _FORMAT:
                raise ValueError("it is of another format")
            is_newer = int(metadata["version"]) > _VERSION
            found = None if is_newer else cls(**_read(metadata["result"], arrays))
        except (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError("path", None, f"{path} is not a saved AttributionResult ({error})") from error
        if found is None:
            problem = f"{path} has version {metadata['version']}"
            raise InputError("path", None, problem, "update hf_nmt_interp to read it")
        return found

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
        shown = (" ".join(side.words) for side in (self.source_side, self.target_side))
        pair = " -> ".join(repr(text if len(text) <= 40 else text[:37] + "...") for text in shown)
        gap = "" if self.conservation_gap is None else f", conservation gap {self.conservation_gap:.1e}"
        T, S = self.source.shape
        return f"AttributionResult({pair}, {self.method}, {S} x {T} {self.level}s, source share {share:.2f}{gap})"


def _read(text: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Fields of what `save` wrote; raises a ValueError, TypeError or KeyError for anything else."""
    rest: dict[str, Any] = dict(json.loads(text))
    if wrong := [name for name, array in arrays.items() if array.dtype.kind != "f"]:
        raise ValueError(f"{wrong[0]} has other numbers than floats")
    if not all(type(chosen) is bool for chosen in rest.get("chosen") or ()):
        raise ValueError("chosen: not all are true or false")
    for name in ("source_side", "target_side"):
        side = rest[name] = TokenWords(**rest[name])
        if not len(side.tokens) == len(side.word_ids) == len(side.special):
            raise ValueError(f"{name}: its lists are not of one length")
        if not all(isinstance(text, str) for text in [*side.tokens, *side.words]):
            raise ValueError(f"{name}: its tokens and words are not all text")
        if not all(word is None or (type(word) is int and 0 <= word < len(side.words)) for word in side.word_ids):
            raise ValueError(f"{name}: a token is of a word that is not there")
    if (ids := rest.get("translation")) is not None:
        rest["translation"] = Translation(**ids)
    return rest | arrays


def _merge(side: TokenWords) -> tuple[np.ndarray, TokenWords]:
    """0/1 matrix [tokens, units] from tokens to words (special tokens are units of their own), and the units."""
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
