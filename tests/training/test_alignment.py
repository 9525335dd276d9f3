"""Training of alignment heads: losses against their twins, what is trained, teachers.

Also for training/teacher.py.
"""

from functools import partial

import pytest
import torch

from hf_nmt_interp.decoding.precision import product_dtype
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.alignment import AlignmentConfig, AlignmentTrainer, LinkCollator
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.data import Restartable
from hf_nmt_interp.training.losses import agreement_loss, link_cross_entropy, link_mass_loss
from hf_nmt_interp.training.teacher import GivenLinks, OwnLinks, teach, token_links
from tests.aligned_models import aligned_copy
from tests.reference.alignment_head import disagreement, link_entropy, link_mass
from tests.tiny_models import random_batch, tiny_model

SETTINGS = {"tokens_per_batch": 40, "max_steps": 3, "logging_steps": 1, "learning_rate": 0.01, "save_strategy": "no"}
SETTINGS |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True}
# the target is the source turned round, and so are the links; EOS has none
EXAMPLES = [
    {"input_ids": [*words, 0], "labels": [*reversed([w + 15 for w in words]), 0], "links": [0, 2, 1, 1, 2, 0]}
    for words in ([5 + i, 6 + (3 * i) % 14, 7 + (5 * i) % 12] for i in range(12))
]


def make_trainer(folder, model, teacher=None, reverse=None, examples=EXAMPLES, **more):
    config = AlignmentConfig(output_dir=str(folder), **SETTINGS | more)
    collate = partial(pad_batch, pad_id=model.config.pad_token_id)
    data = {"train_dataset": examples, "data_collator": collate}
    return AlignmentTrainer(model, config, teacher, reverse, **data)


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def test_losses_are_their_twins():
    generator = torch.Generator().manual_seed(0)
    soft = torch.randn(2, 4, 3, generator=generator).double().softmax(-1)
    links = (torch.rand(2, 4, 3, generator=generator) > 0.6).double()
    links[0, 1] = 0
    for loss, twin in ((link_mass_loss, link_mass), (link_cross_entropy, link_entropy)):
        expected = sum(twin(a, b) for a, b in zip(soft.tolist(), links.tolist(), strict=True))
        assert loss(soft, links).item() == pytest.approx(expected, rel=1e-12)
    other = torch.randn(2, 3, 4, generator=generator).double().softmax(-1)
    expected = sum(disagreement(a, b) for a, b in zip(soft.tolist(), other.tolist(), strict=True))
    assert agreement_loss(soft, other).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", ["mass", "even"])
