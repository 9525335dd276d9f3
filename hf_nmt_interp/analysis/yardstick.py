"""Statistical word aligners, to compare the alignments of translators with.

eflomal (Östling and Tiedemann 2016) is an extra, `pip install -c constraints.txt -e ".[yardstick]"`; the stepwise
aligner needs nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from hf_nmt_interp.analysis.stepwise import stepwise_links
from hf_nmt_interp.errors import InputError, install
from hf_nmt_interp.text.corpus import Pair
from hf_nmt_interp.text.pharaoh import Links, parse_links


def eflomal_links(pairs: Sequence[Pair], training: Iterable[Pair]) -> tuple[list[Links], list[Links]]:
    """Links of both directions for sentence pairs, by eflomal's default model on them and the training text together.

    eflomal lower-cases, and samples: links differ slightly between runs. Words are separated by spaces. The first
    direction has at most one link (source word, target word) per target word, the second one per source word.
    """
    try:
        from eflomal import Aligner
    except ImportError as error:
        raise InputError("eflomal", None, "is not installed", install("yardstick")) from error
    with TemporaryDirectory() as folder:
        sides = [Path(folder, name) for name in ("source", "target")]
        with sides[0].open("w", encoding="utf-8") as source, sides[1].open("w", encoding="utf-8") as target:
            for pair in chain(pairs, training):
                for text, file in zip(pair, (source, target), strict=True):
                    file.write(" ".join(text.split()) + "\n")
        links = [Path(folder, name) for name in ("forward", "backward")]
        with sides[0].open(encoding="utf-8") as source, sides[1].open(encoding="utf-8") as target:
            Aligner().align(source, target, links_filename_fwd=str(links[0]), links_filename_rev=str(links[1]))
        found = []
        for path in links:  # the training text follows the pairs
            with path.open(encoding="utf-8") as file:
                found.append([parse_links(line, where="eflomal")[1] for line in islice(file, len(pairs))])
    return found[0], found[1]


Statistical = Callable[[Sequence[Pair], Iterable[Pair]], tuple[list[Links], list[Links]]]
STATISTICAL: dict[str, Statistical] = {  # name -> links of both directions for pairs, given the training text
    "eflomal": eflomal_links,
    "stepwise": stepwise_links,
    "stepwise-online": partial(stepwise_links, online=True),
}
