"""Roles of attention heads, by where they attend (voita2019, sections 4 and 5).

A score is a class and a line in `HEAD_SCORES`. The class sees the attention of a layer's heads sentence by sentence,
names the roles of a head with such scores, and describes itself: its columns in a report, the facts that corpus runs
store for each sentence, and what tables and figures show. Definitions: docs/methods.md, Head roles.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

RELATIONS = ("nsubj", "obj", "amod", "advmod")
DIRECTIONS = ("to_head", "to_dependent")
POSITIONAL_SHARE = 0.9  # "at least 90% of the time"
SYNTACTIC_RATIO = 1.1  # "at least 10% higher than the baseline"
RARE_SHARE = 0.5  # "one of the two least frequent tokens in more than 50% of such cases"
COMMON = 500  # "the top-500 most frequent tokens"

Row = dict[str, Any]


class Relation(NamedTuple):
    """A dependency between two words, by their indices."""

    dependent: int
    head: int
    name: str


@dataclass(frozen=True)
class View:
    """Attention of the heads of one layer in one sentence, without special tokens on both sides.

    Attributes:
        weights: [H, Q, K] attention of queries to keys; rows sum to less than 1, because special tokens are left out.
        queries: [Q] positions in their sequence.
        keys: [K] positions in their sequence.
        counts: [K] how often each key's token occurs in the corpus.
        common: [K] whether it is one of the most frequent tokens.
        relations: relations between the words, if queries and keys are words.
    """

    weights: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    counts: np.ndarray | None = None
    common: np.ndarray | None = None
    relations: Sequence[Relation] = ()


class HeadScore(ABC):
    """Scores of the heads of one layer, from facts about each sentence.

    Attributes:
        level: kind of views it needs: "token", or "word" for sentences with trees.
        has_roles: whether it assigns roles, not only a score.
        column_types: names of its columns in a report, and their Python types.
        fact_types: names of its facts, and their Python types; corpus runs keep them and count them later.
        shown: headings of its columns in a terminal, and formats of a report's row; by default all columns.
    """

    level: ClassVar[str] = "token"
    has_roles: ClassVar[bool] = True
    column_types: ClassVar[dict[str, Any]]
    fact_types: ClassVar[dict[str, Any]] = {}
    shown: ClassVar[dict[str, str]] = {}

    def add(self, view: View) -> None:
        """Add a sentence."""
        self.add_known(self.facts(view))

    def facts(self, view: View) -> dict[str, list]:
        """A plain value per head for each of `fact_types`, None if unknown."""
        return {}

    def add_known(self, facts: dict[str, list]) -> None:
        """Add the facts of a sentence, if they include known facts of this score."""
        if any(facts.get(name, [None])[0] is not None for name in self.fact_types):
            self.add_facts(facts)

    def add_facts(self, facts: dict[str, list]) -> None:
        """Add the facts of a sentence, which may also include facts of other scores."""
        raise NotImplementedError

    @abstractmethod
    def columns(self) -> dict[str, Sequence]:
        """A value per head for each known one of `column_types`."""

    def about(self) -> dict[str, Any]:
        """Facts about the sentences, the same for every head and layer."""
        return {}

    @staticmethod
    def roles(row: Row) -> list[str]:
        """Details of the roles of a head with such scores, "" for a role without details."""
        return []

    @staticmethod
    def short(detail: str) -> str:
        """The detail of a role in a few letters, for tables and figures; "" for the role's name."""
        return detail

    @classmethod
    def cells(cls, row: Row) -> dict[str, str]:
        """The scores for a terminal; unknown ones are empty."""
        formats = {name: f"{{{name}:{'.0%' if kind is float else ''}}}" for name, kind in cls.column_types.items()}
        known = {name: value for name, value in row.items() if value is not None}
        found = dict.fromkeys(cls.shown or formats, "")
        for heading, text in (cls.shown or formats).items():
            with suppress(KeyError):
                found[heading] = text.format_map(known)
        return found


