"""Tokenizers of FSMT and Blenderbot-small, with made-up vocabularies."""

import json

import pytest
from transformers import BlenderbotSmallTokenizer, FSMTConfig, FSMTForConditionalGeneration, FSMTTokenizer

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import encode_source, encode_target, words_of

LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?", "th"]
TEXT = "The old dog, he sleeps under the table!"


def make_fsmt(folder, target_letters=LETTERS):
    for side, letters in (("src", LETTERS), ("tgt", target_letters)):
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters), "the</w>"]
        (folder / f"{side}.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges").write_text("#version: 0.2\nt h\nth e</w>\n")
    return FSMTTokenizer(["en", "de"], str(folder / "src.json"), str(folder / "tgt.json"), str(folder / "merges"))


def make_blenderbot(folder):
    specials = ["__start__", "__end__", "__unk__", "__null__"]
    pieces = [*specials, *LETTERS, *(f"{letter}@@" for letter in LETTERS), "the"]
    (folder / "vocab").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges").write_text("#version: 0.2\nt h\nth e</w>\n")
    return BlenderbotSmallTokenizer(str(folder / "vocab"), str(folder / "merges"))


@pytest.mark.parametrize("make", [make_fsmt, make_blenderbot])
@pytest.mark.parametrize("encode", [encode_source, encode_target])
def test_words_are_those_of_the_text(tmp_path, make, encode):
    tokenizer = make(tmp_path)
    encoded = encode(tokenizer, TEXT)
    assert encoded.ids == tokenizer(TEXT)["input_ids"]
    assert encoded.token_words.words == TEXT.split()
    last = encoded.token_words.positions[-1]
    assert "".join(encoded.token_words.tokens[i] for i in last).replace("</w>", "").replace("@@", "") == "table!"
    separate = encode(tokenizer, TEXT, punctuation="separate").token_words.words
    assert separate == ["The", "old", "dog", ",", "he", "sleeps", "under", "the", "table", "!"]
    assert encode(tokenizer, TEXT.split()).token_words == encoded.token_words


@pytest.mark.parametrize("make", [make_fsmt, make_blenderbot])
def test_words_of_ids(tmp_path, make):
    tokenizer = make(tmp_path)
    found = words_of(tokenizer, tokenizer(TEXT)["input_ids"], is_target=True)
    assert " ".join(found.words).lower().replace(" ,", ",").replace(" !", "!") == TEXT.lower()


def test_characters_that_are_normalised_keep_the_words(tmp_path):
    tokenizer = make_fsmt(tmp_path)
    words = encode_source(tokenizer, "the “old” dog… sleeps").token_words
    assert words.words == ["the", "“old”", "dog…", "sleeps"]
    assert sorted({word for word in words.word_ids if word is not None}) == [0, 1, 2, 3]


def test_two_vocabularies(tmp_path):
    tokenizer = make_fsmt(tmp_path, LETTERS[::-1])
    assert "".join(words_of(tokenizer, tokenizer("dog")["input_ids"], is_target=False).words) == "dog"
    with pytest.raises(InputError, match="has two vocabularies, and encodes targets with that of the source; let the"):
        encode_target(tokenizer, "dog")


def test_fsmt_is_explained(tmp_path):
    tokenizer = make_fsmt(tmp_path)
    size = len(LETTERS) * 2 + 5
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in
             (("layers", 1), ("attention_heads", 2), ("ffn_dim", 8))}  # fmt: skip
    config = FSMTConfig(langs=["en", "de"], src_vocab_size=size, tgt_vocab_size=size, d_model=8, **sizes)
    model = FSMTForConditionalGeneration(config).eval()
    result = hni.attribute(model, tokenizer, TEXT, TEXT, method="saliency").to_words()
    assert (
        result.source_tokens[:-1]
        == result.target_tokens[:-1]
        == encode_source(tokenizer, TEXT, punctuation="separate").token_words.words
    )
