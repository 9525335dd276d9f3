"""The LSTM and convolutional translators and the classifier against their twins, and through transformers' ways.

Also for models/lstm/modeling_lstm.py, models/lstm/configuration_lstm.py, models/conv/modeling_conv.py and
models/conv/configuration_conv.py.
"""

import copy
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from hf_nmt_interp.models.conv import ConvSeq2SeqConfig
from hf_nmt_interp.models.lstm import (
    LSTMAttentionConfig,
    LSTMAttentionForSequenceClassification,
    LuongSeq2SeqConfig,
    LuongSeq2SeqForConditionalGeneration,
)
from hf_nmt_interp.models.proxy import BagOfWordsConfig, BagOfWordsProxy
from tests.reference.forward import double
from tests.reference.learning import proxy
from tests.reference.recurrent import FORWARDS, classifier
from tests.reference.shift import shifted_right
from tests.tiny_models import RECURRENT, random_batch, tiny_model

LENGTHS = [(5, 4), (3, 6), (2, 1)]
VARIANTS = {
    "lstm": ("lstm", {}),
    "lstm, one direction": ("lstm", {"bidirectional": False, "encoder_layers": 1, "decoder_layers": 1}),
    "lstm, dot": ("lstm", {"attention": "dot", "attention_heads": 1}),
    "lstm, uniform": ("lstm", {"attention_mode": "uniform"}),
    "lstm, linear": ("lstm", {"output": "linear", "attention_heads": 3}),
    "lstm, fed": ("lstm_fed", {}),
    "lstm, fed, one layer": ("lstm_fed", {"output": "linear", "encoder_layers": 1, "decoder_layers": 1}),
    "conv": ("conv", {}),
    "conv, wide": ("conv", {"kernel_size": 5, "encoder_layers": 1, "decoder_layers": 3}),
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_family = pytest.mark.parametrize("family", RECURRENT)


def make(variant, dtype=torch.float32):
    family, settings = VARIANTS[variant]
    return tiny_model(family, dtype, **settings)


def tiny_classifier(dtype=torch.float32, **settings):
    config = {"vocab_size": 40, "embedding_size": 6, "hidden_size": 8, "num_labels": 3} | settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LSTMAttentionForSequenceClassification(LSTMAttentionConfig(init_range=0.8, **config))
    return model.to(dtype).eval()


@torch.no_grad()
def outputs(model, batch):
    """Teacher-forced logits and attention weights."""
    inputs = {"decoder_input_ids": shifted_right(model, batch["labels"]), "output_attentions": True}
    return model(batch["input_ids"], batch["attention_mask"], **inputs, use_cache=False)


def assert_close(found, expected, tolerance):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


# -------------------------------------------------------------------------------------------------------- the twin
@every_variant
def test_equals_its_twin_whatever_the_batch(variant):
    model = make(variant, torch.float64)
    batch = random_batch(model, LENGTHS)
    found = outputs(model, batch)
    single = outputs(model.float(), batch).logits
    model = model.double()
    for row, (S, T) in enumerate(LENGTHS):
        source = double(model.encoder.embed_tokens.weight)[batch["input_ids"][row, :S]]
        target = double(model.decoder.embed_tokens.weight)[shifted_right(model, batch["labels"])[row, :T]]
        logits, weights = FORWARDS[type(model).__name__](model, source, target)
        assert_close(found.logits[row, :T], logits, 1e-10)
        assert_close(torch.stack(found.cross_attentions)[:, row, :, :T, :S], weights, 1e-10)
        assert_close(single[row, :T].double(), logits, 1e-4 * logits.abs().max().item())
        assert not torch.stack(found.cross_attentions)[:, row, :, :, S:].any()


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_labels": 2, "encoder_layers": 2}, {"attention_mode": "uniform"}, {"bidirectional": False}],
)
def test_classifier_equals_its_twin_whatever_the_batch(settings):
    model = tiny_classifier(torch.float64, **settings)
    lengths = [6, 2, 4]
    ids = torch.randint(40, (3, 6), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
    with torch.no_grad():
        found = model(ids, mask, output_attentions=True, output_hidden_states=True)
    for row, length in enumerate(lengths):
        logits, weights = classifier(model, double(model.embed_tokens.weight)[ids[row, :length]])
        assert_close(found.logits[row], logits, 1e-10)
        assert_close(found.attentions[0][row, 0, 0, :length], weights, 1e-10)
        assert not found.attentions[0][row, 0, 0, length:].any()
        states = found.hidden_states[0][row, :length]
        assert_close(model.output_logits(weights @ states), logits, 1e-10)


def test_parameters_are_those_of_the_paper():
    model = LSTMAttentionForSequenceClassification(LSTMAttentionConfig())
    assert sum(p.numel() for p in model.parameters()) - model.embed_tokens.weight.numel() == 1_274_882
    model = LuongSeq2SeqForConditionalGeneration(LuongSeq2SeqConfig())
    # the paper has 6,132,544: a second layer of 256 x 256 and biases in the attention, which its equations do not show
    assert model.num_parameters(exclude_embeddings=True) == 6_132_544 - 256 * 257 - 256


def test_contexts_of_heads_are_summed_and_the_output_is_a_function_of_context_and_state():
    model = make("lstm", torch.float64)
    batch = random_batch(model, [(5, 4)])
    inputs = {"decoder_input_ids": shifted_right(model, batch["labels"]), "output_hidden_states": True}
    with torch.no_grad():
        found = model(batch["input_ids"], **inputs, output_attentions=True)
        (h,), (s,) = found.encoder_hidden_states, found.decoder_hidden_states
        context = found.cross_attentions[0].sum(1) @ h
        assert_close(model.output_logits(context, s), found.logits, 1e-12)
        # all of them at once: what would be predicted if the network attended to one state only
        probe = model.output_logits(h[:, None].expand(1, 4, 5, -1), s[:, :, None].expand(1, 4, 5, -1))
    assert probe.shape == (1, 4, 5, 40)


# ------------------------------------------------------------------------------------------------------ generation
@every_variant
def test_step_by_step_is_teacher_forced(variant):
    model = make(variant)
    batch = random_batch(model, LENGTHS)
    read = shifted_right(model, batch["labels"])
    expected = outputs(model, batch)
    with torch.no_grad():
        encoded, cache, found, weights = model.encoder(batch["input_ids"], batch["attention_mask"]), None, [], []
        for piece in read.split([1, 2, 1, 1, 1], 1):
            step = model(
                attention_mask=batch["attention_mask"],
                encoder_outputs=encoded,
                decoder_input_ids=piece,
                past_key_values=cache,
                output_attentions=True,
            )
            cache = step.past_key_values
            found.append(step.logits)
            weights.append(torch.stack(step.cross_attentions))
    assert_close(torch.cat(found, 1), expected.logits, 1e-5)
    assert_close(torch.cat(weights, 3), torch.stack(expected.cross_attentions), 1e-5)
    assert cache.get_seq_length() == read.shape[1]


@every_variant
@pytest.mark.parametrize("search", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_generate_with_and_without_cache(variant, search):
    model = make(variant)
    batch = random_batch(model, LENGTHS)
    inputs = {"attention_mask": batch["attention_mask"], "max_new_tokens": 9, "do_sample": False, **search}
    with_cache = model.generate(batch["input_ids"], **inputs)
    assert torch.equal(with_cache, model.generate(batch["input_ids"], **inputs, use_cache=False))
    inputs["attention_mask"] = None
    for row, (S, _) in enumerate(LENGTHS):
        each = search.get("num_return_sequences", 1)
        alone = model.generate(batch["input_ids"][row : row + 1, :S], **inputs)
        rows = with_cache[row * each : (row + 1) * each]
        assert torch.equal(rows[:, : alone.shape[1]], alone)
        assert (rows[:, alone.shape[1] :] == model.config.pad_token_id).all()


@every_family
def test_a_step_reads_one_token_and_the_source_is_read_once(family):
    model = tiny_model(family)
    read = {"encoder": [], "decoder": []}
    for name, lengths in read.items():
        embedding = getattr(model, name).embed_tokens
        embedding.register_forward_hook(lambda module, args, output, lengths=lengths: lengths.append(args[0].shape[1]))
    if model.encoder.embed_tokens is model.decoder.embed_tokens:
        pytest.fail("hooks of the two stacks cannot be told apart")
    cache_sizes = []
    model.decoder.register_forward_hook(
        lambda module, args, output: cache_sizes.append(
            sum(t.numel() for t in _tensors(vars(output.past_key_values)))  # does not grow
        )
    )
    model.generate(random_batch(model, [(5, 4)])["input_ids"], max_new_tokens=6, min_new_tokens=6, num_beams=2)
    assert read == {"encoder": [5], "decoder": [1] * 6}
    assert len(set(cache_sizes)) == 1


def _tensors(x):
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, dict | list | tuple):
        for one in x.values() if isinstance(x, dict) else x:
            yield from _tensors(one)


@every_family
def test_bfloat16(family):
    model = tiny_model(family)
    batch = random_batch(model, LENGTHS)
    expected = outputs(model, batch).logits
    model = model.bfloat16()
    assert outputs(model, batch).logits.dtype == torch.bfloat16
    assert_close(outputs(model, batch).logits.float(), expected, 0.1 * expected.abs().max().item())
    assert model.generate(batch["input_ids"], max_new_tokens=3, num_beams=2).shape[0] == 3


# ------------------------------------------------------------------------------------------------------ training
@every_family
def test_loss_is_the_mean_cross_entropy_of_the_labels(family):
    model = tiny_model(family)
    batch = random_batch(model, LENGTHS)
    found = model(**batch)
    log_probs = outputs(model, batch).logits.log_softmax(-1)
    picked = log_probs.gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0][batch["labels"] != -100]
    assert found.past_key_values is None
    assert_close(found.loss, -picked.mean(), 1e-5)
    assert_close(model(**batch, num_items_in_batch=100).loss, -picked.sum() / 100, 1e-5)
    expected = shifted_right(model, batch["labels"])
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(batch["labels"]), expected)
    assert isinstance(model(**batch, return_dict=False), tuple)


