"""Line ends of other systems, and special tokens of the user."""

import copy

import pytest

from hf_nmt_interp.text.corpus import read_pairs, try_parallel
from hf_nmt_interp.text.tokens import encode_source, words_of
from tests.tiny_tokenizers import BUILDERS


def test_crlf_is_lf(run, model_folder, tmp_path):
    for name, end in (("unix", b"\n"), ("windows", b"\r\n")):
        (tmp_path / name).write_bytes(b"A dog." + end + b"Two cats." + end)
        paths = [str(tmp_path / name)] * 2
        assert list(read_pairs(*paths)) == list(try_parallel(paths)) == [("A dog.",) * 2, ("Two cats.",) * 2]
        given = "--model", model_folder, "--method", "attention", "--input", tmp_path / name
        assert run("attribute", *given, "--shards", tmp_path / f"{name}.shards").code == 0
    shards = [(tmp_path / f"{name}.shards/shards/000000.jsonl").read_bytes() for name in ("unix", "windows")]
    assert shards[0] == shards[1]


@pytest.mark.parametrize("kind", [kind for kind in BUILDERS if kind != "marian_separate"])  # which takes no new tokens
def test_special_tokens_of_the_user(tokenizer_of, kind):
    tokenizer = copy.deepcopy(tokenizer_of(kind))
    tokenizer.add_tokens(["<ent>"], special_tokens=True)
    encoded = encode_source(tokenizer, "A <ent> dog sleeps.")
    assert encoded.token_words.words == words_of(tokenizer, encoded.ids, False).words == ["A", "dog", "sleeps."]
    assert "<ent>" not in tokenizer.decode(encoded.ids, skip_special_tokens=True)
