"""What the decoder reads in a contribution study (voita2021, sections 4 to 6): one class per kind, registered below.

Heavy imports are inside functions: the command line names the kinds in its help.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hf_nmt_interp.errors import InputError, rows_among

if TYPE_CHECKING:
    from hf_nmt_interp.decoding.pairs import Pairs
    from hf_nmt_interp.text.tokens import Encoded


@dataclass(frozen=True)
class LengthSet:
    """Sentence pairs of about one source and one target length; `pool` also has the other sources of that length."""

    lengths: tuple[int, int]
    sources: Sequence["Encoded"]
    targets: Sequence["Encoded"]
    pool: Sequence["Encoded"]
    rows: Sequence[int]  # their indices among all pairs
    pool_rows: Sequence[int]
    within: int = 0  # by how many tokens a length may differ

    def checked(self, model: Any, tokenizer: Any) -> "LengthSet":
        """The same set, checked once against a model, for all kinds of prefixes."""
        from hf_nmt_interp.decoding.pairs import encode_sources, encode_targets

        texts = dict(zip([*self.pool_rows, *self.rows], [*self.pool, *self.sources], strict=True))
        with rows_among(list(texts)):
            encoded = dict(zip(texts, encode_sources(model, tokenizer, list(texts.values())), strict=True))
        with rows_among(self.rows):
            targets = encode_targets(model, tokenizer, self.targets)
        sources, pool = ([encoded[row] for row in rows] for rows in (self.rows, self.pool_rows))
        return replace(self, sources=sources, targets=targets, pool=pool)


class Prefix(ABC):
    """A kind of prefix."""

    is_reference = False  # whether the labels are references, so accuracy is meaningful
    is_shared = True  # whether all models read the same prefix, so their influences can be compared

    @abstractmethod
    def pairs(self, found: LengthSet, model: Any, tokenizer: Any, seed: int, **translating: Any) -> "Pairs":
        """Sources of a set, with the targets that serve as prefixes; `translating` as for `Pairs.translate`."""


class Reference(Prefix):
    """The references."""

    is_reference = True

    def pairs(self, found: LengthSet, model: Any, tokenizer: Any, seed: int, **translating: Any) -> "Pairs":
        from hf_nmt_interp.decoding.pairs import Pairs

        return Pairs.force(model, tokenizer, found.sources, found.targets)


class Own(Prefix):
    """The model's translations of sources of the same length; those of the target length are kept."""

    is_shared = False

    def pairs(self, found: LengthSet, model: Any, tokenizer: Any, seed: int, **translating: Any) -> "Pairs":
        from hf_nmt_interp.decoding.pairs import Pairs

        made = Pairs.translate(model, tokenizer, found.pool, **translating)
        source, target = found.lengths
        kept = [n for n, pair in enumerate(made) if abs(len(pair.ids.target_ids) - target) <= found.within]
        if not kept:
            problem = f"none of {len(made)} sources of {source} tokens has a translation of {target} tokens"
            raise InputError("lengths", None, problem, "use other lengths or more sentences")
        return made.pick(kept[: len(found.sources)])


class Shuffled(Prefix):
    """References of other sentences of the set, shuffled."""

    def pairs(self, found: LengthSet, model: Any, tokenizer: Any, seed: int, **translating: Any) -> "Pairs":
        import numpy as np

        from hf_nmt_interp.decoding.pairs import Pairs

        targets = found.targets
        if len(targets) < 2:
            remedy = "give more sentences"
            raise InputError("prefixes", None, "random ones need two sentences of the same lengths", remedy)
        order = np.random.default_rng(seed).permutation(len(targets))
        after = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))  # never its own
        return Pairs.force(model, tokenizer, found.sources, [targets[after[i]] for i in range(len(targets))])


PREFIXES: dict[str, Prefix] = {"reference": Reference(), "model": Own(), "random": Shuffled()}