def gradients(model, batch):
    model.zero_grad()
    model(**batch).loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_gradient_checkpointing_and_scaled_encoder_gradients():
    model = tiny_model("conv", torch.float64, dropout=0.0)
    batch = random_batch(model, LENGTHS)
    plain = gradients(model, batch)
    trained = gradients(model.train(), batch)
    model.gradient_checkpointing_enable()
    for name, gradient in gradients(model, batch).items():
        assert_close(gradient, trained[name], 1e-12)
    # the encoder's layers get their gradients from two attentions; what is not behind them gets its own
    for name in ("encoder.layers.0.convolution.weight", "encoder.leave.bias"):
        assert_close(trained[name], plain[name] / 2, 1e-10)
    assert_close(trained["decoder.enter.weight"], plain["decoder.enter.weight"], 1e-10)


@pytest.mark.parametrize("mode", ["uniform", "frozen", "learned"])
def test_attention_modes(mode, tmp_path):
    model = tiny_model("lstm", attention_mode=mode)
    batch = random_batch(model, LENGTHS)
    weights = outputs(model, batch).cross_attentions[0]
    shares = batch["attention_mask"] / batch["attention_mask"].sum(-1, keepdim=True)
    is_uniform = torch.allclose(weights, shares[:, None, None].expand_as(weights))
    assert is_uniform == (mode == "uniform")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for one in (model, loaded):
        assert ("attention.weight.weight" in gradients(one, batch)) == (mode == "learned")
        assert "encoder.merge.weight" in gradients(one, batch)
    found = gradients(tiny_classifier(attention_mode=mode), batch | {"labels": torch.tensor([0, 1, 2])})
    assert ("attention.0.weight" in found) == (mode == "learned")


