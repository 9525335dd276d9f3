"""The twins themselves: right forward passes, right messages, conservation, causality, gradients."""

import math

import pytest
import torch

from tests.reference import forward
from tests.reference.attnlrp import AbsorbingRule, head_relevance, softmax_relevance, values_relevance
from tests.reference.forward import describe, run
from tests.reference.lrp import (
    Rule,
    attention_messages,
    layer_norm_messages,
    linear_messages,
    lrp,
    ratio_through_attention,
    rms_norm_messages,
)
from tests.reference.saliency import copies_needed, noise_deviation, saliency, score_of
from tests.reference.shift import shifted_right
from tests.tiny_models import FAMILIES, random_batch, tiny_model

SETTINGS = {
    "alpha 1": {},
    "alpha 1/2": {"alpha": 0.5, "beta": 0.5},
    "epsilon": {"rule": "epsilon", "eps": 1.0},
    "values": {"attention": "values"},
    "label": {"logit": "label"},
}


def sentence(family: str, source: int = 5, target: int = 4):
    model = tiny_model(family, dtype=torch.float64)
    batch = random_batch(model, [(source, target)])
    return model, batch["input_ids"][0], batch["labels"][0]


# ------------------------------------------------------------------------------------------------- the forward passes
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", [(5, 4), (1, 1), (20, 19)], ids=str)
def test_hand_made_logits_are_the_models(family, lengths):
    model, input_ids, labels = sentence(family, *lengths)
    prefix = shifted_right(model, labels[None])
    network = describe(model)
    with torch.no_grad():
        expected = model(input_ids[None], decoder_input_ids=prefix).logits[0]
        done = run(network, network.encoder.embedding[input_ids], network.decoder.embedding[prefix[0]])
    torch.testing.assert_close(done.logits.x, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("family", "overrides"),
    [("marian", {"scale_embedding": False}), ("bart", {"scale_embedding": False}), ("t5", {"num_heads": 3})],
)
def test_hand_made_logits_of_other_configurations(family, overrides):
    model = tiny_model(family, dtype=torch.float64, **overrides)
    batch = random_batch(model, [(4, 3)])
    prefix = shifted_right(model, batch["labels"])
    network = describe(model)
    with torch.no_grad():
        expected = model(batch["input_ids"], decoder_input_ids=prefix).logits[0]
        embeddings = network.encoder.embedding[batch["input_ids"][0]], network.decoder.embedding[prefix[0]]
        torch.testing.assert_close(run(network, *embeddings).logits.x, expected, atol=1e-10, rtol=0)


def test_m2m100_shifts_labels_like_the_twin():
    model, input_ids, labels = sentence("m2m100")
    with torch.no_grad():
        expected = model(input_ids[None], labels=labels[None]).logits
        actual = model(input_ids[None], decoder_input_ids=shifted_right(model, labels[None])).logits
    torch.testing.assert_close(actual, expected)


# -------------------------------------------------------------------------------------------------------- the messages
def by_autograd(function, *inputs):
    """z_ij = f_j(0) / n + (df_j/dx_i)(x) x_i for all inputs together, flat: [inputs, units]."""
    jacobians = torch.autograd.functional.jacobian(function, inputs)
    at_zero = function(*(torch.zeros_like(x) for x in inputs)).flatten()
    n = sum(x.numel() for x in inputs)
    rows = [
        j.reshape(len(at_zero), -1).T * x.reshape(-1, 1) + at_zero / n for j, x in zip(jacobians, inputs, strict=True)
    ]
    return torch.cat(rows)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_messages_are_the_taylor_expansion_of_each_operation():
    x, weight, bias, square = random(6), random(7), random(8)[:6], random(9, 6)
    norm = torch.nn.LayerNorm(6, eps=1e-2, dtype=torch.float64)
    norm.weight.data, norm.bias.data = weight[:6], bias
    s = (x.var(unbiased=False) + norm.eps) ** -0.5
    z = layer_norm_messages(x, weight[:6], bias, s, (x - x.mean()) * s)
    torch.testing.assert_close(z, by_autograd(norm, x))

    def rms(x):
        return weight[:6] * x * ((x**2).mean() + 1e-2) ** -0.5

    torch.testing.assert_close(rms_norm_messages(x, weight[:6], ((x**2).mean() + 1e-2) ** -0.5), by_autograd(rms, x))
    wide = random(9)
    torch.testing.assert_close(linear_messages(x, square, wide), by_autograd(lambda x: square @ x + wide, x))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_messages_are_the_taylor_expansion_of_the_core(causal):
    q, k, v = random(3, 4), random(3, 5)[:, :4] + 0.1, random(3, 6)[:, :5]
    hidden = torch.zeros(3, 3).double().masked_fill(torch.ones(3, 3).triu(1).bool() & causal, -math.inf)
    bias = random(3, 3) + hidden  # T5's position bias: enters the weights, gets no message

    def core(q, k, v):
        return torch.softmax(0.7 * q @ k.T + bias, -1) @ v

    w = torch.softmax(0.7 * q @ k.T + bias, -1)
    expected = by_autograd(core, q, k, v)
    torch.testing.assert_close(attention_messages(q, k, v, w, 0.7, values_only=False), expected)
    only = attention_messages(q, k, v, w, 0.7, values_only=True)
    torch.testing.assert_close(only[-v.numel() :], expected[-v.numel() :])
    assert (only[: -v.numel()] == 0).all()


