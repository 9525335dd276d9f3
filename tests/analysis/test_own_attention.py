"""The attention that a model aligns by if no method is named, chosen without gold links."""

import json

import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.analysis import own_attention as module
from hf_nmt_interp.analysis.own_attention import AttentionChoice, choose_attention, occlusion_links, own_attention
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN


@pytest.fixture
def translator(tokenizer_of, tmp_path, monkeypatch):
    """A new model, and an empty cache."""
    monkeypatch.setattr(module, "_FOLDER", tmp_path / "cache")
    tokenizer = tokenizer_of("marian")
    return tiny_model("marian", vocab_size=len(tokenizer)), tokenizer


def test_occlusion_is_the_loss_of_log_probability(translator):
    model, _ = translator
    pair = Pairs.force(*translator, ENGLISH[:1], GERMAN[:1])[0]

    def log_probs(source: list[int]) -> torch.Tensor:  # [T]
        labels = torch.tensor([pair.ids.target_ids])
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([source]), labels=labels).logits
        return logits.log_softmax(-1)[0, range(labels.shape[1]), labels[0]]

    whole = log_probs(pair.ids.source_ids)
    expected = set()
    for j, own in enumerate(pair.target.positions):
        drops = []
        for positions in pair.source.positions:
            rest = [i for n, i in enumerate(pair.ids.source_ids) if n not in positions]
            drops.append((whole - log_probs(rest))[own].sum().item())
        expected.add((drops.index(max(drops)), j))
    assert occlusion_links(model, pair) == occlusion_links(model, pair, batch_size=2) == expected


def test_the_attention_that_agrees_with_occlusion_is_taken(translator, monkeypatch):
    """A planted reference: the links of one head, shifted."""
    model, _ = translator
    pairs = Pairs.force(*translator, ENGLISH[:4], GERMAN[:4])
    planted = iter(module.links_of_pairs(model, pairs)[1, 0, True])
    monkeypatch.setattr(module, "occlusion_links", lambda *_: next(planted))
    assert choose_attention(model, pairs) == AttentionChoice(1, 0, True, 0.0)


def test_one_choice_for_a_model_and_for_later_runs(translator, monkeypatch, caplog):
    model, tokenizer = translator
    pairs = Pairs.force(model, tokenizer, ENGLISH, GERMAN)
    assert own_attention(model, pairs[:1]) == choose_attention(model, pairs[:1])
    assert not list((module._FOLDER).glob("*"))  # of too few words to be kept
    monkeypatch.setattr(module, "_KEPT", 10)
    choice = own_attention(model, pairs)
    assert f"aligning by cross-attention layer {choice.layer}" in caplog.text
    (file,) = module._FOLDER.iterdir()
    assert json.loads(file.read_text()) == choice._asdict()
    monkeypatch.setattr(module, "choose_attention", None)  # it is not made again
    assert own_attention(model, pairs[:1]) == choice
    again = tiny_model("marian", vocab_size=len(tokenizer))
    again.load_state_dict(model.state_dict())
    assert own_attention(again, pairs[:1]) == choice
    AttentionChoice(0, 1, False, 0.5).store(again)  # what is stored in the config comes first
    assert own_attention(again, pairs) == AttentionChoice(0, 1, False, 0.5)


def test_a_choice_is_of_the_weights(translator, monkeypatch):
    model, tokenizer = translator
    monkeypatch.setattr(module, "_KEPT", 10)
    pairs = Pairs.force(model, tokenizer, ENGLISH, GERMAN)
    own_attention(model, pairs)
    assert module.known_choice(model) is not None
    assert module.known_choice(model, cached=False) is None
    (file,) = module._FOLDER.iterdir()
    with torch.no_grad():
        model.model.shared.weight.mul_(2)  # trained further
    assert module.known_choice(model) is None
    with torch.no_grad():
        model.model.shared.weight.div_(2)
    assert module.known_choice(model) is not None
    file.write_text("{")  # damaged
    again = tiny_model("marian", vocab_size=len(tokenizer))
    assert module.known_choice(again) is None


def test_words_without_subwords_are_not_deleted(translator):
    model, tokenizer = translator
    pair = Pairs.force(model, tokenizer, [["The", "\u200b", "dog"]], [["Ein", "Hund"]])[0]
    empty = [word for word, own in enumerate(pair.source.positions) if not own]
    assert not {i for i, _ in occlusion_links(model, pair)} & set(empty)


def test_a_translation_that_fills_all_positions_is_left_out(translator):
    model, tokenizer = translator
    short = Pairs.force(model, tokenizer, ENGLISH[:2], GERMAN[:2])
    full = Translation(short[0].ids.source_ids, [5] * 64)
    both = Pairs.caught(model, tokenizer, [full, *(pair.ids for pair in short)])
    assert choose_attention(model, both) == choose_attention(model, both[1:])


def test_align_takes_it(translator):
    model, tokenizer = translator
    pairs = Pairs.force(model, tokenizer, ENGLISH[:3], GERMAN[:3])
    choice = choose_attention(model, pairs)
    given = ENGLISH[:3], GERMAN[:3]
    expected = hni.align(model, tokenizer, *given, method="attention", **choice.settings)
    assert hni.align(model, tokenizer, *given) == expected
    with pytest.raises(hni.InputError, match="smoothgrad: 2 is a setting of a method, but no method is named"):
        hni.align(model, tokenizer, *given, smoothgrad=2)


def test_nothing_to_choose_by(translator):
    model, tokenizer = translator
    empty = Pairs.caught(model, tokenizer, [Translation([0], [0])])
    with pytest.raises(InputError, match="sources: have no words to align; choose a method"):
        choose_attention(model, empty)


@pytest.mark.parametrize("direction", ["en-de", "de-en"])
def test_an_alignment_head_leaves_the_choice_for_a_translator_in_the_box(direction):
    model, _ = hni.load_demo(direction)
    known = module.known_choice(model, cached=False)
    assert known == module.known_choice(model.without_head(), cached=False)
    assert known is not None
