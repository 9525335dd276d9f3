"""Head reports of tiny models."""

import csv
import json

import numpy as np
import pytest
import torch

from hf_nmt_interp.analysis import heads as heads_module
from hf_nmt_interp.analysis.heads import HeadReport, head_facts, head_report
from hf_nmt_interp.analysis.roles import RareWords
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedMarianConfig, GatedMarianMTModel
from hf_nmt_interp.report.heads import head_table, plot_heads
from hf_nmt_interp.text.conllu import Sentence
from hf_nmt_interp.text.tokens import encode_source
from tests.reference.roles import word_attention
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN

SOURCES, TARGETS = ENGLISH[:3], GERMAN[:3]
TREE = Sentence(
    words=["A", "small", "dog", "sleeps", "under", "the", "kitchen", "table", "!"],
    heads=[2, 2, 3, None, 7, 7, 7, 3, 3],
    deprels=["det", "amod", "nsubj", "root", "case", "det", "compound", "obl", "punct"],
    text="A small dog sleeps under the kitchen table!",
    tokens=["A", "small", "dog", "sleeps", "under", "the", "kitchen", "table", "!"],
    token_ids=list(range(9)),
)


def test_words_attention_is_mean_over_queries_and_sum_over_keys(tokenizer_of, monkeypatch):
    """Of a planted attention: its subwords' mean and sum, without EOS."""
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    rng = np.random.default_rng(0)
    planted = rng.random((1, 2, 64, 64), dtype=np.float32)
    translator = heads_module.parts(model)
    kept = translator.attentions("encoder")[0]
    monkeypatch.setattr(heads_module, "attention_of", lambda *args: [(kept, 0, planted)])
    ((_, _, found),) = heads_module._word_views(model, translator, tokenizer, [TREE])
    words = encode_source(tokenizer, TREE.text, spans=TREE.spans()).token_words.positions
    assert [len(w) > 1 for w in words].count(True) > 2
    for head in range(2):
        expected = word_attention(planted[0, head].tolist(), words)
        np.testing.assert_allclose(found.weights[head], expected, rtol=1e-5)
    assert [r for r in found.relations if r.name == "nsubj"] == [(2, 3, "nsubj")]


def test_planted_heads_get_their_roles(tokenizer_of, monkeypatch):
    """Encoder head 0 looks at the token before, head 1 at EOS most and at the next token among the others."""
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))

    def planted(tape, attention, mask):
        keys, queries = mask.shape[1], tape.output(attention.query).shape[1]
        weights = torch.full((len(mask), 2, queries, keys if attention.kind != "decoder" else queries), 1e-3)
        for b, length in enumerate(mask.sum(-1).tolist()):
            for q in range(queries):
                weights[b, 0, q, max(0, min(q, length) - 1)] = 0.8
                weights[b, 1, q, min(q + 1, weights.shape[-1] - 1)] = 0.4
                if attention.kind == "encoder":
                    weights[b, 1, q, length - 1] = 0.6
        return weights

    monkeypatch.setattr(heads_module, "attention_weights", planted)
    report = head_report(model, tokenizer, SOURCES[2:], TARGETS[2:], relevance_sentences=0)
    first, second = (row for row in report.rows if row["kind"] == "encoder" and row["layer"] == 1)
    assert (first["roles"], second["roles"]) == (["positional: -1"], ["positional: +1"])
    assert first["confidence"] == pytest.approx(0.8, abs=0.01)
    assert second["confidence"] == pytest.approx(0.4, abs=0.02)  # EOS does not count
    assert first["relevance"] is None


@pytest.fixture(scope="module")
def report(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    return head_report(
        tiny_model("marian", vocab_size=len(tokenizer)), tokenizer, SOURCES, TARGETS, [TREE], batch_size=2
    )


def test_report_of_every_head(report):
    assert [(r["kind"], r["layer"], r["head"]) for r in report.rows] == [
        (kind, layer, head) for kind in ("encoder", "decoder", "cross") for layer in (0, 1) for head in (0, 1)
    ]
    assert report.scores("relevance", "cross").sum(-1) == pytest.approx([1, 1], abs=1e-4)
    about = {"model": "", "sentences": 3, "trees": 1, "relevance": 3}
    assert report.about == about | {"dependents": {"nsubj": {"-1": 1}, "amod": {"-1": 1}}}
    for row in report.rows:
        assert 0 < row["confidence"] <= 1
        assert 0 < row["position_share"] <= 1
        assert (row["nsubj_baseline"] == 1) is (row["kind"] == "encoder")
    with pytest.raises(InputError, match="name: 'speed' is not in the report for kind 'encoder'; it has relevance"):
        report.scores("speed")


def test_confidence_agrees_with_the_models_own_attention(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer), attn_implementation="eager")
    found = head_report(model, tokenizer, SOURCES[:1], TARGETS[:1], relevance_sentences=0)
    batch = tokenizer(SOURCES[0], text_target=TARGETS[0], return_tensors="pt")
    output = model(**batch, output_attentions=True)
    for kind, attentions, own, keys in (
        ("encoder", output.encoder_attentions, slice(None, -1), slice(None, -1)),  # without EOS
        ("decoder", output.decoder_attentions, slice(1, None), slice(1, None)),  # without the start token
        ("cross", output.cross_attentions, slice(None, -1), slice(None, -1)),
    ):
        expected = attentions[1][0, :, own, keys].amax(-1).mean(-1).tolist()
        assert found.scores("confidence", kind)[1].tolist() == pytest.approx(expected, rel=1e-5)


