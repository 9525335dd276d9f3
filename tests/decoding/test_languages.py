"""Languages of checkpoints that translate between many."""

import copy
from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from hf_nmt_interp.decoding.languages import set_languages
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.data import encode_examples


@pytest.mark.parametrize(
    ("kind", "codes"),
    [("m2m100", ("de", "en")), ("nllb", ("deu_Latn", "eng_Latn")), ("mbart", ("de_DE", "en_XX"))],
)
def test_languages_mark_both_sides_and_begin_translations(tokenizer_of, kind, codes, tmp_path):
    tokenizer_of(kind).save_pretrained(tmp_path)
    tokenizer = type(tokenizer_of(kind)).from_pretrained(tmp_path)  # the shared one stays as it is
    model = SimpleNamespace(generation_config=GenerationConfig())
    set_languages(model, tokenizer, *codes)
    (example,) = encode_examples(tokenizer, [("Zwei Kinder", "Two children")], 100)
    source, target = (set(tokenizer.convert_ids_to_tokens(ids)) for ids in (example["input_ids"], example["labels"]))
    begins = tokenizer.convert_ids_to_tokens(model.generation_config.forced_bos_token_id)
    assert codes[1] in begins
    assert begins in target
    assert any(codes[0] in token for token in source)
    with pytest.raises(InputError, match="target_lang: 'xx' is not a language of"):
        set_languages(model, tokenizer, codes[0], "xx")
    with pytest.raises(InputError, match="source_lang: 'xx' is not a language of"):
        set_languages(model, tokenizer, "xx", codes[1])


def test_one_language_checkpoints_need_no_setting(tokenizer_of):
    model = SimpleNamespace(generation_config=GenerationConfig())
    set_languages(model, tokenizer_of("marian"), "xx", "yy")
    assert model.generation_config.forced_bos_token_id is None


def test_none_leaves_a_language_as_it_is(translator_of):
    model, tokenizer = translator_of("m2m100")
    tokenizer = copy.deepcopy(tokenizer)
    before = tokenizer.src_lang, model.generation_config.forced_bos_token_id
    set_languages(model, tokenizer, None, None)
    assert (tokenizer.src_lang, model.generation_config.forced_bos_token_id) == before
    set_languages(model, tokenizer, None, "en")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == (before[0], "en")
    assert model.generation_config.forced_bos_token_id == tokenizer.get_lang_id("en")