# ------------------------------------------------------------------------------------------------------ saving
@every_family
@pytest.mark.parametrize("tied", ["apart", "tied", "all"])
def test_save_and_load(family, tied, tmp_path):
    settings = {"tie_word_embeddings": tied != "apart", "tie_output": tied == "all", "embedding_size": 16}
    model = tiny_model(family, **settings)
    assert (model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight) == (tied != "apart")
    assert (model.lm_head.weight is model.encoder.embed_tokens.weight) == (tied == "all")
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert type(loaded) is type(model)
    assert loaded.num_parameters() == model.num_parameters()
    batch = random_batch(model, LENGTHS)
    assert torch.equal(outputs(loaded, batch).logits, outputs(model, batch).logits)
    loaded.resize_token_embeddings(45, mean_resizing=False)
    assert_close(outputs(loaded, batch).logits[..., :40], outputs(model, batch).logits, 1e-6)


def test_classifier_is_saved_and_loaded(tmp_path):
    model = tiny_classifier()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    ids = torch.tensor([[4, 5, 6]])
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    found = model(ids, labels=torch.tensor([2]))
    assert_close(found.loss, -found.logits.log_softmax(-1)[0, 2], 1e-6)


REMOTE = """
import sys, torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
for path in sys.argv[1:]:
    auto = AutoModelForSequenceClassification if path.endswith("classifier") else AutoModelForSeq2SeqLM
    model = auto.from_pretrained(path, trust_remote_code=True)
    print(type(model).__name__)
    if auto is AutoModelForSeq2SeqLM:
        model.generate(torch.tensor([[5, 6, 2]]), max_new_tokens=3, num_beams=2)
assert not any(name.startswith("hf_nmt_interp") for name in sys.modules)
"""