def test_export_and_pictures(report, tmp_path):
    report.save(tmp_path / "heads.json")
    assert HeadReport.load(tmp_path / "heads.json") == report
    report.save(tmp_path / "heads.csv")
    rows = list(csv.DictReader((tmp_path / "heads.csv").open()))
    assert float(rows[1]["relevance"]) == report.rows[1]["relevance"]
    with pytest.raises(InputError, match=r"heads.txt' must end in .json or .csv"):
        report.save(tmp_path / "heads.txt")
    assert len(head_table(report).rows) == 12
    for kind in ("encoder", "cross"):
        plot_heads(report, tmp_path / f"{kind}.png", kind)
        assert (tmp_path / f"{kind}.png").stat().st_size > 5000
        assert (tmp_path / f"{kind}.csv").read_text() == report.to_csv()
    with pytest.raises(InputError, match="no heads of kind 'both'"):
        plot_heads(report, tmp_path / "both.png", "both")


def test_pruned_model_keeps_its_heads_numbers(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    plain = tiny_model("marian", vocab_size=len(tokenizer))
    model = GatedMarianMTModel(GatedMarianConfig(**plain.config.to_dict()))
    model.load_state_dict(plain.state_dict(), strict=False)
    model.set_kept_heads({"encoder": [[1], []], "cross": [[0, 1], [0]]})
    found = head_report(model.prune().eval(), tokenizer, trees=[TREE])
    kept = [(r["kind"], r["layer"], r["head"]) for r in found.rows if r["kind"] != "decoder"]
    assert kept == [("encoder", 0, 1), ("cross", 0, 0), ("cross", 0, 1), ("cross", 1, 0)]
    assert found.rows[0]["relevance"] == pytest.approx(1)
    json.loads(found.to_json())
    assert found.to_csv().splitlines()[0].startswith("kind,layer,head,relevance,confidence")


def test_a_translation_without_words_has_no_facts(translator_of):
    empty, full = head_facts(*translator_of("marian"), ["A dog.", "A dog."], ["", "Ein Hund."])
    assert empty["steps"] == 1
    assert [row["kind"] for row in empty["heads"] if "tokens" in row] == 4 * ["encoder"]
    assert all("tokens" in row for row in full["heads"])


def test_a_corpus_without_the_words_is_warned_about(tokenizer_of, caplog):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    tokens = tokenizer("the sun")["input_ids"]
    head_report(model, tokenizer, ["the sun"], ["Sonne"], corpus=[("the sun", "a")], relevance_sentences=0)
    assert not caplog.records
    head_report(model, tokenizer, ["the sun"], ["Sonne"], corpus=[("the", "a")], relevance_sentences=0)
    share = sum(token not in tokenizer("the")["input_ids"] for token in tokens) / len(tokens)
    (message,) = caplog.messages
    assert message.startswith(f"corpus: {100 * share:.0f} % of the source tokens do not occur in it")
    assert 0.25 < share < 1


def test_corpus_tells_what_is_rare(tokenizer_of, monkeypatch):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    monkeypatch.setattr(heads_module, "COMMON", 5)
    counted = []
    monkeypatch.setattr(RareWords, "add", lambda self, seen: counted.append(seen))
    head_report(model, tokenizer, ["the the sun"], ["die Sonne"], corpus=[("the the", "die")], relevance_sentences=0)
    encoder = counted[0]
    piece = tokenizer("the")["input_ids"][0]
    at = tokenizer("the the sun")["input_ids"].index(piece)
    assert encoder.counts[at] == 2
    assert encoder.common[at]
    assert not encoder.common.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "sources: none given; give sentences, or trees"),
        ({"sources": "A dog."}, "sources: expected a list of sentences, got 'A dog.'"),
        ({"sources": ["A dog."], "targets": []}, "targets: 0 targets for 1 sources; give one each"),
        ({"trees": [Sentence(text="A dog.", tokens=["A", "cat"])]}, "text: 'A dog.' has no 'cat' at 1"),
    ],
)
def test_wrong_arguments_are_named(tokenizer_of, options, message):
    tokenizer = tokenizer_of("marian")
    with pytest.raises(InputError, match=message):
        head_report(tiny_model("marian", vocab_size=len(tokenizer)), tokenizer, **options, relevance_sentences=0)
