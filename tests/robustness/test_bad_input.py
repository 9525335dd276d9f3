"""Every kind of bad input, tried really: one line that names argument, value and remedy, or a right result.

The table of `docs/robustness.md` names the tests of this file.

Also for errors.py and attribution/parsing.py.
"""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS, AttentionWeights
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from tests.fitting import fitting
from tests.tiny_models import random_batch, tiny_model

NAN, INF = float("nan"), float("inf")
WEIRD = {  # text that is unusual and right
    "empty": "",
    "blank": " \t \u00a0\u3000",
    "right to left": "שלום עולم \u202eאבג\u202c",
    "combining": "e\u0301 a\u0308\u0301\u0302\u0303 ัััััั",
    "punctuation": "... !!! ?",
    "unknown": "漢字 漢字",
    "special": "</s> <pad> </s>",
    "EOS inside": "A dog. </s> A cat.",
    "control": "\x01 \x02 \x7f",
    "NUL": "A \0 dog.",
    "emoji": "👨\u200d👩\u200d👧 a\u200bb",
    "line break": "A dog.\nA cat.\u2028x",
}


@pytest.fixture
def translator(translator_of):
    """The tiny Marian model and its tokenizer."""
    return translator_of("marian")


# ------------------------------------------------------------------------------------------------------------ text
@pytest.mark.parametrize("kind", WEIRD)
@pytest.mark.parametrize("family", ["marian", "bart"])
def test_unusual_text_is_explained(translator_of, family, kind):
    model, tokenizer = translator_of(family)
    for source, target in ((WEIRD[kind], "Ein Hund."), ("A dog.", WEIRD[kind])):
        result = hni.attribute(model, tokenizer, source, target)
        assert np.isfinite(result.source).all()
        assert result.conservation_gap <= 1e-4
        result.to_words()
        result.to_html()
        links = hni.align(model, tokenizer, source, target, method="attention", words="spaces")
        S, T = len(source.split()), len(target.split())
        assert all(i < S and j < T for i, j in links)
    assert hni.attribute(model, tokenizer, [WEIRD[kind]], method="attention")[0].source.shape[1] >= 1


BAD_TEXT = [
    ("A \ud800 dog", r"text: 'A .* dog' has a lone surrogate at 2; read it as UTF-8"),
    (None, "sources: 'None' is not a list of sentences"),
    (3, "sources: '3' is not a list of sentences"),
    (b"A dog.", "sources: .* is not a list of sentences"),
    ([None], "text: 'None' is NoneType, not a sentence or a list of its words"),
    ([["A", None]], "text: None among the words is not a string"),
    ("word " * 10_000, r"sources\[0\]: 40001 tokens, but the model has 64 positions; split the sentence"),
    (["A dog.", "word " * 10_000], r"sources\[1\]: 40001 tokens, but the model has 64 positions; split the sentence"),
]


@pytest.mark.parametrize(("sources", "message"), BAD_TEXT, ids=range(len(BAD_TEXT)))
@pytest.mark.parametrize("function", [hni.attribute, hni.align])
def test_bad_text_is_refused_before_the_work(translator, function, sources, message):
    model, tokenizer = translator
    model.generate = pytest.fail  # nothing may be translated before all sentences are checked
    with pytest.raises(InputError, match=message):
        function(model, tokenizer, sources, method="attention")


def test_bad_targets(translator):
    model, tokenizer = translator
    with pytest.raises(InputError, match=r"targets\[0\]: 50001 tokens, but the model has 64 positions"):
        hni.attribute(model, tokenizer, "A dog.", "word " * 10_000)
    with pytest.raises(InputError, match="targets: 1 targets for 2 sources; give one each"):
        hni.attribute(model, tokenizer, ["A", "B"], ["C"])
    with pytest.raises(InputError, match="targets: 1 targets for 2 sources; give one each"):
        hni.align(model, tokenizer, ["A", "B"], ["C"])


