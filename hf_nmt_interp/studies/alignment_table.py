"""How well each method aligns words, against gold links and against a statistical aligner (ding2019, sections 5, 6).

`force`: two translators of opposite directions are led through the gold sentence pairs. `free`: each translates its
side of them, and the reference is made of eflomal's two directions: the intersection is sure, the rest of the union
possible. What is computed is kept in a folder line by line, so that a run that was cut off goes on.

Definitions: docs/methods.md, Word alignment.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_nmt_interp.analysis.alignment import (
    combined_scores,
    dispersion,
    extract_links,
    joint_links,
    make_aligner,
    normalise,
    word_scores,
)
from hf_nmt_interp.analysis.symmetrization import HEURISTICS, flip, symmetrize
from hf_nmt_interp.analysis.yardstick import eflomal_links
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.decoding.pairs import Pairs, encode_sources
from hf_nmt_interp.metrics.aer.rate import alignment_error_rate
from hf_nmt_interp.studies.best_attention import agreeing_attention, attention_links
from hf_nmt_interp.text.corpus import Pair, read_parallel
from hf_nmt_interp.text.pharaoh import Links, read_links, write_links
from hf_nmt_interp.text.tokens import separate_punctuation

Row = dict[str, Any]
Gold = tuple[Sequence[Links], Sequence[Links]]  # sure and possible links of each pair
Training = tuple[Path, Path]  # text files whose lines belong together
Matrices = list[np.ndarray]  # [target words, source words] of each pair

FIXED: dict[str, tuple[str, dict[str, Any]]] = {  # row -> method, settings
    "attention": ("attention", {"layer": -1}),
    "smoothed attention": ("smoothed_attention", {"layer": -1}),
    "Li grad": ("saliency", {"aggregate": "li2016"}),
    "Li SmoothGrad": ("saliency", {"aggregate": "li2016", "smoothgrad": 30}),
    "grad": ("saliency", {}),
    "SmoothGrad": ("saliency", {"smoothgrad": 30}),
    "SmoothGrad 0.2": ("saliency", {"smoothgrad": 30, "sigma": 0.2}),
    "LRP": ("lrp", {}),
    "mask": ("mask", {}),
}
CHOSEN = {  # row -> heads, shifted of `agreeing_attention`
    "best attention": (True, False),
    "shifted attention": (False, True),
    "best shifted attention": (True, True),
}
COMBINED = {  # row -> rows whose scores are combined
    "shifted + Li grad": ("best shifted attention", "Li grad"),
    "shifted + Li grad + SmoothGrad": ("best shifted attention", "Li grad", "SmoothGrad 0.2"),
}
ROWS = (*FIXED, *CHOSEN, *COMBINED)
LEAST = 0.2  # of the joint links that are not doubtful
DIRECTIONS = ("forward", "backward")


class AlignmentTable:
    """Makes the rows of the table one by one."""

    def __init__(
        self,
        forward: tuple[Any, Any],  # source-target model and tokenizer
        backward: tuple[Any, Any],  # target-source model and tokenizer
        pairs: Sequence[Pair],  # gold sentence pairs, words between spaces
        gold: Gold,  # their sure and possible links
        folder: str | Path,  # for results; texts and weights are compared, so that it can be used again and again
        batch_size: int = 16,  # pairs at a time
        say: Callable[[str], None] = lambda line: None,  # called with a line about each batch
    ) -> None:
        self.translators, self.gold = dict(zip(DIRECTIONS, (forward, backward), strict=True)), gold
        self.folder, self.batch_size, self.say = Path(folder), batch_size, say
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pairs = {"forward": list(pairs), "backward": [(target, source) for source, target in pairs]}
        self._weights = {name: _weights(model) for name, (model, _) in self.translators.items()}
        self._choices: dict[str, dict[str, dict[str, Any]]] = {}

    def rows(self) -> list[str]:
        """Rows that both translators can have: only calibrated ones have masks, LSTMs no LRP."""
        models = [model for model, _ in self.translators.values()]
        misfits = {row for row, (name, _) in FIXED.items() if not all(METHODS[name].fits(model) for model in models)}
        return [name for name in ROWS if misfits.isdisjoint((name, *COMBINED.get(name, ())))]

    def force(self, names: Sequence[str] | None = None) -> Iterator[Row]:
        """Rows of both directions and of all symmetrisations for each method.

        `joint` ones take the links of both directions from the product of their soft scores, the last of them without
        those that have less than `LEAST` of their words' scores.
        """
        asked = {direction: self._force(direction) for direction in DIRECTIONS}
        for name in names or self.rows():
            scores = [self._scores("force", name, d, asked[d]) for d in DIRECTIONS]
            found = [[_turned(extract_links(m), d) for m in own] for d, own in zip(DIRECTIONS, scores, strict=True)]
            yield from self._symmetrized(name, found, scores)
            for h, least in [*((h, 0.0) for h in HEURISTICS), ("grow-diag", LEAST)]:
                links = [joint_links(f, b, h, least=least) for f, b in zip(*scores, strict=True)]
                yield _row("force", name, f"joint {h}" + f" {least}" * (least > 0), links, self.gold)

    def _symmetrized(self, name: str, links: Sequence[Any], scores: Sequence[Any] = (None, None)) -> Iterator[Row]:
        """Rows of the links of both directions, each source-target, and of their symmetrisations."""
        for direction, own, matrices in zip(DIRECTIONS, links, scores, strict=True):
            yield _row("force", name, direction, own, self.gold, matrices)
        for heuristic in HEURISTICS:
            yield _row("force", name, heuristic, symmetrize(links[0], links[1], heuristic), self.gold)

    def eflomal(self, training: Training, others: Sequence[Pair] = ()) -> Iterator[Row]:
        """Rows of eflomal, which is trained on the gold text, other text and the training text at once."""
        found = self._eflomal([*self.pairs["forward"], *others], training)
        yield from self._symmetrized("eflomal", [links[: len(self.pairs["forward"])] for links in found])

    def free(self, training: Training, names: Sequence[str] | None = None) -> Iterator[Row]:
        """Rows of both directions for each method: how well the translators' own output is aligned."""
        own = self._own(training)
        for name in names or self.rows():
            for direction, (asked, reference) in own.items():
                matrices = self._scores("free", name, direction, asked)
                yield _row("free", name, direction, [extract_links(m) for m in matrices], reference, matrices)

    def noise(self, sigmas: Sequence[float], training: Training | None = None) -> Iterator[Row]:
        """Rows of SmoothGrad by its noise, forward direction, 0 is the gradient itself; with `training` also free."""
        parts = {"force": (self._force("forward"), self.gold)}
        if training:
            parts["free"] = self._own(training)["forward"]
        for part, (asked, gold) in parts.items():
            for sigma in sigmas:
                method, settings = FIXED["SmoothGrad" if sigma else "grad"]
                changed = settings | ({"sigma": sigma} if sigma not in (0, 0.15) else {})
                matrices = self._kept_scores(part, "forward", asked, method, changed)
                links = [extract_links(matrix) for matrix in matrices]
                yield _row(f"{part} noise", f"sigma {sigma:g}", "forward", links, gold, matrices)

    def _method(self, name: str, direction: str) -> tuple[str, dict[str, Any]]:
        if name in FIXED:
            return FIXED[name]
        if not self._choices:
            self.say("choosing attention layers and heads by agreement of the two directions")
            size = self.batch_size
            links = [attention_links(*self.translators[d], *_sides(self.pairs[d]), size) for d in DIRECTIONS]
            for row, (heads, shifted) in CHOSEN.items():
                choices = zip(DIRECTIONS, agreeing_attention(links[0], links[1], heads, shifted), strict=True)
                self._choices[row] = {d: {"layer": c.layer, "head": c.head, "shifted": c.shifted} for d, c in choices}
        return "attention", self._choices[name][direction]

    def _force(self, direction: str) -> Pairs:
        return Pairs.force(*self.translators[direction], *_sides(self.pairs[direction]))

    def _free(self, direction: str) -> Pairs:
        model, tokenizer = self.translators[direction]
        encoded = encode_sources(model, tokenizer, _sides(self.pairs[direction])[0])
        path = self.folder / f"free-{direction}-translations-{self._weights[direction]}.jsonl"

        def translate(rows: slice) -> list[Any]:
            found = Pairs.translate(model, tokenizer, encoded[rows], self.batch_size)
            return [[pair.ids.target_ids, pair.ids.start_id] for pair in found]

        answers = self._kept(path, [e.ids for e in encoded], translate)
        made = [Translation(e.ids, *answer) for e, answer in zip(encoded, answers, strict=True)]
        return Pairs.caught(model, tokenizer, made, encoded)

    def _own(self, training: Training) -> dict[str, tuple[Pairs, Gold]]:
        """What each translator made of its side, and the links eflomal finds there, as reference."""
        asked = {direction: self._free(direction) for direction in DIRECTIONS}
        texts = _texts(asked["forward"]) + [pair[::-1] for pair in _texts(asked["backward"])]
        found, count = self._eflomal(texts, training), len(self.pairs["forward"])
        own: dict[str, tuple[Pairs, Gold]] = {}
        for direction, part in (("forward", slice(count)), ("backward", slice(count, None))):
            one, other = ([_turned(links, direction) for links in side[part]] for side in found)
            reference = symmetrize(one, other, "intersection"), symmetrize(one, other, "union")
            own[direction] = asked[direction], reference
        return own

    def _scores(self, part: str, name: str, direction: str, asked: Pairs) -> Matrices:
        if name in COMBINED:
            parts = [self._scores(part, row, direction, asked) for row in COMBINED[name]]
            return [combined_scores(matrices) for matrices in zip(*parts, strict=True)]
        return self._kept_scores(part, direction, asked, *self._method(name, direction))

    def _kept_scores(self, part: str, direction: str, asked: Pairs, method: str, settings: dict[str, Any]) -> Matrices:
        explainer = make_aligner(self.translators[direction][0], method, **settings)
        what = "-".join([method, *(f"{key}={value}" for key, value in settings.items())])
        path = self.folder / f"{part}-{direction}-{what}-{self._weights[direction]}.jsonl"

        def score(rows: slice) -> list[Any]:
            results = explain(explainer, asked[rows], self.batch_size)
            words = (word_scores(r.source, r.source_side, r.target_side) for r in results)
            return [[[float(f"{x:.5g}") for x in row] for row in matrix] for matrix in words]

        keys = [[pair.ids.source_ids, pair.ids.target_ids] for pair in asked]
        return [np.array(x) for x in self._kept(path, keys, score)]

    def _kept(self, path: Path, keys: Sequence[Any], compute: Callable[[slice], list[Any]]) -> list[Any]:
        """A value for each key: those at the head of the file whose keys agree, the others computed batch by batch."""
        found: list[Any] = []
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            while len(found) < len(keys) and (line := file.readline()).endswith("\n"):
                key, value = json.loads(line)
                if key != keys[len(found)]:
                    break
                found.append(value)
                end = file.tell()
            if len(found) < len(keys):
                file.truncate(end if found else 0)
            for start in range(len(found), len(keys), self.batch_size):
                rows = slice(start, start + self.batch_size)
                new = compute(rows)
                for key, value in zip(keys[rows], new, strict=True):
                    file.write(json.dumps([key, value]) + "\n")
                file.flush()
                found += new
                self.say(f"{path.stem}: {len(found)} of {len(keys)}")
        return found

    def _eflomal(self, pairs: Sequence[Pair], training: Training) -> tuple[list[Links], list[Links]]:
        digest = hashlib.sha256(json.dumps([pairs]).encode())
        for path in training:
            digest.update(path.read_bytes())
        paths = [self.folder / f"eflomal-{name}-{digest.hexdigest()[:12]}.links" for name in DIRECTIONS]
        if not all(path.exists() for path in paths):
            self.say("eflomal")
            lines = ((separate_punctuation(s), separate_punctuation(t)) for s, t in read_parallel(*training))
            for path, links in zip(paths, eflomal_links(pairs, lines), strict=True):
                write_links(path, links)
        forward, backward = map(read_links, paths)
        return forward, backward


def _weights(model: Any) -> str:
    digest = hashlib.sha256()
    for weights in model.state_dict().values():
        digest.update(weights.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def _sides(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[list[str]]]:
    return [source.split() for source, _ in pairs], [target.split() for _, target in pairs]


def _texts(pairs: Pairs) -> list[Pair]:
    """Words joined by spaces."""
    return [(" ".join(pair.source.words), " ".join(pair.target.words)) for pair in pairs]


def _turned(links: Links, direction: str) -> Links:
    return links if direction == "forward" else flip(links)


def _row(table: str, name: str, alignment: str, links: list[Links], gold: Gold, scores: Matrices | None = None) -> Row:
    row = {"table": table, "method": name, "alignment": alignment, "pairs": len(links)}
    entropy = dispersion(normalise(matrix) for matrix in scores) if scores else None
    return row | alignment_error_rate(links, *gold) | {"entropy": entropy}
