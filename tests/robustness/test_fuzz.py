"""Readers and writers on random input: a right result or an InputError, never anything else.

Other properties stand with their subjects: token and word maps in `tests/text/test_tokens.py`, symmetrisation in
`tests/analysis/test_alignment.py`, AER against a count link by link in `tests/metrics/test_aer.py`, mark-up in
`tests/analysis/test_markup.py`. `HYPOTHESIS_PROFILE=nightly` tries each of them on 10,000 examples.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.markup import strip_markup
from hf_nmt_interp.attribution.registry import parse_method_settings
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated.gates import HardConcreteGate
from hf_nmt_interp.text.conllu import read_conllu
from hf_nmt_interp.text.corpus import read_jsonl, read_lines
from hf_nmt_interp.text.pharaoh import format_links, parse_links
from hf_nmt_interp.text.tokens import TokenWords
from tests.fuzzing import NIGHTLY, examples
from tests.reference import gates as twin

few = examples(20)
ROOT = Path(__file__).parents[2]
LINES = st.text(st.sampled_from("0123456789-p? \t\n>x\u0663\u00b2"), max_size=20)


def read_bytes(reader, content: bytes) -> list | None:
    """What a reader makes of a file; None if it refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(content)
        try:
            return list(reader(path))
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
            return None


@pytest.mark.parametrize(("profile", "number"), [("nightly", 10_000), ("quick", 20)])
def test_the_profile_decides(profile, number):
    code = "from tests.fuzzing import examples; print(examples(20).max_examples)"
    environment = os.environ | {"HYPOTHESIS_PROFILE": profile}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{number}\n", "")
    if (profile == "nightly") == NIGHTLY:
        assert few.max_examples == number  # and of this run


@few
@given(st.one_of(LINES, st.text(max_size=20)), st.sampled_from([0, 1]))
def test_pharaoh_lines(line, base):
    try:
        sure, possible = parse_links(line, base)
    except InputError as error:
        assert "line: " in str(error)  # noqa: PT017
        return
    assert sure <= possible
    assert all(min(link) >= 0 for link in possible)
    assert parse_links(format_links(sure, possible, base), base) == (sure, possible)


@few
@given(st.binary(max_size=60))
@example(b"a\r\nb\r")
def test_files_of_any_bytes(content):
    lines = read_bytes(read_lines, content)
    if lines is not None:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
        assert "\n".join(lines).removeprefix("\ufeff") == text.removeprefix("\ufeff")
    read_bytes(read_jsonl, content)
    read_bytes(read_conllu, content)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@few
@given(st.dictionaries(st.sampled_from(["source", "target", "translation", "x"]), JSON, max_size=4) | JSON)
def test_any_json(value):
    pairs = read_bytes(read_jsonl, json.dumps(value).encode())
    assert pairs is None or all(isinstance(text, str) for pair in pairs for text in pair)


@st.composite
def trees(draw) -> list[int | None]:
    """Heads of a random tree: each word hangs on one that was drawn before it."""
    size = draw(st.integers(1, 8))
    order = draw(st.permutations(range(size)))
    heads: list[int | None] = [None] * size
    for n, word in enumerate(order[1:], 1):
        heads[word] = order[draw(st.integers(0, n - 1))]
    return heads


def conllu(heads: list[int | None]) -> str:
    rows = (
        f"{n}\tw{n}\t_\tX\t_\t_\t{0 if head is None else head + 1}\tdep\t_\t_\n" for n, head in enumerate(heads, 1)
    )
    return "".join(rows)


@few
@given(trees())
def test_trees_are_read_as_they_are(heads):
    (sentence,) = read_bytes(read_conllu, conllu(heads).encode())
    assert sentence.heads == heads
    assert len(sentence.spans()) == len(heads)


@few
@given(st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=6))
def test_heads_that_are_no_tree_are_refused(heads):
    found = read_bytes(read_conllu, conllu(heads).encode())

    def reaches_the_root(word: int) -> bool:
        seen = set()
        while word not in seen and word < len(heads):
            seen.add(word)
            if heads[word] is None:
                return True
            word = heads[word]
        return False

    assert (found is not None) == all(map(reaches_the_root, range(len(heads))))


@few
@given(trees(), st.data())
def test_a_damaged_file_of_trees_is_read_or_refused(heads, data):
    content = bytearray(conllu(heads).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    for sentence in read_bytes(read_conllu, bytes(content)) or []:
        assert len(sentence.words) == len(sentence.heads) == len(sentence.token_ids)


TOKENS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=5)