@pytest.mark.parametrize("family", ["t5", "lstm"])
def test_models_without_positions_have_a_limit_too(translator_of, family):
    model, tokenizer = translator_of("t5" if family == "t5" else "bart")
    model = tiny_model("lstm", vocab_size=len(tokenizer)) if family == "lstm" else model
    model.generate = pytest.fail
    long = "word " * 10_000
    for function in (hni.attribute, hni.align):
        with pytest.raises(InputError, match=r"sources\[1\]: \d+ tokens, but at most 4096 are supported; split"):
            function(model, tokenizer, ["A dog.", long], method="attention")
        with pytest.raises(InputError, match=r"targets\[0\]: \d+ tokens, but at most 4096 are supported; split"):
            function(model, tokenizer, [long[:50]], [long], method="attention")


def test_a_translation_that_outgrows_the_model(translator):
    model, tokenizer = translator
    with pytest.raises(InputError, match="generate: a translation grew longer than the model's positions; give"):
        hni.attribute(model, tokenizer, "A", generate={"max_length": None, "max_new_tokens": 90, "min_length": 80})
    with pytest.raises(InputError, match=r"generate: \[4\] is not a dictionary of arguments"):
        hni.attribute(model, tokenizer, "A", generate=[4])
    with pytest.raises(InputError, match=r"generate: .* not used by the model: \['beams'\]"):
        hni.attribute(model, tokenizer, "A", generate={"beams": 4})
    with pytest.raises(InputError, match="generate: "):
        hni.attribute(model, tokenizer, "A", generate={"num_beams": 0})


def test_the_wrong_tokenizer(translator, tokenizer_of):
    model, _ = translator
    larger, other = tokenizer_of("bart"), tokenizer_of("t5")
    for tokenizer, message in (
        (larger, r"tokenizer: \d+ tokens, but the model has \d+; use the model's own"),
        (other, "tokenizer: its sentences end with token 1, the model's with 0; use the model's own"),
        (None, "tokenizer: NoneType is not supported"),
    ):
        with pytest.raises(InputError, match=message):
            hni.attribute(model, tokenizer, "A dog.")
        with pytest.raises(InputError, match=message):
            hni.align(model, tokenizer, ["A dog."])
    with pytest.raises(InputError, match="use the model's own"), hni.explain_generation(model, larger):
        pass


# --------------------------------------------------------------------------------------------------------- tensors
def changed(batch, **changes):
    return batch | {name: change(batch[name]) for name, change in changes.items()}


def with_value(row, column, value):
    def change(ids):
        ids = ids.clone()
        ids[row, column] = value
        return ids

    return change


