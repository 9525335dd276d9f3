"""Stepwise expectation maximisation of IBM Model 1 with a diagonal prior, slow and literal (float64, dictionaries)."""

import math
from collections import defaultdict


class Aligner:
    """Mean expected counts of a batch, `means[x, y]`; the source word None is NULL."""

    def __init__(self, corpus, passes, size, power, tension, null, smoothing) -> None:
        self.tension, self.null, self.smoothing = tension, null, smoothing
        self.means, self.vocabulary = defaultdict(float), set()
        self.batches = k = 0
        for number in range(passes):
            for start in range(0, len(corpus), size):
                batch = [pair for pair in corpus[start : start + size] if all(pair)]
                self.batches += number == 0
                self.vocabulary |= {y for _, target in batch for y in target}
                if not batch:
                    continue
                counts = defaultdict(float)
                for source, target in batch:
                    for y, row in zip(target, self.posteriors(source, target), strict=True):
                        for x, p in zip([None, *source], row, strict=True):
                            counts[x, y] += p
                k += 1
                for key in {*self.means, *counts}:
                    self.means[key] = (1 - k**-power) * self.means[key] + k**-power * counts[key]

    def prior(self, t: int, T: int, L: int) -> list[float]:
        """Of NULL and of l = 1 .. L for t = 1 .. T."""
        near = [math.exp(-self.tension * abs(t / T - l / L)) for l in range(1, L + 1)]  # noqa: E741
        return [self.null] + [(1 - self.null) * x / sum(near) for x in near]

    def translation(self, x, y) -> float:
        """With smoothed counts."""
        count = self.batches * self.means.get((x, y), 0.0)
        total = self.batches * sum(value for (other, _), value in self.means.items() if other == x)
        a = self.smoothing
        return (count + a) / (total + a * len(self.vocabulary))

    def posteriors(self, source, target) -> list[list[float]]:
        """p(l | t), NULL first."""
        found = []
        for t, y in enumerate(target, 1):
            prior = self.prior(t, len(target), len(source))
            scores = [self.translation(x, y) * p for x, p in zip([None, *source], prior, strict=True)]
            found.append([score / sum(scores) for score in scores])
        return found