# ----------------------------------------------------------------------------------------------------------- the rules
def test_shares_worked_by_hand():
    z = torch.tensor([[3.0, -1.0], [1.0, -3.0], [-2.0, -4.0]], dtype=torch.float64)
    half = Rule("alpha_beta", 0.5, 0.5, 0.0).shares(z)
    expected = torch.tensor([[3 / 8, 1 / 16], [1 / 8, 3 / 16], [1 / 2, 4 / 16]], dtype=torch.float64)
    torch.testing.assert_close(half, expected)
    torch.testing.assert_close(Rule("epsilon", 1, 0, 0.5).shares(z), z / torch.tensor([2.5, -8.5]).double())
    zero = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)  # sign(0) = +1
    torch.testing.assert_close(Rule("epsilon", 1, 0, 0.5).shares(zero), 2 * zero)
    expected = torch.tensor([[3 / 10, 1 / 18], [1 / 10, 3 / 18], [2 / 6, 4 / 18]], dtype=torch.float64)
    torch.testing.assert_close(Rule("alpha_beta", 0.5, 0.5, 0.0).shares(z, stabilizer=1.0), expected)


def test_ratios_of_attention_worked_by_hand():
    """One query and one key: out = w v with w = 1, so v gets v / (1 + v) and q, k share the rest, 1 / (1 + v)."""
    q, k, v, w = (torch.tensor([[x]], dtype=torch.float64) for x in (2.0, 6.0, 3.0, 1.0))
    found = ratio_through_attention(Rule("ratio", 1, 0, 0.0), torch.ones_like(q), q, k, v, w)
    torch.testing.assert_close(found, torch.tensor([2 / 8 / 4, 6 / 8 / 4, 3 / 4], dtype=torch.float64))


def test_absorbing_shares_worked_by_hand():
    """Two inputs with messages 3 and -1 and a bias of 2; then the same with the other sign."""
    x, weight, bias = (torch.tensor(values, dtype=torch.float64) for values in ([1.0, 1.0], [[3.0, -1.0]], [2.0]))
    one = torch.ones(1, dtype=torch.float64)
    for sign in (1, -1):
        found = AbsorbingRule(0.0).linear(x, sign * weight, sign * bias, one)
        torch.testing.assert_close(found, torch.tensor([3 / 4, -1 / 4]).double())
        found = AbsorbingRule(0.0).linear(x, sign * weight, sign * bias, one, gamma=0.5)
        torch.testing.assert_close(found, torch.tensor([4.5 / 6.5, -1 / 6.5]).double())
        found = AbsorbingRule(1.0).linear(x, sign * weight, sign * bias, one)
        torch.testing.assert_close(found, torch.tensor([3 / 5, -1 / 5]).double())


def test_softmax_relevance_is_the_taylor_expansion():
    """R_i = sum_j of (dw_j / dx_i) x_i R_j / w_j; a key that is not visible is as if it were not there."""
    x, relevance = random(4), random(5)[:4]
    jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1), x)  # [j, i]
    w = torch.softmax(x, -1)
    expected = (jacobian * x * (relevance / w)[:, None]).sum(0)
    torch.testing.assert_close(softmax_relevance(x, w, relevance), expected)
    hidden, none = torch.tensor([-math.inf]).double(), torch.zeros(1).double()
    found = softmax_relevance(torch.cat([x, hidden]), torch.cat([w, none]), torch.cat([relevance, none]))
    torch.testing.assert_close(found, torch.cat([expected, none]))