BAD_TENSORS = [
    ({"labels": lambda x: x.float()}, r"labels: expected integers of shape \[batch, length\], .* torch.float32"),
    ({"labels": lambda x: x > 0}, "labels: expected integers .* torch.bool"),
    ({"labels": lambda x: x.clamp(min=0).to(torch.uint8)}, "labels: expected integers .* torch.uint8"),
    ({"labels": lambda x: x[0]}, r"labels: expected integers .* of \[6\]"),
    ({"labels": lambda x: x.tolist()}, r"labels: expected a tensor \[batch, length\], got list"),
    ({"labels": lambda x: x.numpy()}, "labels: expected a tensor .* got ndarray"),
    ({"labels": lambda x: None}, "labels: expected a tensor .* got NoneType"),
    ({"labels": lambda x: x[:1]}, "labels: 1 rows, but input_ids has 2; give one each"),
    ({"labels": lambda x: x.to("meta")}, "labels: on meta, but the model is on cpu; move it with .to"),
    ({"labels": lambda x: x[:, :0]}, r"labels\[0\]: has no tokens; leave it out"),
    ({"labels": with_value(0, slice(None), -100)}, r"labels\[0\]: has no tokens; leave it out"),
    ({"labels": with_value(1, 2, -100)}, "labels: padding must be at the end of a row"),
    ({"labels": with_value(1, 2, -1)}, "labels: -1 is not among the model's 40 tokens"),
    ({"input_ids": with_value(1, 2, 40)}, "input_ids: 40 is not among the model's 40 tokens"),
    ({"input_ids": lambda x: x[:0], "labels": lambda x: x[:0]}, "input_ids: the batch is empty"),
    ({"attention_mask": with_value(1, slice(None), 0)}, r"attention_mask\[1\]: has no tokens; leave it out"),
    ({"attention_mask": with_value(1, 0, 0)}, "attention_mask: padding must be at the end of a row"),
    ({"attention_mask": lambda x: x[:, :3]}, r"attention_mask: shape \[2, 3\], but \[2, 5\] is needed"),
    ({"attention_mask": lambda x: x.float()}, "attention_mask: expected integers .* torch.float32"),
    ({"decoder_input_ids": lambda x: x[:, :2]}, r"decoder_input_ids: shape \[2, 2\], but \[2, 6\] is needed"),
    ({"decoder_input_ids": with_value(0, 1, 99)}, "decoder_input_ids: 99 is not among the model's 40 tokens"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_TENSORS, ids=range(len(BAD_TENSORS)))
def test_bad_tensors(changes, message):
    model = tiny_model("marian")
    batch = random_batch(model, [(5, 4), (3, 6)])
    if "decoder_input_ids" in changes:
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    for method in ("lrp", "saliency", "attention"):
        with pytest.raises(InputError, match=message):
            make_method(model, method)(**changed(batch, **changes))


def test_other_right_types_give_the_same():
    model = tiny_model("marian")
    batch = random_batch(model, [(5, 4), (3, 6)])
    for method in ("lrp", "saliency", "attention"):
        explainer = make_method(model, method)
        expected = explainer(**batch).source
        mask = batch["attention_mask"]
        for changes in (
            {"attention_mask": mask.bool()},
            {"attention_mask": 2 * mask},
            {"labels": batch["labels"].int()},
        ):
            torch.testing.assert_close(explainer(**batch | changes).source, expected)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("lrp", {"alpha": 1.5, "beta": 1.0}, "alpha, beta: 1.5, 1.0 must be at least 0 and add up to 1"),
        ("lrp", {"alpha": NAN, "beta": 0.0}, "alpha, beta: nan, 0.0 must be"),
        ("lrp", {"alpha": "1"}, "alpha: '1' is not of type float"),
        ("lrp", {"rule": "epsilon", "epsilon": 0.0}, "epsilon: 0.0 must be positive and finite"),
        ("lrp", {"logit": True}, "logit: True is not of type str"),
        ("attention", {"layer": "1"}, "layer: '1' is not one of mean"),
        ("attention", {"layer": True}, "layer: True is not of type int or str or None"),
        ("attention", {"layer": 9}, "layer: 9 is out of range; the decoder has 2 layers"),
        ("attention", {"head": -1}, "head: -1 is not a cross-attention head"),
        ("smoothgrad", {"sigma": INF}, "sigma: inf must be above 0 and finite"),
        ("smoothgrad", {"seed": "x"}, "seed: 'x' is not of type int"),
        ("saliency", {"smoothgrad": 2.5}, "smoothgrad: 2.5 is not of type int"),
        ("saliency", {"max_memory": 0}, "max_memory: 0 bytes must be more than 0"),
    ],
)
def test_bad_settings(method, settings, message):
    with pytest.raises(InputError, match=message):
        make_method(tiny_model("marian"), method, **settings)


def test_numbers_of_numpy_are_numbers():
    make_method(tiny_model("marian"), "lrp", alpha=np.float32(1), beta=np.float64(0))
    make_method(tiny_model("marian"), "attention", layer=np.int64(0))


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, "4"])
def test_bad_batch_size(translator, batch_size):
    with pytest.raises(InputError, match=rf"batch_size: {batch_size!r} must be a positive integer"):
        hni.attribute(*translator, "A", "B", batch_size=batch_size)


# ---------------------------------------------------------------------------------------------------------- models
def spoilt(value, where):
    model = tiny_model("marian")
    with torch.no_grad():
        if where == "logits":
            model.final_logits_bias[0, 3] = value
        else:
            getattr(model.model, where).layers[0].fc1.weight[0, 0] = value
    return model


