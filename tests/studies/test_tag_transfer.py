"""Shares of tags on the right words."""

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.tag_transfer import covered_words, tag_transfer, tagged

PAIRS = [("She has a red car.", "Sie hat ein rotes Auto."), ("Wait!", "Warte!")]
RIGHT = {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)}


@pytest.fixture(scope="module")
def box():
    return hni.load_demo("en-de")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <t1>b</t1> c", {1}),
        ("a <t1>b c</t1>d", {1, 2}),
        ("<t2><t1>a</t1> b</t2>", {0}),
        ("a<t1></t1> b", set()),
        ("a <t1></t1>b", set()),
        ("(<t1>a</t1>) <t10>b</t10>", {0}),
    ],
)
def test_words_of_a_tag(text, expected) -> None:
    assert covered_words(text, 1) == expected


def test_right_are_all_sure_and_only_possible_words(box) -> None:
    assert tagged(PAIRS[0][0], [1, 3]) == "She <t1>has</t1> a <t3>red</t3> car."
    methods = {"head": None, "other": "alignment_head"}

    def share(sure, possible, tags=1):
        return tag_transfer(*box, PAIRS, ([sure, {(0, 0)}], [possible, {(0, 0)}]), methods, tags)

    assert share(RIGHT, RIGHT, tags=4) == {"head": 1, "other": 1}  # "car." and "Wait!" have punctuation
    assert share({(3, 3)}, {(3, 3), (3, 2)})["head"] == 1
    assert share({(3, 3), (3, 2)}, RIGHT | {(3, 2)})["head"] == 0
    assert share({(3, 2)}, {(3, 2)})["head"] == 0
    assert share({(3, 2), (1, 1)}, {(3, 2), (1, 1)}, tags=2)["head"] == 0.5
    with pytest.raises(InputError, match="pairs: none of 2 has 5 linked words to tag; give longer pairs"):
        share(RIGHT, RIGHT, tags=5)
