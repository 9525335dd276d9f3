"""eflomal as a yardstick: a stand-in, its absence, and the real one where it is installed."""

import sys
from importlib.util import find_spec

import pytest

from hf_nmt_interp import InputError
from hf_nmt_interp.analysis.yardstick import eflomal_links

PAIRS = [("das  Haus", "the house"), ("", "x"), ("ein Haus", "a house")]
TRAINING = [("das Buch", "the book"), ("ein Buch", "a book"), ("das", "the"), ("Haus", "house")] * 20


def test_links_of_the_pairs_only(eflomal) -> None:
    forward, backward = eflomal_links(PAIRS, iter(TRAINING))
    assert forward == [{(0, 0), (1, 1)}, set(), {(0, 0), (1, 1)}]
    assert backward == [{(1, 1)}, set(), {(1, 1)}]


def test_its_absence_is_said_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "eflomal", None)
    with pytest.raises(InputError, match=r'eflomal: is not installed; pip install -c .* -e "\.\[yardstick\]"'):
        eflomal_links(PAIRS, TRAINING)


@pytest.mark.skipif(find_spec("eflomal") is None, reason="eflomal is not installed")
def test_the_real_one_aligns_what_is_plain() -> None:
    forward, backward = eflomal_links(PAIRS, TRAINING)
    assert forward[0] & backward[0] == {(0, 0), (1, 1)}
    assert (forward[1], backward[1]) == (set(), set())
    assert forward[2] & backward[2] == {(0, 0), (1, 1)}
