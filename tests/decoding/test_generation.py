"""What is caught from generate() is what it returned, and nothing is left behind."""

import pytest
import torch
from transformers import GenerationConfig, StoppingCriteria

from hf_nmt_interp.attribution import AttentionWeights
from hf_nmt_interp.decoding.batch import collate
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.errors import InputError

SENTENCES = ["The old dog sleeps.", "Two children are looking for shells.", "A car!"]
CALLS = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "sampling": {"do_sample": True},
    "several beams": {"num_beams": 4, "num_return_sequences": 3},
    "several samples": {"do_sample": True, "num_return_sequences": 2},
    "dictionary": {"num_beams": 2, "return_dict_in_generate": True, "output_scores": True},
    "short": {"max_new_tokens": 1},
}


def encode(tokenizer, sentences=SENTENCES):
    return {
        name: value
        for name, value in tokenizer(sentences, padding=True, return_tensors="pt").items()
        if name in ("input_ids", "attention_mask")
    }


def up_to_eos(model, sequence: list[int]) -> list[int]:
    eos = model.generation_config.eos_token_id
    return sequence[: sequence.index(eos) + 1] if eos in sequence else sequence


@pytest.mark.parametrize("call", CALLS)
def test_ids_caught_are_the_ids_generated(any_translator, call):
    model, tokenizer = any_translator
    inputs = encode(tokenizer)
    with record_generation(model) as translations:
        output = model.generate(**inputs, **CALLS[call])
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    each = CALLS[call].get("num_return_sequences", 1)
    assert len(translations) == len(sequences) == each * len(SENTENCES)
    for i, (translation, (start, *target)) in enumerate(zip(translations, sequences.tolist(), strict=True)):
        assert translation.source_ids == tokenizer(SENTENCES[i // each])["input_ids"]
        assert translation.start_id == start
        assert translation.target_ids == up_to_eos(model, target)


def test_force_decoding_the_generated_ids_gives_their_scores(any_translator):
    model, tokenizer = any_translator
    settings = {"return_dict_in_generate": True, "output_logits": True, "do_sample": False, "num_beams": 1}
    with record_generation(model) as translations:
        output = model.generate(**encode(tokenizer), **settings)
    log_probs = torch.stack(output.logits, 1).log_softmax(-1)  # [B, T, V]
    chosen = log_probs.gather(-1, output.sequences[:, 1:, None])[..., 0]
    scores = AttentionWeights(model)(**collate(translations, model.config.pad_token_id))
    for row, translation in enumerate(translations):
        T = len(translation.target_ids)
        torch.testing.assert_close(scores.log_probs[row, :T], chosen[row, :T], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("kind", "code"), [("nllb", "deu_Latn"), ("m2m100", "__de__")])
def test_forced_language_token_is_the_first_target_token(translator_of, kind, code):
    model, tokenizer = translator_of(kind)
    language = tokenizer.convert_tokens_to_ids(code)
    with record_generation(model) as translations:
        model.generate(**encode(tokenizer))
        model.generate(**encode(tokenizer), forced_bos_token_id=tokenizer.eos_token_id)
    assert [t.start_id for t in translations] == [model.config.decoder_start_token_id] * 6
    assert [t.target_ids[0] for t in translations] == [language] * 3 + [tokenizer.eos_token_id] * 3


def test_mbart_starts_with_its_language_token(translator_of):
    model, tokenizer = translator_of("mbart")
    with record_generation(model) as translations:
        model.generate(**encode(tokenizer))
        model.generate(**encode(tokenizer), decoder_start_token_id=tokenizer.convert_tokens_to_ids("fr_XX"))
    codes = [tokenizer.convert_ids_to_tokens(t.start_id) for t in translations]
    assert codes == ["de_DE"] * 3 + ["fr_XX"] * 3


def test_many_calls_in_any_form(translator_of):
    model, tokenizer = translator_of("marian")
    inputs = encode(tokenizer)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    with record_generation(model) as translations:
        for call in (
            lambda: model.generate(ids),  # the mask is inferred
            lambda: model.generate(inputs=ids, attention_mask=mask),
            lambda: model.generate(ids, GenerationConfig(max_length=10), attention_mask=mask),
            lambda: model.generate(input_ids=ids, attention_mask=mask, generation_config=GenerationConfig()),
        ):
            output = call()
            assert [t.target_ids for t in translations[-3:]] == [up_to_eos(model, row[1:]) for row in output.tolist()]
    assert [t.source_ids for t in translations] == 4 * [tokenizer(sentence)["input_ids"] for sentence in SENTENCES]


def test_max_length_without_eos(any_translator):
    model, tokenizer = any_translator
    eos = model.generation_config.eos_token_id
    with record_generation(model) as translations:
        output = model.generate(**encode(tokenizer), suppress_tokens=[eos], forced_eos_token_id=None)
    assert output.shape[1] == 10
    assert [t.target_ids for t in translations] == output[:, 1:].tolist()


def test_eos_of_the_call(translator_of):
    model, tokenizer = translator_of("marian")
    plain = model.generate(**encode(tokenizer), suppress_tokens=[0], forced_eos_token_id=None)
    stop = plain[0, 3].item()
    for settings in (
        {"eos_token_id": stop},
        {"eos_token_id": [stop, 0]},
        {"generation_config": GenerationConfig(eos_token_id=stop, pad_token_id=5, max_length=10)},
    ):
        with record_generation(model) as translations:
            model.generate(**encode(tokenizer), **settings)
        assert all(set(t.target_ids[:-1]).isdisjoint({stop}) for t in translations)
        assert len({t.target_ids[-1] for t in translations} & {stop}) == 1


class TwoTokens(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        rows = torch.arange(len(input_ids))
        return (rows == 0) & (input_ids.shape[1] >= 3)


def test_rows_stopped_by_other_criteria(translator_of):
    model, tokenizer = translator_of("bart")
    settings = {"suppress_tokens": [2], "forced_eos_token_id": None, "stopping_criteria": [TwoTokens()]}
    with record_generation(model) as translations:
        output = model.generate(**encode(tokenizer), **settings)
    assert translations[0].target_ids == output[0, 1:3].tolist()
    assert output[0, 3:].unique().tolist() == [model.config.pad_token_id]
    assert translations[1].target_ids == output[1, 1:].tolist()


def test_padding_that_is_eos_is_part_of_an_unmasked_source(translator_of):
    model, tokenizer = translator_of("marian")
    ids = tokenizer([SENTENCES[0]], return_tensors="pt")["input_ids"]
    with record_generation(model) as translations:
        model.generate(ids, pad_token_id=model.config.eos_token_id)
    assert translations[0].source_ids == ids[0].tolist()


# ----------------------------------------------------------------------------------------------------- nothing is left
def test_nothing_is_left_on_the_model(translator_of):
    model, tokenizer = translator_of("marian")
    before = sorted(vars(model))
    with record_generation(model):
        model.generate(**encode(tokenizer))
    assert sorted(vars(model)) == before
    with pytest.raises(RuntimeError, match="mine"), record_generation(model):
        raise RuntimeError("mine")
    assert "generate" not in vars(model)
    with pytest.raises(TypeError), record_generation(model):
        model.generate(**encode(tokenizer), max_length="ten")
    assert sorted(vars(model)) == before
    with record_generation(model) as translations:
        model.generate(**encode(tokenizer))
    assert len(translations) == 3


def test_a_failed_call_leaves_the_others(translator_of):
    model, tokenizer = translator_of("marian")
    with record_generation(model) as translations:
        with pytest.raises(TypeError):
            model.generate(**encode(tokenizer), max_length="ten")
        model.generate(**encode(tokenizer))
    assert len(translations) == 3


def test_nested_contexts_are_refused(translator_of):
    model, _ = translator_of("marian")
    with record_generation(model):
        with pytest.raises(InputError, match="already being recorded; leave the other context first"):
            record_generation(model).__enter__()
        assert hasattr(type(model).generate, "plain")
    assert not hasattr(type(model).generate, "plain")


def test_sources_that_cannot_be_known_are_refused(translator_of):
    model, tokenizer = translator_of("bart")
    inputs = encode(tokenizer)
    with record_generation(model) as translations:
        with pytest.raises(InputError, match=r"attention_mask: padding must be at the end .* padding_side='right'"):
            model.generate(inputs["input_ids"].flip(-1), attention_mask=inputs["attention_mask"].flip(-1))
        mask = inputs["attention_mask"].clone()
        mask[1] = 0
        with pytest.raises(InputError, match=r"attention_mask\[1\]: has no tokens; leave it out"):
            model.generate(inputs["input_ids"], attention_mask=mask)
        with pytest.raises(
            InputError,
            match=r"attention_mask: shape \[3, 1\], but input_ids has \[3, \d+\]; give one of the same shape",
        ):
            model.generate(inputs["input_ids"], attention_mask=mask[:, :1])
        memory = model.get_encoder()(**inputs)
        with pytest.raises(InputError, match="the source is not known from encoder_outputs alone; give input_ids"):
            model.generate(encoder_outputs=memory, attention_mask=inputs["attention_mask"])
        model.generate(inputs["input_ids"], encoder_outputs=memory, attention_mask=inputs["attention_mask"])
    assert len(translations) == 3