def test_attention_of_attnlrp_worked_by_hand():
    """One unit, two keys of equal scores c q k = 1 and values 1 and 3: out = 2, so w gets 1/8, 3/8 and v the same.

    The scores get 1 (1/8 - 1/2 1/2) = -1/8 and 1/8, of which q and k get half each if there is no position bias, and
    a quarter each if it is half of the score.
    """
    q, k, v, w = (torch.tensor(x).double() for x in ([[2.0]], [[1.0], [1.0]], [[1.0], [3.0]], [[0.5, 0.5]]))
    x, one = torch.ones(1, 2).double(), torch.ones(1, 1).double()
    for scale, part in ((0.5, 1 / 2), (0.25, 1 / 4)):
        to_q, to_k, to_v = head_relevance(AbsorbingRule(0.0), one, q, k, v, w, x, scale)
        torch.testing.assert_close(to_v, torch.tensor([[1 / 8], [3 / 8]]).double())
        torch.testing.assert_close(to_k, torch.tensor([[-part / 8], [part / 8]]).double())
        torch.testing.assert_close(to_q, torch.zeros(1, 1).double())
    torch.testing.assert_close(
        values_relevance(AbsorbingRule(0.0), one, v, w), torch.tensor([[1 / 4], [3 / 4]]).double()
    )


def test_what_a_unit_cannot_pass_on_is_given_back():
    z = torch.tensor([[3.0, -1.0], [1.0, -3.0]], dtype=torch.float64)
    one = Rule("alpha_beta", 1.0, 0.0, 0.0)
    torch.testing.assert_close(one.divide(z, torch.tensor([0.4, 0.6]).double()), torch.tensor([0.75, 0.25]).double())
    evenly = one.divide(z, torch.tensor([0.0, 0.6]).double())  # only the unit without positive messages has relevance
    torch.testing.assert_close(evenly, torch.tensor([0.3, 0.3]).double())
    otherwise = torch.tensor([0.2, 0.4]).double()
    assert one.divide(z, torch.tensor([0.0, 0.6]).double(), otherwise) is otherwise


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_conservation_and_sign(family, setting):
    found = lrp(*sentence(family), **SETTINGS[setting])
    every = torch.cat([found["source"], found["prefix"], found["start"][:, None]], dim=1)
    largest = every.abs().amax(-1)
    gap = (every.sum(-1) - 1).abs() / largest.clamp(min=1)
    assert gap.max() < 1e-9, gap
    assert (found["prefix"].triu() == 0).all()
    assert (found["source"] != 0).all()
    if setting != "epsilon":
        assert every.min() >= 0
        for relevance in found["heads"].values():
            assert relevance.min() >= 0
            assert relevance.max() <= 1 + 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_does_not_see_later_labels(family):
    model, input_ids, labels = sentence(family)
    other = labels.clone()
    other[2] = 4 if labels[2] != 4 else 5
    for method in (lrp, saliency):
        before, after = method(model, input_ids, labels), method(model, input_ids, other)
        steps = 3 if method is lrp else 2  # saliency differentiates the label of the step itself
        for name in ("source", "prefix", "start"):
            torch.testing.assert_close(before[name][:steps], after[name][:steps])
            assert not torch.allclose(before[name][3], after[name][3])


