"""A made-up language pair: short sentences by a small grammar, for tests that train something."""

from pathlib import Path
from random import Random

NOUNS = [("man", "Mann"), ("dog", "Hund"), ("tree", "Baum"), ("river", "Fluss"), ("baker", "Bäcker"), ("train", "Zug")]
ARTICLES = [("the", "der"), ("a", "ein"), ("this", "dieser"), ("every", "jeder"), ("no", "kein")]
ADJECTIVES = [("small", "kleine"), ("green", "grüne"), ("quiet", "stille"), ("old", "alte")]
VERBS = [("sees", "sieht"), ("likes", "mag"), ("finds", "findet"), ("paints", "malt")]


def made_up_pairs(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs like ("the old dog sees a tree .", "der alte Hund sieht ein Baum .")."""
    rng = Random(seed)

    def phrase() -> list[tuple[str, str]]:
        return [rng.choice(ARTICLES), *rng.choices(ADJECTIVES, k=rng.randrange(3)), rng.choice(NOUNS)]

    sentences = [[*phrase(), rng.choice(VERBS), *phrase(), (".", ".")] for _ in range(number)]
    return [(" ".join(en for en, _ in words), " ".join(de for _, de in words)) for words in sentences]


def write_parallel(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[str]:
    """Write `<name>.en` and `<name>.de`; return their paths."""
    paths = [folder / f"{name}.{language}" for language in ("en", "de")]
    for side, path in enumerate(paths):
        path.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return [str(path) for path in paths]


# two pairs each of two pairs of lengths, and one more
BY_LENGTH = ["A small dog sleeps.", "The dog sleeps.", "small A dog sleeps.", "dog The sleeps.", "The sun."]
BY_LENGTH_TARGETS = ["Der alte Hund.", "Ein Hund.", "alte Der Hund.", "Hund Ein.", "Die Sonne."]