class Confidence(HeadScore):
    """Mean over tokens of the largest attention weight."""

    has_roles = False
    column_types: ClassVar = {"confidence": float}
    fact_types: ClassVar = {"largest_weights": float, "tokens": int}
    shown: ClassVar = {"conf.": "{confidence:.0%}"}

    def __init__(self) -> None:
        self.total: Any = 0
        self.tokens = 0

    def facts(self, view: View) -> dict[str, list]:
        largest = view.weights.max(-1).sum(-1, dtype=float)  # [H]
        return {"largest_weights": largest.tolist(), "tokens": [len(view.queries)] * len(largest)}

    def add_facts(self, facts: dict[str, list]) -> None:
        self.total = self.total + np.array(facts["largest_weights"])
        self.tokens += facts["tokens"][0]

    def columns(self) -> dict[str, Sequence]:
        return {"confidence": (self.total / self.tokens).tolist()} if self.tokens else {}


class Positional(HeadScore):
    """The most frequent relative position, key - query, of the largest weight, and its share.

    The share counts only queries that have a key at that position: the first token has no left neighbour. For
    cross-attention it is the position of a source token minus that of the token to be predicted; for decoder
    self-attention 0 is the decoder's input at the step, the last token translated.
    """

    column_types: ClassVar = {"position": int, "position_share": float}
    fact_types: ClassVar = {"offsets": list[int], "queries": list[int], "keys": list[int]}
    shown: ClassVar = {"position": "{position:+d} {position_share:.0%}"}

    def __init__(self) -> None:
        self.offsets: dict[int, Counter[int]] = defaultdict(Counter)
        self.possible: Counter[int] = Counter()  # queries that have a key at a relative position

    def facts(self, view: View) -> dict[str, list]:
        offsets = view.keys[view.weights.argmax(-1)] - view.queries  # [H, Q]
        places = {name: [getattr(view, name).tolist()] * len(offsets) for name in ("queries", "keys")}
        return {"offsets": offsets.tolist()} | places

    def add_facts(self, facts: dict[str, list]) -> None:
        self.possible.update(np.subtract.outer(facts["keys"][0], facts["queries"][0]).ravel().tolist())
        for head, row in enumerate(facts["offsets"]):
            self.offsets[head].update(row)

    def columns(self) -> dict[str, Sequence]:
        if not self.offsets:
            return {}
        # ties: the nearest, then the preceding one, so the order of the sentences does not matter
        heads = self.offsets.values()
        best = [max(counts, key=lambda offset: (counts[offset], -abs(offset), -offset)) for counts in heads]
        shares = [counts[offset] / self.possible[offset] for offset, counts in zip(best, heads, strict=True)]
        return {"position": best, "position_share": shares}

    @staticmethod
    def roles(row: Row) -> list[str]:
        return [f"{row['position']:+d}"] if (row.get("position_share") or 0) >= POSITIONAL_SHARE else []


class Syntactic(HeadScore):
    """Share of a relation's words whose largest weight is on the other word, in each direction.

    The baseline, the same for both directions, always attends to the relation's most frequent relative position. The
    paper's "10% higher than the baseline" is taken literally: accuracy >= 1.1 baseline. A relation's subtypes
    (`nsubj:pass`) are separate relations, as in the paper's annotation.
    """

    level = "word"
    column_types: ClassVar = {f"{name}_{end}": float for name in RELATIONS for end in (*DIRECTIONS, "baseline")}

    def __init__(self) -> None:
        self.hits: dict[str, Any] = defaultdict(int)
        self.offsets: dict[str, Counter[int]] = {name: Counter() for name in RELATIONS}

    def add(self, view: View) -> None:
        best = view.weights.argmax(-1)  # [H, W]
        for dependent, head, name in view.relations:
            if name in self.offsets:
                self.hits[f"{name}_to_head"] += best[:, dependent] == head
                self.hits[f"{name}_to_dependent"] += best[:, head] == dependent
                self.offsets[name][head - dependent] += 1

    def columns(self) -> dict[str, Sequence]:
        found: dict[str, Sequence] = {}
        for name, counts in self.offsets.items():
            if total := counts.total():
                hits = {f"{name}_{direction}": self.hits[f"{name}_{direction}"] for direction in DIRECTIONS}
                heads = len(hits[f"{name}_to_head"])
                found |= {column: (values / total).tolist() for column, values in hits.items()}
                found[f"{name}_baseline"] = [counts.most_common(1)[0][1] / total] * heads
        return found

    def about(self) -> dict[str, Any]:
        """For each relation, how often the dependent is at a position relative to its head (figure 3)."""
        offsets = {name: {-o: n for o, n in counts.items()} for name, counts in self.offsets.items() if counts}
        return {
            "dependents": {name: {f"{o:+d}": counts[o] for o in sorted(counts)} for name, counts in offsets.items()}
        }

    @staticmethod
    def _accuracies(row: Row) -> list[tuple[str, float, float]]:
        """Relation and direction, accuracy and baseline of those that are known."""
        known = [(name, row[f"{name}_baseline"]) for name in RELATIONS if row.get(f"{name}_baseline") is not None]
        return [(f"{name}_{end}", row[f"{name}_{end}"], baseline) for name, baseline in known for end in DIRECTIONS]

    @staticmethod
    def roles(row: Row) -> list[str]:
        found = Syntactic._accuracies(row)
        return [name for name, accuracy, baseline in found if accuracy >= SYNTACTIC_RATIO * baseline - 1e-9]

    @staticmethod
    def short(detail: str) -> str:
        return detail.replace("_to_head", "→head").replace("_to_dependent", "→dep")

    @classmethod
    def cells(cls, row: Row) -> dict[str, str]:
        found = cls._accuracies(row)
        name, accuracy, baseline = max(found, key=lambda one: (one[1] / max(one[2], 1e-9), one[0]), default=("", 0, 0))
        return {"best relation": f"{cls.short(name)} {accuracy:.0%}/{baseline:.0%}" if name else ""}