def test_a_head_without_positive_values_still_passes_all_its_relevance():
    """Step 1 sees one key; with values all negative alpha=1 has no message to follow."""
    model, input_ids, labels = sentence("marian")
    attention = model.model.decoder.layers[0].self_attn
    with torch.no_grad():
        attention.v_proj.weight.zero_()
        attention.v_proj.bias.fill_(-1.0)
    found = lrp(model, input_ids, labels)
    total = found["source"].sum(-1) + found["prefix"].sum(-1) + found["start"]
    torch.testing.assert_close(total, torch.ones(4, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------------- saliency
@pytest.mark.parametrize("score", ["log_probability", "probability", "logit"])
@pytest.mark.parametrize("family", FAMILIES)
def test_saliency_is_the_finite_difference_along_the_embedding(family, score, monkeypatch):
    monkeypatch.setattr(forward, "mean_square", lambda x: (x**2).mean(-1, keepdim=True))  # no rounding to float32
    model, input_ids, labels = sentence(family, 4, 3)
    found = saliency(model, input_ids, labels, score=score)
    network, step = describe(model), 1e-5
    prefix_ids = shifted_right(model, labels[None])[0]
    source, prefix = network.encoder.embedding[input_ids], network.decoder.embedding[prefix_ids]

    def at(side: int, token: int, factor: float) -> list[float]:
        embeddings = [source.clone(), prefix.clone()]
        embeddings[side][token] *= 1 + factor  # d/d(factor) p = dp/dE . E
        logits = run(network, *embeddings).logits.x
        return [score_of(logits[t], labels[t], score).item() for t in range(len(labels))]

    for side, tokens in ((0, source), (1, prefix)):
        for token in range(len(tokens)):
            up, down = at(side, token, step), at(side, token, -step)
            slope = torch.tensor([(u - d) / (2 * step) for u, d in zip(up, down, strict=True)], dtype=torch.float64)
            if side == 0:
                psi = found["source"][:, token]
            else:
                psi = found["start"] if token == 0 else found["prefix"][:, token - 1]
            torch.testing.assert_close(psi, slope, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_li2016_and_the_scores_by_the_models_own_gradient(family):
    """Through the model's own embedding module, which gives the scaled embedding (Marian scales it later)."""
    model, input_ids, labels = sentence(family)
    embeddings = {}

    def keep(name):
        def hook(module, inputs, output):
            output.retain_grad()
            embeddings[name] = output

        return hook

    if family == "bert2bert":
        encoder, decoder = model.encoder.embeddings.word_embeddings, model.decoder.bert.embeddings.word_embeddings
    else:
        encoder, decoder = model.get_encoder().embed_tokens, model.get_decoder().embed_tokens
    scale = math.sqrt(16) if family == "marian" else 1.0  # applied by Marian after the lookup
    psi, li2016 = saliency(model, input_ids, labels), saliency(model, input_ids, labels, kind="li2016")
    encoder.register_forward_hook(keep("source"))
    decoder.register_forward_hook(keep("prefix"))
    for t in range(len(labels)):
        logits = model(input_ids[None], decoder_input_ids=shifted_right(model, labels[None])).logits[0, t]
        for name in ("source", "prefix"):
            (gradient,) = torch.autograd.grad(
                logits.log_softmax(-1)[labels[t]], embeddings[name], retain_graph=name == "source"
            )
            product = (gradient * embeddings[name]).sum(-1)[0].detach()
            size = gradient.abs().mean(-1)[0] / scale
            for found, expected in ((psi, product), (li2016, size)):
                if name == "source":
                    actual = found["source"][t]
                else:
                    actual = torch.cat([found["start"][t, None], found["prefix"][t, :-1]])
                torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["psi", "li2016"])
def test_smoothgrad_averages(kind):
    model, input_ids, labels = sentence("marian")
    plain = saliency(model, input_ids, labels, kind=kind)
    still = torch.zeros(2, len(input_ids), 16, dtype=torch.float64)
    raw = saliency(model, input_ids, labels, kind=kind, noise=still, average="raw")
    normalised = saliency(model, input_ids, labels, kind=kind, noise=still)
    sums = plain["source"].clamp(min=0).sum(-1, keepdim=True)
    for name, divisor in (("source", sums), ("prefix", sums), ("start", sums[:, 0])):
        torch.testing.assert_close(raw[name], plain[name])
        torch.testing.assert_close(normalised[name], plain[name].clamp(min=0) / divisor)

    noise = noise_deviation(model, input_ids) * random(3, len(input_ids), 16)
    raw = saliency(model, input_ids, labels, kind=kind, noise=noise, average="raw")
    each = [saliency(model, input_ids, labels, kind=kind, noise=sample[None], average="raw") for sample in noise]
    torch.testing.assert_close(raw["source"], sum(one["source"] for one in each) / 3)
    smooth = saliency(model, input_ids, labels, kind=kind, noise=noise)
    torch.testing.assert_close(smooth["source"].sum(-1), torch.ones(len(labels), dtype=torch.float64))


def test_noise_is_measured_on_the_scaled_embeddings_of_the_sentence():
    model, input_ids, _ = sentence("marian")
    scaled = model.model.encoder.embed_tokens.weight[input_ids] * 4.0
    assert noise_deviation(model, input_ids, 0.5) == pytest.approx(0.5 * (scaled.max() - scaled.min()).item())
    deviation = scaled.std(correction=0).item()
    assert noise_deviation(model, input_ids, None, 0.5) == pytest.approx(0.5 * deviation)


def test_copies_needed_by_hand():
    left, right = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert copies_needed([left] * 30) == 10
    assert copies_needed([left] * 5 + [right] * 25) == 15  # changes in the second round, not in the third
    assert copies_needed([left] * 3) == 3
    assert copies_needed([left] * 5 + [right] * 2) == 7
