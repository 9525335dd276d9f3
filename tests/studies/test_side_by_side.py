"""Models side by side compute and learn what they would one by one."""

import copy

import pytest
import torch
from safetensors import safe_open

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.lstm import (
    LSTMAttentionConfig,
    LSTMAttentionForSequenceClassification,
    LuongSeq2SeqConfig,
    LuongSeq2SeqForConditionalGeneration,
)
from hf_nmt_interp.studies.side_by_side import StackedClassifiers, StackedTranslators, losses, train

MODELS, BATCH, SOURCE, TARGET, WORDS = 3, 4, 6, 5, 9
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1, "bidirectional": False, "dropout": 0.0}
SIZES = {"vocab_size": WORDS + 1, "embedding_size": 6, "hidden_size": 8, "init_range": 0.8}
IDS = {"decoder_start_token_id": WORDS, "pad_token_id": WORDS, "eos_token_id": None}
TRANSLATORS = {
    "one head": {},
    "three heads": {"attention_heads": 3},
    "two embeddings": {"tie_word_embeddings": False},
    "uniform": {"attention_mode": "uniform", "attention_heads": 2},
    "frozen": {"attention_mode": "frozen"},
}
every_translator = pytest.mark.parametrize("settings", TRANSLATORS.values(), ids=list(TRANSLATORS))
every_mode = pytest.mark.parametrize("mode", ["learned", "uniform", "frozen"])