class RareWords(HeadScore):
    """Share of the sentences with an uncommon token in which a head attends to the rarest tokens.

    A head attends to the token with the largest sum of weights over the queries. `rarest`: this token is as rare as
    the rarest token of the sentence; `two_rarest`: as rare as the second rarest.
    """

    column_types: ClassVar = {"rarest": float, "two_rarest": float}
    fact_types: ClassVar = {"rarest": bool, "two_rarest": bool}
    shown: ClassVar = {"rare": "{two_rarest:.0%}"}

    def __init__(self) -> None:
        self.hits: dict[str, Any] = {"rarest": 0, "two_rarest": 0}
        self.sentences = 0

    def facts(self, view: View) -> dict[str, list]:
        if view.counts is None or view.common is None or view.common.all():
            return {name: [None] * len(view.weights) for name in self.hits}
        seen = view.counts[view.weights.sum(1).argmax(-1)]  # [H]
        rarest = np.sort(view.counts)[:2]
        return {"rarest": (seen <= rarest[0]).tolist(), "two_rarest": (seen <= rarest[-1]).tolist()}

    def add_facts(self, facts: dict[str, list]) -> None:
        for name in self.hits:
            self.hits[name] = self.hits[name] + np.array(facts[name])
        self.sentences += 1

    def columns(self) -> dict[str, Sequence]:
        return {name: (n / self.sentences).tolist() for name, n in self.hits.items()} if self.sentences else {}

    @staticmethod
    def roles(row: Row) -> list[str]:
        return [""] if (row.get("two_rarest") or 0) > RARE_SHARE else []

    @staticmethod
    def short(detail: str) -> str:
        return "rare"


# role or score -> class
HEAD_SCORES: dict[str, type[HeadScore]] = {
    "confidence": Confidence,
    "positional": Positional,
    "syntactic": Syntactic,
    "rare words": RareWords,
}


def roles_of(row: Row) -> list[str]:
    """Roles of a head by its scores, e.g. ["positional: -1", "syntactic: obj_to_head"].

    >>> roles_of({"position": -1, "position_share": 0.95, "two_rarest": 0.2})
    ['positional: -1']
    """
    return [f"{role}: {more}" if more else role for role, score in HEAD_SCORES.items() for more in score.roles(row)]


def short_role(role: str) -> str:
    """A role of `roles_of` in a few letters; a role that is not in `HEAD_SCORES` keeps its detail or name.

    >>> short_role("syntactic: obj_to_head"), short_role("rare words")
    ('obj→head', 'rare')
    """
    name, _, detail = role.partition(": ")
    return HEAD_SCORES.get(name, HeadScore).short(detail) or name
