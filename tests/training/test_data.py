"""From pairs to examples."""

from hf_nmt_interp.training.data import encode_examples
from tests.tiny_tokenizers import ENGLISH, GERMAN

PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


def test_long_and_empty_pairs_are_left_out(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    every = list(encode_examples(tokenizer, PAIRS, 1000))
    assert [tokenizer.decode(e["input_ids"], skip_special_tokens=True) for e in every] == ENGLISH
    longest = sorted(max(len(e["input_ids"]), len(e["labels"])) for e in every)
    pairs = [("", "etwas"), ("something", " "), *PAIRS]
    kept = list(encode_examples(tokenizer, pairs, longest[3]))
    assert kept == [e for e in every if max(len(e["input_ids"]), len(e["labels"])) <= longest[3]]
    assert 0 < len(kept) < len(every)


def test_cut_keeps_every_pair(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    every = list(encode_examples(tokenizer, [("", "etwas"), *PAIRS], 6, cut=True))
    assert len(every) == len(PAIRS) + 1
    assert every[0]["input_ids"] == [tokenizer.eos_token_id]
    for example in every[1:]:
        for ids in example.values():
            assert len(ids) == 6
            assert ids[-1] == tokenizer.eos_token_id


def test_chunks_do_not_change_anything(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    once = list(encode_examples(tokenizer, PAIRS, 1000))
    assert list(encode_examples(tokenizer, PAIRS * 150, 1000)) == once * 150  # 1200 pairs, tokenised 1000 at a time