def draw(*shape, high=WORDS, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def translators(**settings):
    torch.manual_seed(1)
    config = LuongSeq2SeqConfig(**SIZES, **ONE_LAYER, **IDS, **settings)
    return [LuongSeq2SeqForConditionalGeneration(config).double() for _ in range(MODELS)]


def classifiers(mode="learned", labels=3, **settings):
    torch.manual_seed(1)
    config = LSTMAttentionConfig(**SIZES, attention_mode=mode, num_labels=labels, **settings)
    return [LSTMAttentionForSequenceClassification(config).double() for _ in range(MODELS)]


def in_double(logits, labels):
    """The loss of one model, whose own one is rounded to float32."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


def assert_gradients_are_each_models_own(stack, models):
    for name, weight in stack.weights.items():
        for number, model in enumerate(models):
            gradient = dict(model.named_parameters())[name].grad
            if weight.requires_grad:
                assert_close(weight.grad[number], torch.zeros_like(weight[number]) if gradient is None else gradient)
            else:
                assert gradient is None
                assert weight.grad is None


@every_translator
def test_translators_have_the_logits_weights_and_gradients_of_single_ones(settings):
    models = translators(**settings)
    source, target = draw(MODELS, BATCH, SOURCE), draw(MODELS, BATCH, TARGET, seed=1)
    stack = StackedTranslators(models)
    logits, weights = stack(source, target)
    found = losses(logits, target)
    found.sum().backward()
    for number, model in enumerate(models):
        expected = model(source[number], labels=target[number], output_attentions=True)
        loss = in_double(expected.logits, target[number])
        loss.backward()
        assert_close(found[number], loss)
        assert_close(logits[number], expected.logits)
        assert_close(weights[number].transpose(1, 2), expected.cross_attentions[0])
    assert_gradients_are_each_models_own(stack, models)


@every_mode
@pytest.mark.parametrize("bidirectional", [True, False])
def test_classifiers_have_the_logits_weights_and_gradients_of_single_ones(mode, bidirectional):
    models = classifiers(mode, bidirectional=bidirectional)
    source, labels = draw(MODELS, BATCH, SOURCE), draw(MODELS, BATCH, high=3, seed=1)
    stack = StackedClassifiers(models)
    logits, weights, alone = stack(source)
    losses(logits, labels).sum().backward()
    for number, model in enumerate(models):
        expected = model(source[number], labels=labels[number], output_attentions=True, output_hidden_states=True)
        in_double(expected.logits, labels[number]).backward()
        assert_close(logits[number], expected.logits)
        assert_close(weights[number], expected.attentions[0][:, 0, 0])
        assert_close(alone[number], model.output_logits(expected.hidden_states[0]))
    assert_gradients_are_each_models_own(stack, models)


def test_all_models_learn_as_they_would_alone_and_a_stopped_run_goes_on(tmp_path):
    def batch(step):
        return draw(MODELS, BATCH, SOURCE, seed=step), draw(MODELS, BATCH, TARGET, seed=100 + step)

    def run(models, steps, file):
        stack = StackedTranslators(models)

        def evaluate():
            return {"weight": stack.weights["lm_head.weight"][:, 0, 0].detach().clone()}

        settings = {"steps": steps, "eval_steps": 2, "learning_rate": 0.01}
        return stack, train(stack, batch, evaluate, **settings, file=tmp_path / file)

    whole, records = run(translators(), 6, "whole.safetensors")
    with safe_open(tmp_path / "whole.safetensors", "pt") as file:  # nothing is pickled
        assert file.metadata() == {"step": "6"}
    for number, model in enumerate(translators()):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(6):
            source, target = batch(step)
            optimizer.zero_grad()
            in_double(model(source[number], labels=target[number]).logits, target[number]).backward()
            optimizer.step()
        own = dict(model.named_parameters())
        for name, weight in whole.state_dict(number).items():
            assert_close(weight, own[name].detach())

    def stop(step):
        if step == 5:
            raise KeyboardInterrupt
        return batch(step)

    stack = StackedTranslators(translators())
    settings = {"steps": 6, "eval_steps": 2, "learning_rate": 0.01, "file": tmp_path / "parts.safetensors"}
    with pytest.raises(KeyboardInterrupt):
        train(stack, stop, lambda: {"weight": stack.weights["lm_head.weight"][:, 0, 0].detach().clone()}, **settings)
    parts, again = run(translators(), 6, "parts.safetensors")
    assert [record["step"] for record in again] == [0, 2, 4, 6]
    for found, expected in zip(again, records, strict=True):
        assert torch.equal(found["weight"], expected["weight"])
    for name, weight in whole.weights.items():
        assert torch.equal(parts.weights[name], weight)
    assert all(
        torch.equal(a["weight"], b["weight"])
        for a, b in zip(run(translators(), 6, "parts.safetensors")[1], records, strict=True)
    )


def test_one_of_the_models_is_an_ordinary_one_again():
    models = translators()
    stack = StackedTranslators(models)
    with torch.no_grad():
        for weight in stack.weights.values():
            weight.mul_(0.5)
    model = copy.deepcopy(models[0])
    model.load_state_dict(stack.state_dict(2), strict=False)
    source, target = draw(MODELS, BATCH, SOURCE), draw(MODELS, BATCH, TARGET)
    assert_close(model(source[2], labels=target[2]).logits, stack(source, target)[0][2])


def test_only_what_is_not_frozen_is_trained():
    stack = StackedClassifiers(classifiers())
    stack.freeze("attention.")
    kept = [name for name, weight in stack.weights.items() if weight.requires_grad]
    assert kept == ["attention.0.weight", "attention.0.bias", "attention.2.weight", "attention.2.bias"]
    assert len(stack.trained()) == 4


def test_losses_worked_by_hand():
    logits = torch.tensor([[[0.0, 0.0]], [[torch.log(torch.tensor(3.0)), 0.0]]])  # [2 models, 1, 2]
    expected = -torch.log(torch.tensor([1 / 2, 1 / 4]))
    torch.testing.assert_close(losses(logits, torch.tensor([[0], [1]])), expected)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (lambda: StackedTranslators([]), "models: is empty; give at least one"),
        (
            lambda: StackedTranslators([m.train() for m in translators(output="linear")]),
            r"models: output='linear'; only output='hidden' is supported",
        ),
        (
            lambda: StackedClassifiers([LSTMAttentionForSequenceClassification(LSTMAttentionConfig(dropout=0.5))]),
            "models: dropout=0.5; only dropout=0 is supported",
        ),
        (
            lambda: StackedClassifiers(
                [LSTMAttentionForSequenceClassification(LSTMAttentionConfig(**SIZES, encoder_layers=2))]
            ),
            "models: encoder_layers=2; only encoder_layers=1 is supported",
        ),
    ],
)
def test_models_that_cannot_be_side_by_side_are_refused(models, message):
    with pytest.raises(InputError, match=message):
        models()
