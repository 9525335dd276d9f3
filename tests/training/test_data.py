"""From pairs to examples; languages of many-language checkpoints."""

from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.data import encode_pairs, set_languages
from tests.tiny_tokenizers import ENGLISH, GERMAN

PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


def test_long_and_empty_pairs_are_left_out(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    every = list(encode_pairs(tokenizer, PAIRS, 1000))
    assert [tokenizer.decode(e["input_ids"], skip_special_tokens=True) for e in every] == ENGLISH
    longest = sorted(max(len(e["input_ids"]), len(e["labels"])) for e in every)
    pairs = [("", "etwas"), ("something", " "), *PAIRS]
    kept = list(encode_pairs(tokenizer, pairs, longest[3]))
    assert kept == [e for e in every if max(len(e["input_ids"]), len(e["labels"])) <= longest[3]]
    assert 0 < len(kept) < len(every)


def test_cut_keeps_every_pair(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    every = list(encode_pairs(tokenizer, [("", "etwas"), *PAIRS], 6, cut=True))
    assert len(every) == len(PAIRS) + 1
    assert every[0]["input_ids"] == [tokenizer.eos_token_id]
    for example in every[1:]:
        for ids in example.values():
            assert len(ids) == 6
            assert ids[-1] == tokenizer.eos_token_id


def test_chunks_do_not_change_anything(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    once = list(encode_pairs(tokenizer, PAIRS, 1000))
    assert list(encode_pairs(tokenizer, PAIRS * 150, 1000)) == once * 150  # 1200 pairs, tokenised 1000 at a time


@pytest.mark.parametrize(
    ("kind", "codes"),
    [("m2m100", ("de", "en")), ("nllb", ("deu_Latn", "eng_Latn")), ("mbart", ("de_DE", "en_XX"))],
)
def test_languages_mark_both_sides_and_begin_translations(tokenizer_of, kind, codes, tmp_path):
    tokenizer_of(kind).save_pretrained(tmp_path)
    tokenizer = type(tokenizer_of(kind)).from_pretrained(tmp_path)  # the shared one stays as it is
    model = SimpleNamespace(generation_config=GenerationConfig())
    set_languages(model, tokenizer, *codes)
    (example,) = encode_pairs(tokenizer, [("Zwei Kinder", "Two children")], 100)
    source, target = (set(tokenizer.convert_ids_to_tokens(ids)) for ids in (example["input_ids"], example["labels"]))
    begins = tokenizer.convert_ids_to_tokens(model.generation_config.forced_bos_token_id)
    assert codes[1] in begins
    assert begins in target
    assert any(codes[0] in token for token in source)
    with pytest.raises(InputError, match="target: 'xx' is not a language of"):
        set_languages(model, tokenizer, codes[0], "xx")
    with pytest.raises(InputError, match="source: 'xx' is not a language of"):
        set_languages(model, tokenizer, "xx", codes[1])


def test_one_language_checkpoints_need_no_setting(tokenizer_of):
    model = SimpleNamespace(generation_config=GenerationConfig())
    set_languages(model, tokenizer_of("marian"), "xx", "yy")
    assert model.generation_config.forced_bos_token_id is None
