"""How well each method aligns words, against gold links and against a statistical aligner (ding2019, sections 5, 6).

`force`: one translator, or two of opposite directions, force decode the gold sentence pairs. `free`: each translates
its side of them, and the reference comes from the two directions of a statistical aligner: the intersection is sure,
the rest of the union possible. Results are saved in a folder line by line, so an interrupted run can be resumed.

`as_published` computes the table as the authors' code does: links and entropies of subwords, their form of Li et al.

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
    subword_dispersion,
    subword_links,
    word_scores,
)
from hf_nmt_interp.analysis.own_attention import SENTENCES, best_agreement, occlusion_agreements
from hf_nmt_interp.analysis.symmetrization import HEURISTICS, flip, symmetrize
from hf_nmt_interp.analysis.yardstick import STATISTICAL
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.decoding.pairs import Pairs, encode_sources
from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.metrics.aer.rate import alignment_error_rate, error_margin
from hf_nmt_interp.models.conv import ConvSeq2SeqForConditionalGeneration
from hf_nmt_interp.models.loading import weights_fingerprint
from hf_nmt_interp.studies.best_attention import agreeing_attention, attention_links
from hf_nmt_interp.text.corpus import Pair, read_parallel
from hf_nmt_interp.text.pharaoh import Links, read_links, write_links
from hf_nmt_interp.text.progress import counting, estimate, track
from hf_nmt_interp.text.tokens import separate_punctuation

Row = dict[str, Any]
Gold = tuple[Sequence[Links], Sequence[Links]]  # sure and possible links of each pair
Training = tuple[Path, Path]  # parallel text files
Matrices = list[np.ndarray]  # [target words, source words] of each pair, or of its tokens

FIXED: dict[str, tuple[str, dict[str, Any]]] = {  # row -> method, settings
    "attention": ("attention", {"layer": -1}),
    "smoothed attention": ("smoothed_attention", {"layer": -1, "sigma": 0.15}),
    "smoothed attention, default noise": ("smoothed_attention", {"layer": -1}),
    "Li grad": ("saliency", {"aggregate": "li2016"}),
    "Li SmoothGrad": ("saliency", {"aggregate": "li2016", "smoothgrad": 30, "sigma": 0.15}),
    "grad": ("saliency", {}),
    "SmoothGrad": ("saliency", {"smoothgrad": 30, "sigma": 0.15}),
    "SmoothGrad, default noise": ("saliency", {"smoothgrad": 30}),
    "SmoothGrad 0.2": ("saliency", {"smoothgrad": 30, "sigma": 0.2}),
    "LRP": ("lrp", {}),
    "AttnLRP": ("lrp", {"rule": "attnlrp"}),
    "ALTI": ("alti", {}),
    "integrated gradients": ("integrated_gradients", {"steps": 20}),
    "occlusion": ("occlusion", {}),
    "value zeroing": ("value_zeroing", {}),
    "norm attention": ("norm_attention", {"layer": -1}),
    "rollout": ("rollout", {}),
    "mask": ("mask", {}),
    "alignment head": ("alignment_head", {}),
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
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {  # the rows of the paper, as its code computes them
    **{row: FIXED[row] for row in ("attention", "smoothed attention")},
    "Li grad": ("saliency", {"aggregate": "abs_product"}),
    "Li SmoothGrad": ("saliency", {"aggregate": "abs_product", "smoothgrad": 30, "sigma": 0.15}),
    **{row: FIXED[row] for row in ("grad", "SmoothGrad")},
}
LEAST = 0.2  # minimum share of a joint link
DIRECTIONS = ("forward", "backward")


class AlignmentTable:
    """Computes the rows of the table one by one."""

    def __init__(
        self,
        forward: tuple[Any, Any],  # source-target model and tokenizer
        backward: tuple[Any, Any] | None,  # target-source model and tokenizer; None for a table of one direction
        pairs: Sequence[Pair],  # gold sentence pairs, words separated by spaces
        gold: Gold,  # their sure and possible links
        folder: str | Path,  # for results; texts and weights are compared, so it can be reused
        batch_size: int = 16,  # pairs at a time
        say: Callable[[str], None] = lambda line: None,  # called with a line about each batch
        as_published: bool = False,  # only the rows of the paper, computed as in the authors' code
        statistical: str = "eflomal",  # aligner that makes the reference for free decoding
    ) -> None:
        check_choice("statistical", statistical, STATISTICAL)
        self.statistical = statistical
        self.translators, self.gold = {"forward": forward} | ({"backward": backward} if backward else {}), gold
        self.folder, self.batch_size, self.say, self.as_published = Path(folder), batch_size, say, as_published
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pairs = {"forward": list(pairs), "backward": [(target, source) for source, target in pairs]}
        self._weights = {name: weights_fingerprint(model) for name, (model, _) in self.translators.items()}
        self._choices: dict[str, dict[str, dict[str, Any]]] = {}

    def rows(self) -> list[str]:
        """Rows that the translators support: few have masks or an alignment head, and LSTMs do not support LRP."""
        if self.as_published:
            return list(PUBLISHED)
        models = [model for model, _ in self.translators.values()]
        misfits = {row for row, (name, _) in FIXED.items() if not all(METHODS[name].fits(model) for model in models)}
        return [name for name in ROWS if misfits.isdisjoint((name, *COMBINED.get(name, ())))]

    def force(self, names: Sequence[str] | None = None) -> Iterator[Row]:
        """Rows of both directions and of all symmetrisations for each method.

        `joint` rows extract the links of both directions from the product of their soft scores, the last one without
        links below `LEAST` of their words' scores. `as_published` has no joint rows.
        """
        asked = {direction: self._force(direction) for direction in self.translators}
        for name in self._names(names):
            scores = [self._scores("force", name, d, pairs) for d, pairs in asked.items()]
            found = [self._links(pairs, own) for pairs, own in zip(asked.values(), scores, strict=True)]
            turned = [[_turned(x, d) for x in links] for d, links in zip(asked, found, strict=True)]
            yield from self._symmetrized(name, turned, scores)
            if self.as_published:
                continue
            if len(scores) == 1:
                mutual = [extract_links(matrix, "mutual") for matrix in scores[0]]
                yield self._row("force", name, "forward, mutual", mutual, self.gold)
                continue
            for h, least in [*((h, 0.0) for h in HEURISTICS), ("grow-diag", LEAST)]:
                links = [joint_links(f, b, h, least=least) for f, b in zip(*scores, strict=True)]
                yield self._row("force", name, f"joint {h}" + f" {least}" * (least > 0), links, self.gold)

    def _symmetrized(self, name: str, links: Sequence[Any], scores: Sequence[Any] = (None, None)) -> Iterator[Row]:
        """Rows of the links of both directions, each source-target, and of their symmetrisations."""
        for direction, own, matrices in zip(DIRECTIONS, links, scores, strict=False):
            yield self._row("force", name, direction, own, self.gold, matrices)
        for heuristic in HEURISTICS if len(links) > 1 else ():
            yield self._row("force", name, heuristic, symmetrize(links[0], links[1], heuristic), self.gold)

    def yardstick(self, training: Training, others: Sequence[Pair] = ()) -> Iterator[Row]:
        """Rows of the statistical aligner.

        It is trained on the gold text, `others` and the training text; an online aligner on the training text only.
        """
        found = self._statistical([*self.pairs["forward"], *others], training)
        yield from self._symmetrized(self.statistical, [links[: len(self.pairs["forward"])] for links in found])

    def free(self, training: Training, names: Sequence[str] | None = None) -> Iterator[Row]:
        """Rows of both directions for each method, on the translators' own output."""
        own = self._own(training)
        for name in self._names(names):
            for direction, (asked, reference) in own.items():
                matrices = self._scores("free", name, direction, asked)
                yield self._row("free", name, direction, self._links(asked, matrices), reference, matrices)

    def noise(self, sigmas: Sequence[float], training: Training | None = None) -> Iterator[Row]:
        """Rows of attention and of SmoothGrad by its noise, for the forward direction; 0 is the plain gradient.

        With `training`, also for free decoding.
        """
        parts = {"force": (self._force("forward"), self.gold)}
        if training:
            parts["free"] = self._own(training)["forward"]
        methods = {"attention": self._method("attention", "forward")}
        for sigma in sigmas:
            method, settings = FIXED["SmoothGrad" if sigma else "grad"]
            methods[f"sigma {sigma:g}"] = method, settings | ({"sigma": sigma} if sigma else {})
        for part, (asked, gold) in parts.items():
            for name, (method, settings) in methods.items():
                matrices = self._kept_scores(part, "forward", asked, method, settings)
                yield self._row(f"{part} noise", name, "forward", self._links(asked, matrices), gold, matrices)

    def _names(self, names: Sequence[str] | None) -> Sequence[str]:
        for name in names or ():
            check_choice("method", name, self.rows() if self.as_published else ROWS)
        return names or self.rows()

    def _links(self, asked: Pairs, scores: Matrices) -> list[Links]:
        """Links of each pair: from target words, or subwords, to their best source words."""
        if not self.as_published:
            return [extract_links(matrix) for matrix in scores]
        return [subword_links(matrix, pair.source, pair.target) for pair, matrix in zip(asked, scores, strict=True)]

    def _row(
        self, table: str, name: str, alignment: str, links: list[Links], gold: Gold, scores: Matrices | None = None
    ) -> Row:
        way = "published" if self.as_published else "default"
        reference = self.statistical if table.startswith("free") else "gold"
        row = {"table": table, "way": way, "reference": reference, "method": name, "alignment": alignment}
        entropy = subword_dispersion if self.as_published else dispersion
        soft = [normalise(matrix) for matrix in scores] if scores else None
        return (
            row
            | {"pairs": len(links)}
            | alignment_error_rate(links, *gold)
            | {"aer_ci": error_margin(links, *gold)}
            | {"entropy": None if soft is None else entropy(soft)}
        )

    def _method(self, name: str, direction: str) -> tuple[str, dict[str, Any]]:
        if self.as_published:
            method, settings = PUBLISHED[name]
            is_conv = isinstance(self.translators[direction][0], ConvSeq2SeqForConditionalGeneration)
            return method, settings | ({"layer": "mean"} if is_conv and "layer" in settings else {})
        if name in FIXED:
            return FIXED[name]
        if not self._choices and len(self.translators) == 1:
            self.say("choosing attention layers and heads by agreement with deleting source words")
            some = self._force("forward")[:SENTENCES]
            found = occlusion_agreements(self.translators["forward"][0], some, self.batch_size)
            for row, which in CHOSEN.items():
                self._choices[row] = {"forward": best_agreement(found, *which).settings}
        elif not self._choices:
            self.say("choosing attention layers and heads by agreement of the two directions")
            size = self.batch_size
            links = [attention_links(*self.translators[d], *_sides(self.pairs[d]), size) for d in DIRECTIONS]
            for row, (heads, shifted) in CHOSEN.items():
                choices = zip(DIRECTIONS, agreeing_attention(links[0], links[1], heads, shifted), strict=True)
                self._choices[row] = {d: c.settings for d, c in choices}
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
        """The translation of its side by each translator, and the statistical aligner's links as reference."""
        asked = {direction: self._free(direction) for direction in self.translators}
        texts = [pair if d == "forward" else pair[::-1] for d, pairs in asked.items() for pair in _texts(pairs)]
        found, count = self._statistical(texts, training), len(self.pairs["forward"])
        own: dict[str, tuple[Pairs, Gold]] = {}
        for direction, part in zip(asked, (slice(count), slice(count, None)), strict=False):
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
        """Scores of words, or of tokens if `as_published`. Word scores can be computed from saved token scores."""
        explainer = make_aligner(self.translators[direction][0], method, **settings)
        what = "-".join([method, *(f"{key}={value}" for key, value in settings.items())])
        name = f"{what}-{self._weights[direction]}.jsonl"
        words, tokens = self.folder / f"{part}-{direction}-{name}", self.folder / f"tokens-{part}-{direction}-{name}"
        keys = [[pair.ids.source_ids, pair.ids.target_ids] for pair in asked]
        known = _agreeing(tokens, keys)[0] if tokens.exists() and not self.as_published else []

        def score(rows: slice) -> list[Any]:
            if self.as_published:  # 9 digits represent a float32 exactly
                return [_numbers(r.source, 9) for r in explain(explainer, asked[rows], self.batch_size)]
            if len(known) < min(rows.stop, len(keys)):
                found = [r.source for r in explain(explainer, asked[rows], self.batch_size)]
            else:
                found = [np.array(x, np.float32) for x in known[rows]]
            pairs = zip(found, asked[rows], strict=True)
            return [_numbers(word_scores(matrix, pair.source, pair.target), 5) for matrix, pair in pairs]

        return [np.array(x) for x in self._kept(tokens if self.as_published else words, keys, score)]

    def _kept(self, path: Path, keys: Sequence[Any], compute: Callable[[slice], list[Any]]) -> list[Any]:
        """A value for each key: the file's first values are reused while keys match, the rest computed in batches."""
        path.touch()
        found, end = _agreeing(path, keys)
        with path.open("r+", encoding="utf-8") as file:
            if len(found) < len(keys):
                file.truncate(end)
            file.seek(0, 2)
            size, left = self.batch_size, range(len(found), len(keys))
            middle = (len(found) + len(keys)) // 2
            estimate(path.stem, lambda: compute(slice(middle, middle + 1)), len(left))
            for some in track([left[n : n + size] for n in range(0, len(left), size)], path.stem):
                rows = slice(some.start, some.stop)
                new = compute(rows)
                for key, value in zip(keys[rows], new, strict=True):
                    file.write(json.dumps([key, value]) + "\n")
                file.flush()
                found += new
                self.say(f"{path.stem}: {len(found)} of {len(keys)}")
        return found

    def _statistical(self, pairs: Sequence[Pair], training: Training) -> tuple[list[Links], list[Links]]:
        digest = hashlib.sha256(json.dumps([pairs]).encode())
        for path in training:
            digest.update(path.read_bytes())
        paths = [self.folder / f"{self.statistical}-{name}-{digest.hexdigest()[:12]}.links" for name in DIRECTIONS]
        if not all(path.exists() for path in paths):
            self.say(self.statistical)
            lines = ((separate_punctuation(s), separate_punctuation(t)) for s, t in read_parallel(*training))
            with counting(self.statistical):
                found = STATISTICAL[self.statistical](pairs, lines)
            for path, links in zip(paths, found, strict=True):
                write_links(path, links)
        forward, backward = map(read_links, paths)
        return forward, backward


def _sides(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[list[str]]]:
    return [source.split() for source, _ in pairs], [target.split() for _, target in pairs]


def _texts(pairs: Pairs) -> list[Pair]:
    """Words joined by spaces."""
    return [(" ".join(pair.source.words), " ".join(pair.target.words)) for pair in pairs]


def _turned(links: Links, direction: str) -> Links:
    return links if direction == "forward" else flip(links)


def _agreeing(path: Path, keys: Sequence[Any]) -> tuple[list[Any], int]:
    """The first values of a file whose keys match these, and where they end."""
    found: list[Any] = []
    end = 0
    with path.open(encoding="utf-8") as file:
        while len(found) < len(keys) and (line := file.readline()).endswith("\n"):
            key, value = json.loads(line)
            if key != keys[len(found)]:
                break
            found.append(value)
            end = file.tell()
    return found, end


def _numbers(matrix: np.ndarray, digits: int) -> list[list[float]]:
    return [[float(f"{x:.{digits}g}") for x in row] for row in matrix]
