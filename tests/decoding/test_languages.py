"""Languages of checkpoints that translate between many."""

import copy
from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

import hf_nmt_interp as hni
from hf_nmt_interp.decoding.languages import choose_languages, language_tokens, set_languages
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import encode_target
from hf_nmt_interp.training.data import encode_examples

MANY = {  # kind of tokenizer -> codes of German and English, and what is offered for "de" and "german"
    "m2m100": ("de", "en", None),
    "nllb": ("deu_Latn", "eng_Latn", "deu_Latn"),
    "mbart": ("de_DE", "en_XX", "de_DE"),
    "mbart50": ("de_DE", "en_XX", "de_DE"),
    "seamless": ("deu", "eng", "deu"),
}


def no_model():
    return SimpleNamespace(generation_config=GenerationConfig(), config=SimpleNamespace())


@pytest.mark.parametrize("kind", MANY)
def test_languages_mark_both_sides_and_begin_translations(tokenizer_of, kind, tmp_path):
    tokenizer_of(kind).save_pretrained(tmp_path)
    tokenizer = type(tokenizer_of(kind)).from_pretrained(tmp_path)  # the shared one stays as it is
    codes, model = MANY[kind], no_model()
    set_languages(model, tokenizer, *codes[:2])
    (example,) = encode_examples(tokenizer, [("Zwei Kinder", "Two children")], 100)
    source, target = (set(tokenizer.convert_ids_to_tokens(ids)) for ids in (example["input_ids"], example["labels"]))
    begins = tokenizer.convert_ids_to_tokens(model.generation_config.forced_bos_token_id)
    assert begins == language_tokens(tokenizer)[codes[1]]
    assert begins in target
    assert language_tokens(tokenizer)[codes[0]] in source
    with pytest.raises(
        InputError, match=r"target_lang: 'xx' is not a language of .*; it has a|target_lang: 'xx'.*deu"
    ):
        set_languages(model, tokenizer, codes[0], "xx")
    with pytest.raises(InputError, match="source_lang: 'xx' is not a language of"):
        set_languages(model, tokenizer, "xx", codes[1])


@pytest.mark.parametrize("kind", MANY)
def test_ordinary_pieces_are_not_languages(tokenizer_of, kind):
    tokenizer, model = copy.deepcopy(tokenizer_of(kind)), no_model()
    offered = MANY[kind][2]
    for code in ["de", "de_CH"] if offered else ["deu", "▁de"]:  # "de" is a piece of every vocabulary
        with pytest.raises(InputError, match=rf"'{code}' is not a language of .*; did you mean {offered or 'de'}\?"):
            set_languages(model, tokenizer, None, code)
    assert model.generation_config.forced_bos_token_id is None


def test_targets_begin_with_the_language_as_translations_do(tokenizer_of):
    for kind in ("nllb", "mbart50", "seamless", "m2m100"):
        tokenizer = tokenizer_of(kind)
        encoded = encode_target(tokenizer, "Zwei Kinder")
        begins = {tokenizer.tgt_lang, language_tokens(tokenizer).get(tokenizer.tgt_lang)}
        assert encoded.token_words.tokens[0] in begins
        assert encoded.token_words.words == ["Zwei", "Kinder"]
        assert len(encoded.ids) == len(encoded.token_words.tokens)


def test_tokens_are_codes_too(tokenizer_of):
    for kind, token, code in (("m2m100", "__de__", "de"), ("seamless", "__deu__", "__deu__")):
        tokenizer, model = copy.deepcopy(tokenizer_of(kind)), no_model()
        set_languages(model, tokenizer, None, token)
        assert tokenizer.tgt_lang == code
        assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids(token)


@pytest.mark.parametrize("kind", ["mbart50", "seamless"])
def test_a_target_is_needed(tokenizer_of, kind):
    tokenizer, model = copy.deepcopy(tokenizer_of(kind)), no_model()
    if kind != "seamless":  # which always has one
        tokenizer.tgt_lang = None
    problem = r"target_lang: SimpleNamespace translates into \d+ languages, but none was given; give one of "
    with pytest.raises(InputError, match=problem + ("deu, eng, fra$" if kind == "seamless" else ".* and 40 others$")):
        choose_languages(model, tokenizer, None, None)
    choose_languages(model, tokenizer, None, MANY[kind][0])
    token = language_tokens(tokenizer)[MANY[kind][0]]
    assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids(token)


def test_the_target_saved_with_a_tokenizer_or_a_model_is_taken(tokenizer_of):
    model, tokenizer = no_model(), copy.deepcopy(tokenizer_of("nllb"))
    choose_languages(model, tokenizer, None, None)
    assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids("deu_Latn")
    model, tokenizer = no_model(), copy.deepcopy(tokenizer_of("mbart50"))
    tokenizer.tgt_lang = None
    model.config.decoder_start_token_id = tokenizer.convert_tokens_to_ids("ro_RO")  # as of mbart-large-en-ro
    choose_languages(model, tokenizer, None, None)
    assert model.generation_config.forced_bos_token_id is None


def test_translating_without_a_target_is_refused(translator_of):
    model, tokenizer = translator_of("m2m100")
    given = model.generation_config.forced_bos_token_id
    model.generation_config.forced_bos_token_id = None
    with pytest.raises(InputError, match="target_lang: M2M100ForConditionalGeneration translates into 100 languages"):
        hni.attribute(model, tokenizer, "A dog.", method="attention")
    hni.attribute(model, tokenizer, "A dog.", method="attention", generate={"forced_bos_token_id": given})


def test_one_language_checkpoints_need_no_setting(tokenizer_of):
    model = no_model()
    set_languages(model, tokenizer_of("marian"), "xx", "yy")
    assert model.generation_config.forced_bos_token_id is None
    choose_languages(model, tokenizer_of("t5"), None, None)
    with pytest.raises(InputError, match="source_lang: T5Tokenizer has no languages to choose; leave it out"):
        choose_languages(model, tokenizer_of("t5"), "en", None)


def test_none_leaves_a_language_as_it_is(translator_of):
    model, tokenizer = translator_of("m2m100")
    tokenizer = copy.deepcopy(tokenizer)
    before = tokenizer.src_lang, model.generation_config.forced_bos_token_id
    set_languages(model, tokenizer, None, None)
    assert (tokenizer.src_lang, model.generation_config.forced_bos_token_id) == before
    set_languages(model, tokenizer, None, "en")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == (before[0], "en")
    assert model.generation_config.forced_bos_token_id == tokenizer.get_lang_id("en")
