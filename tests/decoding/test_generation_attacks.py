"""Odd uses of `generate()`: copies inside a context, settings in configurations, threads, long translations, seeds.

Also for decoding/generation.py.
"""

import copy
import io
import pickle
import threading

import pytest
import torch
from transformers import GenerationConfig

import hf_nmt_interp as hni
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from tests.decoding.test_generation import SENTENCES, encode


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_made_inside_a_context_are_their_own(translator_of, duplicate):
    model, tokenizer = translator_of("bart")
    inputs = encode(tokenizer)
    with record_generation(model) as translations:
        twin = duplicate(model)
        if duplicate is not copy.copy:  # which shares the weights
            for weight in twin.parameters():
                weight.data.zero_()
        twin.generate(**inputs, max_length=4)
        assert not translations
        model.generate(**inputs)
    assert len(translations) == len(SENTENCES)
    assert "generate" not in vars(twin)
    zeros, own = (one.generate(**inputs, max_length=4).tolist() for one in (twin, model))
    assert (zeros == own) == (duplicate is copy.copy)


def test_a_model_is_saved_whole_inside_a_context(translator_of):
    model, tokenizer = translator_of("bart")
    with hni.explain_generation(model, tokenizer):
        torch.save(model, io.BytesIO())


def test_contexts_of_several_models_do_not_disturb_each_other(translator_of):
    before = type(translator_of("bart")[0]).generate
    (one, tokenizer), (two, _) = translator_of("bart"), translator_of("bart")
    inputs = encode(tokenizer)
    with record_generation(one) as first:
        with record_generation(two) as second:
            one.generate(**inputs)
        two.generate(**inputs)
    assert (len(first), len(second)) == (3, 0)
    assert type(one).generate is before


def test_a_replaced_generate_is_refused(translator_of):
    model, tokenizer = translator_of("bart")
    model.generate = lambda **_: None
    with pytest.raises(InputError, match=r"generate\(\) was overridden; remove it with `del"):
        hni.attribute(model, tokenizer, "A dog.", method="attention")


def test_stop_strings_of_a_configuration_leave_no_padding(translator_of):
    model, tokenizer = translator_of("bart")
    free = {"suppress_tokens": [2], "forced_eos_token_id": None}
    output = model.generate(**encode(tokenizer), **free)
    stop = tokenizer.decode(output[0, 2:3])
    model.generation_config.stop_strings = [stop]
    with record_generation(model) as translations:
        output = model.generate(**encode(tokenizer), **free, tokenizer=tokenizer)
    pad = model.config.pad_token_id
    assert (output == pad).any()
    assert all(translation.target_ids[-1] != pad for translation in translations)


def test_several_sequences_of_a_configuration(translator_of):
    model, tokenizer = translator_of("bart")
    expected = [pair.ids for pair in Pairs.translate(model, tokenizer, SENTENCES, generate={"num_beams": 3})]
    model.generation_config.num_return_sequences = model.generation_config.num_beams = 3
    assert [pair.ids for pair in Pairs.translate(model, tokenizer, SENTENCES)] == expected
    config = GenerationConfig(num_beams=3, num_return_sequences=3)
    with pytest.raises(InputError, match="num_return_sequences: must be 1: one translation per source; use explain_"):
        Pairs.translate(model, tokenizer, SENTENCES, generate={"generation_config": config})


@pytest.mark.parametrize("name", ["input_ids", "inputs", "attention_mask", "encoder_outputs"])
def test_the_source_is_no_argument_of_generate(translator_of, name):
    model, tokenizer = translator_of("bart")
    with pytest.raises(InputError, match=f"generate: '{name}' is made from the sources; leave it out"):
        hni.attribute(model, tokenizer, "A dog.", method="attention", generate={name: torch.ones(1, 2)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"num_beams": -1}, "num_beams: -1 is not a number of beams; give 1 or more"),
        ({"num_beams": "4"}, "num_beams: '4' is not a number of beams"),
        ({"generation_config": 5}, "generation_config: 5 is not a GenerationConfig; see transformers"),
    ],
)
def test_arguments_of_another_type(translator_of, call, message):
    with pytest.raises(InputError, match=message):
        hni.attribute(*translator_of("bart"), "A dog.", method="attention", generate=call)


def test_a_translation_beyond_the_positions_blocks_no_results(translator_of):
    """M2M100's positions grow as needed: what it has generated, it can read."""
    model, tokenizer = translator_of("m2m100")
    length = model.config.max_position_embeddings + 2
    with hni.explain_generation(model, tokenizer, method="attention") as explained:
        model.generate(**encode(tokenizer))
        model.generate(**encode(tokenizer)).tolist()
        model.generate(**encode(tokenizer), max_length=length, min_length=length)
    assert [len(result.target_tokens) for result in explained.results][-3:] == [length - 1] * 3
    assert len(explained.results) == 9


def test_threads_that_read_the_same_results(translator_of):
    model, tokenizer = translator_of("bart")
    with hni.explain_generation(model, tokenizer, method="attention") as explained:
        for _ in range(4):
            model.generate(**encode(tokenizer))
    numbers: list[int] = []
    threads = [threading.Thread(target=lambda: numbers.append(len(explained.results))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (numbers, len(explained.results)) == ([12] * 6, 12)


def test_states_of_another_source_are_refused(translator_of):
    model, tokenizer = translator_of("bart")
    inputs, others = encode(tokenizer), encode(tokenizer, SENTENCES[::-1])
    with record_generation(model) as translations:
        memory = model.get_encoder()(**others)
        with pytest.raises(InputError, match="encoder_outputs: were not computed from input_ids; give"):
            model.generate(**inputs, encoder_outputs=memory)
        model.generate(**others, encoder_outputs=memory)
    assert len(translations) == 3


def test_sampled_translations_have_a_seed(translator_of):
    model, tokenizer = translator_of("bart")
    model.generation_config.do_sample = True

    def sampled(**generate):
        return [pair.ids.target_ids for pair in Pairs.translate(model, tokenizer, SENTENCES, generate=generate)]

    before = torch.random.get_rng_state()
    assert sampled() == sampled(seed=0) != sampled(seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(InputError, match="generate: 'x' is not a valid seed; give an integer"):
        sampled(seed="x")


@pytest.mark.parametrize("name", ["max_length", "max_new_tokens"])
@pytest.mark.parametrize("number", [10**9, 10**20])
def test_a_length_without_sense_is_refused(translator_of, name, number):
    model, tokenizer = translator_of("marian")
    with pytest.raises(
        InputError, match=rf"generate: {number} tokens \({name}\) exceed the maximum of 100,000; give fewer"
    ):
        hni.attribute(model, tokenizer, "A dog sleeps.", method="attention", generate={name: number})
