"""Saliency and attention of the LSTM and convolutional translators, from their twins to the command line."""

import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import LRP, AttentionWeights, Saliency, ShiftedAttention, SmoothedAttention
from hf_nmt_interp.cli.main import main
from hf_nmt_interp.errors import InputError
from tests.attribution.comparing import KINDS, LENGTHS, assert_close, assert_is, pair_of
from tests.attribution.leaks import unchanged
from tests.reference.saliency import saliency
from tests.reference.shift import shifted_right
from tests.tiny_models import RECURRENT, random_batch, tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN

every_family = pytest.mark.parametrize("family", RECURRENT)


# ------------------------------------------------------------------------------------------------------------ saliency
@every_family
@pytest.mark.parametrize(("score", "aggregate"), [("log_probability", "product"), ("probability", "li2016")])
def test_saliency_agrees_with_the_twin(family, score, aggregate):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    expected = [saliency(model, *pair_of(batch, row), score, KINDS[aggregate]) for row in range(len(LENGTHS))]
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-5)):
        for memory in (2**30, 1):  # all at once, and bit by bit
            scores = Saliency(model.to(dtype), score, aggregate=aggregate, max_memory=memory)(**batch)
            for row in range(len(LENGTHS)):
                assert_is(scores, row, expected[row], tolerance)


@every_family
@pytest.mark.parametrize("average", ["normalised", "raw"])
def test_smoothgrad_agrees_with_the_twin(family, average):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    method = Saliency(model, smoothgrad=2, average=average, seed=5)
    scores = method(**batch)
    for row in range(len(LENGTHS)):
        source, target = pair_of(batch, row)
        noise = torch.stack([method.noise(source, n) for n in range(2)])
        assert_is(scores, row, saliency(model, source, target, noise=noise, average=average), 1e-8)


@every_family
def test_model_is_left_as_it_was(family):
    model = tiny_model(family).train()
    batch = random_batch(model, LENGTHS)
    with unchanged(model):
        one, two = (Saliency(model, smoothgrad=2)(**batch).source for _ in range(2))
        assert torch.equal(one, two)  # no dropout
        with torch.inference_mode():
            assert_close(Saliency(model, smoothgrad=2)(**batch).source, one)


# ----------------------------------------------------------------------------------------------------------- attention
@torch.no_grad()
def returned_weights(model, batch, read):
    found = model(batch["input_ids"], batch["attention_mask"], read, output_attentions=True)
    return torch.stack(found.cross_attentions)  # [L, B, H, T, S]


@every_family
def test_attention_is_the_models_own(family):
    model = tiny_model(family)
    batch = random_batch(model, LENGTHS)
    expected = returned_weights(model, batch, shifted_right(model, batch["labels"]))
    kept = (batch["labels"] != -100)[..., None]
    for layer in range(-1, len(expected)):
        for head in (None, *range(expected.shape[2])):
            scores = AttentionWeights(model, layer, head)(**batch)
            weights = expected[layer].mean(1) if head is None else expected[layer][:, head]
            assert_close(scores.source, weights * kept)
            assert not scores.prefix.any()
            assert not scores.start.any()
    for row, (S, T) in enumerate(LENGTHS):
        start = torch.tensor([[model.config.decoder_start_token_id]])
        read = torch.cat([start, batch["labels"][row : row + 1, :T]], 1)
        alone = {"input_ids": batch["input_ids"][row : row + 1, :S], "attention_mask": None}
        shifted = returned_weights(model, alone, read)[0, 0].mean(0)[1:]
        assert_close(ShiftedAttention(model, layer=0)(**batch).source[row, :T, :S], shifted)
    smoothed = SmoothedAttention(model, smoothgrad=2)(**batch)
    assert_close(smoothed.source.sum(-1), kept[..., 0].float())
    assert (smoothed.source - AttentionWeights(model)(**batch).source).abs().max() > 1e-3