def test_only_the_head_is_trained_without_dropout_and_learns_its_links(tmp_path, loss):
    model = aligned_copy(tiny_model("marian", dropout=0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = make_trainer(tmp_path, model, max_steps=150, link_loss=loss, learning_rate=0.05)
    inputs = trainer.train_collator(EXAMPLES[:2])
    model.train()
    assert torch.equal(*(trainer.compute_loss(model, inputs) for _ in range(2)))
    trainer.train()
    found = losses(trainer)
    assert found[-1] < 0.5 * found[0]
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("alignment_head.")}


def test_the_loss_is_that_of_the_steps_that_read_the_linked_tokens(tmp_path):
    model = aligned_copy(tiny_model("marian"))
    trainer = make_trainer(tmp_path, model)
    batch = trainer.train_collator(EXAMPLES[:3])
    loss = trainer.compute_loss(model.train(), batch).item()
    labels, total = batch["labels"], 0.0
    read = model.prepare_decoder_input_ids_from_labels(labels)
    soft = model.eval()(batch["input_ids"], batch["attention_mask"], read, output_alignment=True).alignment
    for row in range(3):
        shifted = [soft[row, t + 1].tolist() for t in range(3)]  # y_t is what step t + 1 reads
        total += link_mass(shifted, [[float(s == 2 - t) for s in range(4)] for t in range(3)])
    assert loss == pytest.approx(total / 12, rel=1e-5)


def test_agreement_pulls_towards_the_other_direction(tmp_path):
    model, reverse = (aligned_copy(tiny_model("marian", seed=seed)) for seed in (0, 1))
    far = make_trainer(tmp_path, model, reverse=reverse, agreement=1.0)
    batch = far.train_collator(EXAMPLES[:2])
    plain = make_trainer(tmp_path, model).compute_loss(model.train(), batch).item()
    both = far.compute_loss(model.train(), batch).item()
    model.eval()
    ours = model.align_ids(batch["input_ids"], model.prepare_decoder_input_ids_from_labels(batch["labels"]))
    turned = reverse.prepare_decoder_input_ids_from_labels(batch["input_ids"])
    theirs = reverse.align_ids(batch["labels"], turned)
    expected = sum(disagreement(a[1:, :3].tolist(), b[1:, :3].tolist()) for a, b in zip(ours, theirs, strict=True)) / 8
    assert both - plain == pytest.approx(expected, rel=1e-4)
    with pytest.raises(InputError, match=r"agreement: 1.0 needs a reverse model with an alignment head"):
        make_trainer(tmp_path, model, agreement=1.0)


@pytest.mark.parametrize("shift", [True, False])
def test_guided_training_teaches_one_head_of_the_translator(tmp_path, shift):
    model = tiny_model("marian", dropout=0.0)
    options = {"guided_layer": 1, "guided_head": 1, "guided_weight": 5.0, "max_steps": 80, "guided_shift": shift}
    trainer = make_trainer(tmp_path, model, **options)
    trainer.train()
    found = [row["link_loss"] for row in trainer.state.log_history if "link_loss" in row]
    assert found[-1] < 0.5 * found[0]
    assert model.get_encoder().layers[0].fc1.weight.requires_grad
    choice = model.config.alignment
    assert (choice["layer"], choice["head"], choice["shifted"]) == (1, 1, shift)
    assert choice["aer"] < 0.35
    for wrong, text in (
        ({"guided_layer": 2}, "guided_layer: 2 is out of range"),
        ({"guided_head": 2}, "is not a head of"),
    ):
        with pytest.raises(InputError, match=text):
            make_trainer(tmp_path, model, **options | wrong)


def test_wrong_settings_are_named(tmp_path):
    with pytest.raises(InputError, match="MarianMTModel has no alignment head; load it with load_aligned"):
        make_trainer(tmp_path, tiny_model("marian"))
    for wrong, text in (
        ({"link_loss": "sum"}, "link_loss: 'sum' is not one of mass, even"),
        ({"guided_weight": -1.0}, r"guided_weight: -1.0 must not be negative"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing: is not supported: states are computed without"),
        ({"agreement": 1.0, "guided_layer": 0}, r"agreement: 1.0 is supported only for alignment heads"),
    ):
        with pytest.raises(InputError, match=text):
            AlignmentConfig(output_dir=str(tmp_path), **SETTINGS | wrong)


def test_links_are_collated_by_their_positions():
    batch = LinkCollator(partial(pad_batch, pad_id=39))(
        [EXAMPLES[0], {"input_ids": [5, 0], "labels": [7, 0], "links": []}]
    )
    assert batch["links"].shape == (2, 4, 4)
    assert batch["links"].nonzero().tolist() == [[0, 0, 2], [0, 1, 1], [0, 2, 0]]


@pytest.fixture
def translators(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    models = (tiny_model("marian", vocab_size=len(tokenizer), seed=seed).eval() for seed in (0, 1))
    return [(model, tokenizer) for model in models]


def ids_of(tokenizer):
    sides = (
        ["The dog sleeps.", "Two children are looking for shells."],
        ["Der Hund schläft.", "Zwei Kinder suchen Muscheln."],
    )
    encoded = tokenizer(sides[0], text_target=sides[1])
    return [{"input_ids": i, "labels": t} for i, t in zip(encoded["input_ids"], encoded["labels"], strict=True)]


def test_own_links_are_those_of_align(translators):
    from hf_nmt_interp.analysis.alignment import align_words, joint_links
    from hf_nmt_interp.decoding.batch import Translation
    from hf_nmt_interp.decoding.pairs import SHOWN, Pairs

    (model, tokenizer), reverse = translators
    examples = ids_of(tokenizer)
    pairs = Pairs.caught(
        model, tokenizer, [Translation(e["input_ids"], e["labels"]) for e in examples], splitting=SHOWN
    )
    texts = [pair.source.text for pair in pairs], [pair.target.text for pair in pairs]
    ours = align_words(
        model, tokenizer, *texts, method="attention:layer=0", punctuation="separate", extraction="mutual"
    )
    found = OwnLinks((model, tokenizer), method="attention:layer=0")(examples)
    assert found == [token_links(a.links, pair) for a, pair in zip(ours, pairs, strict=True)]
    assert any(found)
    theirs = align_words(*reverse, *reversed(texts), method="attention:layer=1", punctuation="separate")
    both = OwnLinks((model, tokenizer), reverse, "attention:layer=0", "attention:layer=1", least=0.1)(examples)
    expected = [joint_links(a.scores, b.scores, "grow-diag", least=0.1) for a, b in zip(ours, theirs, strict=True)]
    assert both == [token_links(links, pair) for links, pair in zip(expected, pairs, strict=True)]


def test_given_links_are_of_words_between_spaces(translators):
    _, tokenizer = translators[0]
    examples = ids_of(tokenizer)
    first, second = GivenLinks(tokenizer, iter([{(0, 0)}, {(5, 3)}]))(examples)
    pieces = [tokenizer.convert_ids_to_tokens(examples[1][side]) for side in ("input_ids", "labels")]
    assert (0, 0) in first
    assert "".join(pieces[0][s] for s in sorted({s for s, _ in second})) == "▁shells."
    assert "".join(pieces[1][t] for t in sorted({t for _, t in second})) == "▁Muscheln."
    with pytest.raises(InputError, match="has link 9-0, but its words are 6 and 4"):
        GivenLinks(tokenizer, iter([set(), {(9, 0)}]))(examples)
    with pytest.raises(InputError, match="links: 1 lines, but there are more pairs"):
        GivenLinks(tokenizer, iter([set()]))(examples)


def test_a_stream_is_taught_while_it_is_read(tmp_path, translators):
    model, tokenizer = translators[0]
    aligned = aligned_copy(model)
    examples = ids_of(tokenizer)
    teacher = OwnLinks((model, tokenizer), method="attention:layer=0")
    trainer = make_trainer(tmp_path / "stream", aligned, teacher, examples=Restartable(lambda: iter(examples)))
    assert list(trainer.train_dataset) == list(teach(teacher, iter(examples)))
    listed = make_trainer(tmp_path / "list", aligned, teacher, examples=examples)
    assert listed.train_dataset == list(trainer.train_dataset)
    trainer.train()
    assert len(losses(trainer)) == 3


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize("narrow", [True, False])
def test_the_teacher_multiplies_like_the_trainer(tmp_path, is_list, narrow):
    used = []

    def teacher(examples):
        used.append(product_dtype(torch.zeros(1)))
        return [{(0, 0)} for _ in examples]

    examples = EXAMPLES[:2] if is_list else Restartable(lambda: iter(EXAMPLES[:2]))
    trainer = make_trainer(tmp_path, aligned_copy(tiny_model("marian")), teacher, None, examples, bf16_products=narrow)
    for example in trainer.train_dataset:
        assert example["links"] == [0, 0]
        assert product_dtype(torch.zeros(1)) == torch.float32
    assert set(used) == {torch.bfloat16 if narrow else torch.float32}


def test_random_batches_have_no_links_of_padding():
    model = aligned_copy(tiny_model("marian"))
    batch = random_batch(model, [(5, 4), (3, 2)])
    assert not model(**batch, output_alignment=True).alignment[1, :, 3:].any()