@pytest.mark.parametrize("where", ["encoder", "decoder", "logits"])
@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("method", [method for method in METHODS if method != "smoothgrad"])  # it is saliency
def test_weights_that_are_not_finite(method, value, where):
    model = spoilt(value, where)
    model = fitting(method, model)
    with pytest.raises(InputError, match="model: its logits are not finite; check the weights and the input"):
        make_method(model, method)(**random_batch(model, [(5, 4)]))


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("value", [NAN, INF])
def test_logits_that_are_not_finite_are_no_translation(translator, value, beams):
    model, tokenizer = translator
    model.final_logits_bias[0, 3] = value
    with pytest.raises(InputError, match="model: its logits are not finite; check the weights and the input"):
        Pairs.translate(model, tokenizer, ["A dog."], 1, {"num_beams": beams})


def test_training_mode_changes_nothing(translator):
    model, tokenizer = translator
    expected = hni.attribute(model, tokenizer, "A dog.", "Ein Hund.")
    model.train()
    np.testing.assert_array_equal(hni.attribute(model, tokenizer, "A dog.", "Ein Hund.").source, expected.source)
    assert all(module.training for module in model.modules())


def test_meta_weights(translator):
    model, tokenizer = translator
    with pytest.raises(InputError, match=r"model: model.shared.weight is on the meta device and has no values"):
        hni.attribute(model.to("meta"), tokenizer, "A dog.")


def test_quantised_weights(translator):
    model, tokenizer = translator

    class Packed(torch.nn.Module):  # like torch's own int8 layers: no nn.Linear, weights behind a function
        def __init__(self, linear):
            super().__init__()
            self.scale = linear.weight.detach().abs().max() / 127
            self.packed = (linear.weight.detach() / self.scale).round().to(torch.int8)
            self.bias, self.out_features, self.in_features = linear.bias, linear.out_features, linear.in_features

        def forward(self, x):
            return torch.nn.functional.linear(x, self.packed * self.scale, self.bias)

    linear = model.model.encoder.layers[0].fc1  # a subclass of nn.Linear with packed weights, as of bitsandbytes
    weight = linear._parameters.pop("weight")
    linear.weight = (weight.detach() * 9).to(torch.uint8)
    with pytest.raises(InputError, match=r"LRP does not explain quantised layers \(model.encoder.layers.0.fc1\)"):
        hni.attribute(model, tokenizer, "A dog.", "Ein Hund.")
    linear.weight = weight
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, Packed(child))
    with pytest.raises(InputError, match=r"model: LRP has no rule for Packed"):
        hni.attribute(model, tokenizer, "A dog.", "Ein Hund.")
    with pytest.raises(InputError, match=r"model: it has no nn.Linear layers; it may be quantised; load it"):
        hni.attribute(model, tokenizer, "A dog.", "Ein Hund.", method="saliency")
    assert np.isfinite(hni.attribute(model, tokenizer, "A dog.", "Ein Hund.", method="attention").source).all()


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_embeddings(tied):
    model = tiny_model("marian", dtype=torch.float64)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 0.1)
    scores = make_method(model, "lrp")(**random_batch(model, [(5, 4)]))
    assert scores.conservation_gap.max() <= 1e-10


def test_decoder_only_models(translator):
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=200, bos_token_id=1, eos_token_id=2))
    for call in (hni.attribute, hni.align):
        with pytest.raises(
            InputError, match="model: only encoder-decoder models are supported, GPT2LMHeadModel is not one"
        ):
            call(model, translator[1], "A dog.", "Ein Hund.")
    with pytest.raises(InputError, match="model: only encoder-decoder models are supported, NoneType is not one"):
        hni.attribute(None, translator[1], "A dog.")


@pytest.mark.parametrize("value", [NAN, INF])
def test_no_method_leaves_a_nan_unsaid(value):
    class Spoilt(AttentionWeights):
        def explain(self, batch):
            scores = super().explain(batch)
            scores.source[0, 0, 0] = value
            return scores

    model = tiny_model("marian")
    with pytest.raises(InputError, match="model: attention returned NaN or inf; check the weights, or compute in"):
        Spoilt(model)(**random_batch(model, [(5, 4)]))
