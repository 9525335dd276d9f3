"""Every type in transformers' own table of sequence-to-sequence models: what is explained, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM, WhisperConfig, WhisperForConditionalGeneration

from hf_nmt_interp.analysis.own_attention import choose_attention
from hf_nmt_interp.attribution.gradients import is_plain
from hf_nmt_interp.attribution.layered import LayeredMethod
from hf_nmt_interp.attribution.registry import METHODS, make_method
from hf_nmt_interp.decoding.batch import make_batch, run_model
from hf_nmt_interp.decoding.generation import plain_generate, translate_batch
from hf_nmt_interp.decoding.pairs import Pair, Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import any_parts, capacity, parts
from hf_nmt_interp.text.tokens import TokenWords
from tests.any_models import COMPOSED, TEXT_TYPES, TYPES, tiny_of_type
from tests.attribution.leaks import unchanged
from tests.tiny_models import random_batch

WITHOUT_RULES = {  # LRP says what is missing
    "bigbird_pegasus": "the layers of BigBirdPegasusForConditionalGeneration are not known; supported are Marian",
    "blenderbot-small": "the layers of BlenderbotSmallForConditionalGeneration are not known",
    "fsmt": "the layers of FSMTForConditionalGeneration are not known",
    "led": "the layers of LEDForConditionalGeneration are not known",
    "longt5": "the layers of LongT5ForConditionalGeneration are not known",
    "mvp": "the layers of MvpForConditionalGeneration are not known",
    "nllb-moe": r"NllbMoeForConditionalGeneration has mixture-of-experts layers \(NllbMoeSparseMLP\), which are not",
    "pegasus_x": "the layers of PegasusXForConditionalGeneration are not known",
    "prophetnet": "the layers of ProphetNetForConditionalGeneration are not known",
    "switch_transformers": "the layers of SwitchTransformersForConditionalGeneration are not known",
    "t5gemma": "the layers of T5GemmaForConditionalGeneration are not known",
    "t5gemma2": "the layers of T5Gemma2ForConditionalGeneration are not known",
    "bert2bert_narrow": r"encoder and decoder of different width \(enc_to_dec_proj\) are not supported",
    "roberta2roberta": "EncoderDecoderModel of RobertaModel and RobertaForCausalLM is not supported",
}
# that compute masks, routers or positions in float32
FLOAT32 = "fsmt", "led", "prophetnet", "nllb-moe", "switch_transformers", "t5gemma2"
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-9}
LENGTHS = [(6, 5), (4, 3)]
EXPLAINED = [name for name in METHODS if name not in ("lrp", "mask", "alignment_head")]
WITHOUT_WEIGHTS = {  # encoders and decoders that return scores, windows or offsets
    "led": "LEDForConditionalGeneration does not return whole encoder attention weights; use attention or saliency",
    "longt5": "LongT5ForConditionalGeneration does not return whole encoder attention weights",
    "pegasus_x": "PegasusXForConditionalGeneration does not return whole encoder attention weights",
    "prophetnet": "ProphetNetForConditionalGeneration does not return whole encoder attention weights",
    "t5gemma2": "T5Gemma2ForConditionalGeneration does not return whole decoder attention weights",
}
MISSING = {"rollout": WITHOUT_WEIGHTS} | {
    name: WITHOUT_RULES for name in EXPLAINED if issubclass(METHODS[name], LayeredMethod)
}


@pytest.fixture(scope="module")
def model_of():
    built = {}

    def get(name):
        if name not in built:
            built[name] = tiny_of_type(name, torch.float32 if name in FLOAT32 else torch.float64)
            ids = torch.tensor([[5, 2]])  # transformers leaves hooks on a model whose attention is asked for
            built[name](input_ids=ids, decoder_input_ids=ids, output_attentions=True)
        return built[name]

    return get


@pytest.mark.parametrize("method", EXPLAINED)
@pytest.mark.parametrize("name", TEXT_TYPES + COMPOSED)
def test_every_model_of_text_is_explained(model_of, name, method):
    model = model_of(name)
    settings = {"smoothgrad": 2} if "smooth" in method else {"steps": 3} if method == "integrated_gradients" else {}
    batch = random_batch(model, LENGTHS)
    if name in MISSING.get(method, {}):
        with unchanged(model), pytest.raises(InputError, match=f"model: {MISSING[method][name]}"):
            make_method(model, method)(**batch)
        return
    used = [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]
    with unchanged(model):
        found = make_method(model, method, **settings)(**batch)
    assert [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")] == used
    assert found.source.shape == (2, 5, 6)
    assert found.source[1, :3, :4].abs().sum() > 0
    assert not found.source[1, :, 4:].any()
    if name == "prophetnet":  # in transformers its steps depend on the length of the target and on later tokens
        return
    assert not found.prefix.triu().any()
    alone = {key: value[1:, : 3 if key == "labels" else 4] for key, value in batch.items()}
    again = make_method(model, method, **settings)(**alone)
    for one, two in ((found.source[1:, :3, :4], again.source), (found.prefix[1:, :3, :3], again.prefix)):
        torch.testing.assert_close(one, two, rtol=0, atol=CLOSE[model.dtype] * max(1, float(two.abs().max())))


@pytest.mark.parametrize("name", TEXT_TYPES + COMPOSED)
def test_saliency_is_the_slope_along_the_embedding(model_of, name):
    """psi(i, t) = d log p(y_t) / d s of embeddings s E_i, step by step."""
    model = copy.deepcopy(model_of(name))
    for module in model.modules():
        module._forward_hooks.clear()  # those of transformers: a model without hooks takes its own way back
    stack = any_parts(model).encoder
    batch = make_batch(model, **random_batch(model, LENGTHS[:1]))
    scales, inside = torch.ones(6, 1, dtype=model.dtype, requires_grad=True), []
    handles = [
        stack.module.register_forward_pre_hook(lambda *_: inside.append(1)),
        stack.module.register_forward_hook(lambda *_: inside.clear()),
        stack.embedding.register_forward_hook(
            lambda module, args, output: output * scales if inside and output.shape[1] == 6 else None
        ),
    ]
    log_probs = run_model(model, batch.inputs()).logits.log_softmax(-1).gather(-1, batch.labels[..., None])[0, :, 0]
    for handle in handles:
        handle.remove()
    slopes = torch.stack([torch.autograd.grad(one, scales, retain_graph=True)[0][:, 0] for one in log_probs])
    assert is_plain(model)
    found = make_method(model, "saliency").run(batch)
    largest = slopes.abs().max().item()
    torch.testing.assert_close(found.source[0], slopes, rtol=0, atol=10 * CLOSE[model.dtype] * largest)
    torch.testing.assert_close(found.log_probs[0], log_probs.detach())


@pytest.mark.parametrize("name", TEXT_TYPES + COMPOSED)
def test_lrp_explains_or_says_what_is_missing(model_of, name):
    model = model_of(name)
    if name in WITHOUT_RULES:
        with pytest.raises(InputError, match=f"model: {WITHOUT_RULES[name]}"):
            make_method(model, "lrp")
        assert not METHODS["lrp"].fits(model)
    else:  # what is recorded is verified against the rules
        assert make_method(model, "lrp")(**random_batch(model, LENGTHS)).conservation_gap.max() < 1e-9
        for rule in ("attnlrp", "cp_lrp", "gamma"):  # T5 takes the mean square of its norms in float32
            scores = make_method(model, "lrp", rule=rule)(**random_batch(model, LENGTHS))
            assert scores.conservation_gap.max() < 1e-6


@pytest.mark.parametrize("name", TEXT_TYPES + COMPOSED)
def test_translations_are_aligned_by_perturbation(model_of, name):
    model = model_of(name)
    sources = [[5, 6, 7, 2], [9, 10, 2]]
    made = translate_batch(plain_generate(model), model, sources, max_new_tokens=4)

    def words(ids):
        return TokenWords(list(map(str, ids)), list(map(str, ids)), list(range(len(ids))), [False] * len(ids))

    pairs = [Pair(ids, words(ids.source_ids), words(ids.target_ids)) for ids in made]
    chosen = choose_attention(model, Pairs(model, pairs))
    assert 0 <= chosen.layer < 2
    assert 0 <= chosen.aer <= 1


def test_dense_models_of_experts_have_rules():
    config = tiny_of_type("nllb-moe").config
    config.encoder_sparse_step = config.decoder_sparse_step = 0
    model = AutoModelForSeq2SeqLM.from_config(config).double().eval()
    assert make_method(model, "lrp")(**random_batch(model, LENGTHS)).conservation_gap.max() < 1e-9


def test_the_weights_of_known_layers_are_those_that_models_return(model_of):
    """`output_attentions` and recorded queries and keys agree, where both are to be had."""
    from hf_nmt_interp.attribution.attention import AttentionWeights, returned_weights

    for name in ("bart", "pegasus", "t5", "umt5", "seamless_m4t", "nllb-moe"):
        model = model_of(name)
        batch = make_batch(model, **random_batch(model, LENGTHS))
        method = AttentionWeights(model, layer=0, head=1)
        with torch.no_grad():
            logits, cross, own, _ = returned_weights(model, batch.inputs())
            torch.testing.assert_close(logits, run_model(model, batch.inputs()).logits)
        found = method.run(batch)
        kept = (batch.labels != -100)[..., None]
        torch.testing.assert_close(found.source, cross[0][:, 1] * kept)
        torch.testing.assert_close(found.start, (own[0][:, 1] * kept)[..., 0])


@pytest.mark.parametrize("name", ["led", "prophetnet"])
def test_layers_and_heads_that_a_model_does_not_have(model_of, name):
    batch = random_batch(model_of(name), LENGTHS)
    with pytest.raises(InputError, match="layer: 2 is out of range; the decoder has 2 layers, 0 to 1"):
        make_method(model_of(name), "attention", layer=2)(**batch)
    with pytest.raises(InputError, match="head: 2 is not a cross-attention head of layer 1; it has 0, 1"):
        make_method(model_of(name), "attention", layer=1, head=2)(**batch)


def test_attention_of_prophetnet_is_that_of_the_stream_that_predicts(model_of):
    model = model_of("prophetnet")
    batch = make_batch(model, **random_batch(model, LENGTHS[:1]))
    core = model.prophetnet.decoder.layers[-1].cross_attn
    kept = []
    handle = core.register_forward_hook(lambda module, args, output: kept.append(output[1]))
    with torch.no_grad():
        run_model(model, batch.inputs() | {"output_attentions": True})
    handle.remove()
    expected = kept[0].softmax(-1).mean(1)[:, 5:10]
    torch.testing.assert_close(make_method(model, "attention").run(batch).source, expected)


@pytest.mark.parametrize("name", [name for name in TYPES if name not in TEXT_TYPES])
def test_models_that_are_not_encoder_decoders_are_refused(name):
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[name]())
    with pytest.raises(InputError, match=f"model: only encoder-decoder models are supported, {type(model).__name__}"):
        any_parts(model)


def test_models_that_do_not_read_text_are_refused():
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(WhisperConfig())
    with pytest.raises(InputError, match=r"only models that read text are supported, Whisper\w+ reads input_features"):
        any_parts(model)
    with pytest.raises(InputError, match=r"only models that read text are supported, Whisper\w+ reads input_features"):
        parts(model)


def test_capacity():
    assert capacity(tiny_of_type("fsmt"), "source") == (40, None)  # it makes positions as they are needed
    led = tiny_of_type("led")
    led.config.max_encoder_position_embeddings = 100
    assert (capacity(led, "source"), capacity(led, "target")) == ((40, 100), (40, 64))
    assert capacity(tiny_of_type("roberta2roberta"), "target") == (40, 62)  # of which it counts from its padding on
    assert capacity(tiny_of_type("bert2bert_narrow"), "target") == (40, 64)


def test_positions_that_are_used_up_are_told_from_other_failures(monkeypatch):
    model = tiny_of_type("bart")
    with pytest.raises(InputError, match="generate: a translation grew longer than the model's positions"):
        translate_batch(plain_generate(model), model, [[5, 2]], max_new_tokens=70, min_new_tokens=70)
    monkeypatch.setattr(type(model), "forward", lambda *args, **kwargs: [][1])
    with pytest.raises(InputError, match=r"model: BartForConditionalGeneration fails in generate\(\) \(list index"):
        translate_batch(plain_generate(model), model, [[5, 2]], max_new_tokens=4)


def test_a_decoder_needs_a_start():
    model = tiny_of_type("umt5")
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with pytest.raises(InputError, match="model: its config has no decoder start token; set config"):
        make_batch(model, torch.tensor([[5, 2]]), torch.tensor([[6, 2]]))
    model.generation_config.decoder_start_token_id = 3
    assert make_batch(model, torch.tensor([[5, 2]]), torch.tensor([[6, 2]])).decoder_input_ids.tolist() == [[3, 6]]


def test_labels_are_left_alone():
    model, labels = tiny_of_type("fsmt"), torch.tensor([[6, 7, 2], [8, 2, -100]])
    make_batch(model, torch.tensor([[5, 2], [5, 2]]), labels)
    np.testing.assert_array_equal(labels, [[6, 7, 2], [8, 2, -100]])


def test_models_that_replace_their_modules_are_left_in_their_mode():
    """BigBird takes full attention for short sentences, from the first one on."""
    model = tiny_of_type("bigbird_pegasus").train()
    model.get_encoder().set_attention_type("block_sparse")
    replaced = model.get_encoder().layers[0].self_attn.self
    make_method(model, "attention")(**random_batch(model, LENGTHS))
    assert model.get_encoder().layers[0].self_attn.self is not replaced
    assert model.training
