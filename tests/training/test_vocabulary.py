"""Trained vocabularies are real Marian tokenizers."""

import json

import pytest
from sentencepiece import SentencePieceProcessor
from transformers import AutoTokenizer, MarianTokenizer

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.vocabulary import train_marian_tokenizer
from tests.made_up_corpus import made_up_pairs

SENTENCES = [sentence for pair in made_up_pairs(100) for sentence in pair]


def test_files_are_those_of_a_marian_tokenizer(tmp_path):
    made = train_marian_tokenizer(SENTENCES, tmp_path, 70, "en", "de", 50)
    spm = SentencePieceProcessor(model_file=str(tmp_path / "source.spm"))
    vocab = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert (tmp_path / "target.spm").read_bytes() == (tmp_path / "source.spm").read_bytes()
    assert sorted(vocab.values()) == list(range(70))
    assert (vocab["</s>"], vocab["<unk>"], vocab["<pad>"]) == (0, 1, 69)
    assert set(vocab) - {"</s>", "<pad>"} == {spm.id_to_piece(i) for i in range(spm.get_piece_size())}
    for tokenizer in (made, MarianTokenizer.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert isinstance(tokenizer, MarianTokenizer)
        assert (len(tokenizer), tokenizer.model_max_length) == (70, 50)
        assert (tokenizer.source_lang, tokenizer.target_lang) == ("en", "de")
        for source, target in made_up_pairs(20, seed=1):
            encoded = tokenizer(source, text_target=target)
            assert encoded["input_ids"][-1] == encoded["labels"][-1] == 0
            assert 1 not in encoded["input_ids"] + encoded["labels"]
            assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == source
            assert tokenizer.decode(encoded["labels"], skip_special_tokens=True) == target


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [
        (5000, r"vocab_size: 5000 does not fit .*too high \(4998\)"),
        (10, "vocab_size: 10 does not fit .*smaller"),
        (2, "vocab_size: 2 "),
    ],
)
def test_a_size_that_does_not_fit_is_refused(tmp_path, vocab_size, message):
    with pytest.raises(InputError, match=message):
        train_marian_tokenizer(SENTENCES, tmp_path, vocab_size)
    assert not list(tmp_path.iterdir())


def test_no_text_is_refused(tmp_path):
    for sentences in ([], ["a" * 10_000]):
        with pytest.raises(
            InputError, match=r"does not fit the training text; .*: no text, or lines that are too long"
        ):
            train_marian_tokenizer(sentences, tmp_path, 70)