def test_what_needs_a_transformer_says_so(tokenizer_of):
    for family, name in (("lstm", "LuongSeq2Seq"), ("conv", "ConvSeq2Seq")):
        model = tiny_model(family)
        with pytest.raises(InputError, match=f"model: LRP has no rules for {name}ForConditionalGeneration"):
            LRP(model)
        with pytest.raises(InputError, match=f"model: {name}ForConditionalGeneration has no self-attention"):
            hni.head_report(model, tokenizer_of("marian"), ENGLISH[:1], relevance_sentences=0)
    with pytest.raises(InputError, match=r"layer: 2 is out of range; the decoder has 2 layers"):
        AttentionWeights(tiny_model("conv"), layer=2)
    with pytest.raises(InputError, match="head: 1 is not a cross-attention head of layer 0; it has 0"):
        AttentionWeights(tiny_model("conv"), layer=0, head=1)


# -------------------------------------------------------------------------------------------------- from text to links
@pytest.fixture(scope="module", params=RECURRENT)
def translator(request, tokenizer_of):
    tokenizer = tokenizer_of("marian")
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = {"pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": pad}
    model = tiny_model(request.param, vocab_size=len(tokenizer), **ids)
    with torch.no_grad():
        model.lm_head.bias[pad] = -100.0
        model.lm_head.bias[eos] += 1.0
    model.generation_config.update(max_length=10, **ids)
    return model, tokenizer


def test_attribute_and_align(translator):
    given = hni.attribute(*translator, ENGLISH[:3], GERMAN[:3], method="saliency", smoothgrad=2)
    alone = hni.attribute(*translator, ENGLISH[1], GERMAN[1], method="saliency", smoothgrad=2)
    assert_close(torch.tensor(given[1].source), torch.tensor(alone.source))
    links = hni.align(*translator, ENGLISH[:3], GERMAN[:3], method="saliency", smoothgrad=2)
    assert links[1] == hni.align(*translator, ENGLISH[1], GERMAN[1], method="saliency", smoothgrad=2)
    choice = hni.best_attention(*translator, ENGLISH[:3], GERMAN[:3], links)
    assert 0 <= choice.aer <= 1
    with pytest.raises(InputError, match="LRP has no rules"):
        hni.attribute(*translator, ENGLISH[0])


@pytest.mark.parametrize("search", [{}, {"num_beams": 3, "num_return_sequences": 2}])
@pytest.mark.parametrize("method", ["attention", "shifted_attention", "saliency"])
def test_online_alignment_is_the_offline_one(translator, search, method):
    model, tokenizer = translator
    inputs = tokenizer(ENGLISH[:3], padding=True, return_tensors="pt")
    with hni.align_generation(model, tokenizer, method=method) as aligned:
        online = model.generate(**inputs, **search)
    with hni.explain_generation(model, tokenizer, method=method) as explained:
        assert torch.equal(model.generate(**inputs, **search), online)
    assert len(explained.results) == len(aligned.alignments) == len(online)
    for result, alignment in zip(explained.results, aligned.alignments, strict=True):
        assert_close(torch.tensor(alignment.soft), torch.tensor(hni.soft_alignment(result)))


def test_command_line(translator, tmp_path, capsys):
    for part in translator:
        part.save_pretrained(tmp_path)
    folder, text = str(tmp_path), str(tmp_path / "text")
    (tmp_path / "text").write_text("\n".join(ENGLISH[:2]) + "\n")
    assert main(["translate", "--model", folder, "--input", text]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["align", "--model", folder, text, text, "--method", "smoothgrad"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["attribute", "--model", folder, ENGLISH[0], "--method", "saliency", "--format", "json"]) == 0
    assert '"source"' in capsys.readouterr().out
    assert main(["attribute", "--model", folder, ENGLISH[0]]) == 2
    assert "LRP has no rules for" in capsys.readouterr().err