@st.composite
def sides(draw) -> TokenWords:
    tokens = draw(TOKENS)
    special = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    words, word_ids = [], []
    for token, is_special in zip(tokens, special, strict=True):
        if not is_special and (not words or draw(st.booleans())):
            words.append(token)
        word_ids.append(None if is_special else len(words) - 1)
    return TokenWords(tokens, words, word_ids, special)


@st.composite
def results(draw) -> hni.AttributionResult:
    source, target = draw(sides()), draw(sides())
    S, T = len(source.tokens), len(target.tokens)
    numbers = st.floats(width=32)
    source_scores, prefix = (draw(arrays(np.float32, shape, elements=numbers)) for shape in ((T, S), (T, T)))
    start = draw(arrays(np.float32, T, elements=numbers))
    ids = Translation(
        draw(st.lists(st.integers(0, 2**40))), draw(st.lists(st.integers(0, 9))), draw(st.none() | st.just(3))
    )
    more = {
        "method": draw(st.text(st.characters(exclude_categories=["Cs"]))),
        "settings": {"alpha": draw(st.floats(0, 1))},
    }
    log_probs = draw(st.none() | arrays(np.float32, T, elements=numbers))
    return hni.AttributionResult(
        source,
        target,
        source_scores,
        prefix,
        start,
        log_probs,
        draw(st.none() | st.floats(0, 1)),
        translation=ids,
        **more,
    )


@few
@given(results())
def test_results_are_loaded_as_they_were_saved(result):
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder, "result"))
        loaded = hni.AttributionResult.load(Path(folder, "result"))
    for name in ("source", "prefix", "start", "log_probs"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(result, name))
    for name in ("source_side", "target_side", "conservation_gap", "method", "settings", "level", "translation"):
        assert getattr(loaded, name) == getattr(result, name)


@few
@given(results(), st.data())
def test_damaged_results_are_refused_or_well_formed(result, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result")
        result.save(path)
        content = bytearray(path.read_bytes())
        header = 8 + int.from_bytes(content[:8], "little")
        places = st.integers(0, header - 1) | st.integers(0, len(content) - 1)
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(places)] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            content = content[: data.draw(st.integers(0, len(content)))]
        path.write_bytes(content)
        try:
            loaded = hni.AttributionResult.load(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            with np.errstate(all="ignore"):  # numbers may be any
                words = loaded.to_words()
            assert words.source.shape == (len(words.target_tokens), len(words.source_tokens))


@few
@given(st.text(st.sampled_from("ab <>/{}%s$1.&\"'=\n"), max_size=30) | st.text(max_size=20))
def test_any_markup_is_stripped_or_refused(text):
    try:
        assert isinstance(strip_markup(text), str)
    except InputError:
        return


@few
@given(
    st.sampled_from(["lrp", "attention", "smoothgrad"]),
    st.text(st.sampled_from('alphayer=1.0eNn{["tru-'), max_size=12),
)
def test_any_setting_is_read_or_refused(method, text):
    try:
        assert isinstance(parse_method_settings(method, [text]), dict)
    except InputError as error:
        assert "--set" in str(error)  # noqa: PT017


@few
@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=6), st.floats(0.1, 2), st.floats(-1, -0.01), st.floats(1.01, 2)
)
def test_gates_are_their_twins(log_alphas, temperature, low, high):
    gate = HardConcreteGate(len(log_alphas), temperature, (low, high))
    gate.log_alpha.data = torch.tensor(log_alphas, dtype=torch.float32)
    values = gate.log_alpha.tolist()
    settings = temperature, low, high
    for name in ("p_zero", "p_one"):
        expected = [getattr(twin, name)(value, *settings) for value in values]
        assert getattr(gate, name)().tolist() == pytest.approx(expected, abs=1e-5)
    assert gate.penalty().item() == pytest.approx(twin.penalty(values, *settings), abs=1e-5 * len(values))
    draws = gate.sample()
    assert ((draws >= 0) & (draws <= 1)).all()
    assert not math.isnan(draws.sum().item())
    close = [abs(twin.p_one(value, *settings) - twin.p_zero(value, *settings)) < 1e-5 for value in values]
    for found, value, is_close in zip(gate.test_value().tolist(), values, close, strict=True):
        assert is_close or found == twin.test_value(value, *settings)