def test_the_code_travels_with_the_weights(tmp_path):
    models = {"lstm": tiny_model("lstm"), "conv": tiny_model("conv"), "classifier": tiny_classifier()}
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", REMOTE, *(str(tmp_path / name) for name in models)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [type(model).__name__ for model in models.values()]


# ------------------------------------------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (LuongSeq2SeqConfig, {"attention": "concat"}, "attention='concat' is not one of general, dot"),
        (LuongSeq2SeqConfig, {"attention_mode": "fixed"}, "attention_mode='fixed' is not one of learned, uniform"),
        (LuongSeq2SeqConfig, {"output": "mlp"}, "output='mlp' is not one of hidden, linear"),
        (LuongSeq2SeqConfig, {"attention": "dot", "attention_heads": 2}, "attention_heads=2: all dot heads are equal"),
        (LuongSeq2SeqConfig, {"tie_output": True, "embedding_size": 2}, "tie_output=True needs"),
        (ConvSeq2SeqConfig, {"kernel_size": 4}, "kernel_size=4 must be odd"),
        (ConvSeq2SeqConfig, {"tie_output": True, "tie_word_embeddings": False}, "tie_output=True needs"),
        (LSTMAttentionConfig, {"num_labels": 1}, "num_labels=1: a classifier needs at least two"),
    ],
)
def test_wrong_settings_are_named(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


@every_family
def test_padding_before_the_text_is_refused(family):
    model = tiny_model(family)
    with pytest.raises(ValueError, match="attention_mask: padding must be at the end"):
        model(torch.tensor([[1, 5, 2]]), torch.tensor([[0, 1, 1]]), labels=torch.tensor([[5, 2]]))


def test_configurations_are_known_to_auto_classes():
    for kind in (LuongSeq2SeqConfig, ConvSeq2SeqConfig, LSTMAttentionConfig):
        config = AutoConfig.for_model(kind.model_type)
        assert type(config) is kind
        assert copy.deepcopy(config).to_dict() == config.to_dict()


# ------------------------------------------------------------------------------------------------------ the proxy
def test_proxy_is_the_mean_of_its_words_whatever_the_batch(tmp_path):
    torch.manual_seed(0)
    model = BagOfWordsProxy(BagOfWordsConfig(vocab_size=40, output_size=7, embedding_size=5)).double()
    labels = torch.tensor([[1, 2, 3], [4, -100, -100]])
    ids, mask = torch.tensor([[3, 4, 4], [9, 1, 1]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
    found = model(ids, mask, labels=labels)
    for row, length in enumerate((3, 1)):
        logits = proxy(model, double(model.embed_tokens.weight)[ids[row, :length]], 3)
        assert_close(found.logits[row], logits, 1e-12)
    picked = found.logits.log_softmax(-1)[[0, 0, 0, 1], [0, 1, 2, 0], [1, 2, 3, 4]]
    assert_close(found.loss.double(), -picked.mean(), 1e-6)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, dtype="float64")
    assert torch.equal(loaded(ids, mask, labels=labels).logits, found.logits)
    assert loaded(ids, mask, labels=torch.tensor([5, 6])).logits.shape == (2, 1, 7)
    assert BagOfWordsConfig(vocab_size=9).output_size == 9
