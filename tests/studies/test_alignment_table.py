"""The alignment table: its rows against the functions they stand for, and going on after a cut."""

import sys

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.alignment import align_words, extract_links, joint_links, joint_scores
from hf_nmt_interp.analysis.own_attention import best_agreement, occlusion_agreements
from hf_nmt_interp.analysis.stepwise import stepwise_links
from hf_nmt_interp.analysis.symmetrization import HEURISTICS, flip
from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.models.calibrated import CalibratedMarianConfig, CalibratedMarianMTModel
from hf_nmt_interp.studies import alignment_table
from hf_nmt_interp.studies.alignment_table import CHOSEN, FIXED, PUBLISHED, ROWS, AlignmentTable
from hf_nmt_interp.studies.best_attention import agreeing_attention, attention_links
from hf_nmt_interp.text.tokens import separate_punctuation
from tests.aligned_models import aligned_copy
from tests.reference import published as twin
from tests.tiny_models import RECURRENT, tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN

PAIRS = [
    ("A small dog sleeps .", "Ein kleiner Hund schläft hier ."),
    ("We walked .", "Wir gingen ."),
    ("a b c d", "e f"),
]
WORDS = [source.split() for source, _ in PAIRS], [target.split() for _, target in PAIRS]
ROWS_AND_METHODS = [
    ("grad", "saliency", {}),
    ("LRP", "lrp", {}),
    ("AttnLRP", "lrp", {"rule": "attnlrp"}),
    ("SmoothGrad, default noise", "smoothgrad", {}),
    ("best shifted attention", "attention", {"layer": 1, "head": 0, "shifted": True}),
    ("shifted + Li grad", "attention:layer=1,head=0,shifted=true+saliency:aggregate=li2016", {}),
]
GOLD = [{(j, j) for j in range(4)}] * 3, [{(j, j + 1) for j in range(4)}] * 3


@pytest.fixture(scope="module")
def translators(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    models = [tiny_model("marian", vocab_size=len(tokenizer)) for _ in range(2)]
    for model in models:
        model.generation_config.max_length = 8
        model.generation_config.bad_words_ids = [[tokenizer.pad_token_id]]
    for weights in models[1].parameters():
        weights.data = -weights.data  # another translator
    return [(model, tokenizer) for model in models]


@pytest.fixture
def table(translators, tmp_path):
    return AlignmentTable(*translators, PAIRS, GOLD, tmp_path, batch_size=2)


def rates(rows):
    return {(row["method"], row["alignment"]): {k: row[k] for k in ("aer", "precision", "recall")} for row in rows}


@pytest.mark.parametrize(("name", "method", "settings"), ROWS_AND_METHODS)
def test_force_rows_are_those_of_align(table, translators, name, method, settings) -> None:
    table._choices = {"best shifted attention": dict.fromkeys(("forward", "backward"), ROWS_AND_METHODS[4][2])}
    rows = list(table.force([name]))
    forward = align_words(*translators[0], *WORDS, method, **settings)
    backward = align_words(*translators[1], *WORDS[::-1], method, **settings)
    links = [a.links for a in forward], [flip(b.links) for b in backward]
    expected = {"forward": links[0], "backward": links[1]} | {h: hni.symmetrize(*links, h) for h in HEURISTICS}
    scores = [(a.scores, b.scores) for a, b in zip(forward, backward, strict=True)]
    joint = [joint_scores(*pair) for pair in scores]
    both = [extract_links(x) for x in joint], [flip(extract_links(x.T)) for x in joint]
    expected |= {f"joint {h}": hni.symmetrize(*both, h) for h in HEURISTICS}
    expected["joint grow-diag 0.2"] = [joint_links(*pair, "grow-diag", least=0.2) for pair in scores]
    assert rates(rows) == {(name, key): hni.alignment_error_rate(found, *GOLD) for key, found in expected.items()}
    assert rows[0]["entropy"] == pytest.approx(hni.dispersion(a.soft for a in forward), abs=1e-4)
    assert (rows[0]["pairs"], rows[2]["entropy"]) == (3, None)


def test_calibrated_translators_have_a_row_of_masks(tmp_path, translators) -> None:
    calibrated = [(CalibratedMarianMTModel(CalibratedMarianConfig(**m.config.to_dict())), t) for m, t in translators]
    table = AlignmentTable(*calibrated, PAIRS, GOLD, tmp_path)
    assert "mask" in table.rows()
    assert {row["method"] for row in table.force(["mask"])} == {"mask"}


def test_translators_with_an_alignment_head_have_its_row(tmp_path, translators) -> None:
    models = [(aligned_copy(model), tokenizer) for model, tokenizer in translators]
    table = AlignmentTable(*models, PAIRS, GOLD, tmp_path)
    assert "alignment head" in table.rows()
    rows = list(table.force(["alignment head"]))
    links = hni.align(*models[0], *WORDS, "alignment_head")
    assert rows[0]["aer"] == hni.alignment_error_rate(links, *GOLD)["aer"]
    one_headed = AlignmentTable(models[0], translators[1], PAIRS, GOLD, tmp_path)
    assert "alignment head" not in one_headed.rows()


def test_every_method_has_a_row() -> None:
    assert FIXED["SmoothGrad, default noise"] == ("saliency", {"smoothgrad": 30})
    assert CHOSEN["shifted attention"] == (False, True)
    assert {name for name, _ in FIXED.values()} | {"smoothgrad", "shifted_attention"} == set(METHODS)


def test_all_rows_and_the_choice_of_attention(table, translators) -> None:
    assert list(dict.fromkeys(row["method"] for row in table.force())) == table.rows()
    assert set(ROWS) - set(table.rows()) == {"mask", "alignment head"}
    links = [attention_links(*translators[0], *WORDS), attention_links(*translators[1], *WORDS[::-1])]
    for name, (heads, shifted) in CHOSEN.items():
        best = agreeing_attention(*links, heads, shifted)
        for direction, choice in zip(("forward", "backward"), best, strict=True):
            settings = {"layer": choice.layer, "head": choice.head, "shifted": shifted}
            assert table._method(name, direction) == ("attention", settings)
            assert heads or choice.head is None
        errors = [
            hni.alignment_error_rate(f, [flip(x) for x in b])["aer"]
            for key, f in links[0].items()
            for other, b in links[1].items()
            if key[2] == other[2] == shifted and (heads or key[1] is other[1] is None)
        ]
        assert best[0].aer == best[1].aer == min(errors)


def test_one_direction(translators, tmp_path) -> None:
    model, tokenizer = translators[0]
    table = AlignmentTable((model, tokenizer), None, PAIRS, GOLD, tmp_path, statistical="stepwise")
    rows = list(table.force(["grad", *CHOSEN]))
    assert {row["alignment"] for row in rows} == {"forward", "forward, mutual"}
    for row, extraction in zip(rows, ("argmax", "mutual"), strict=False):
        links = hni.align(model, tokenizer, *WORDS, "saliency", extraction=extraction)
        assert row["aer"] == hni.alignment_error_rate(links, *GOLD)["aer"]
    found = occlusion_agreements(model, Pairs.force(model, tokenizer, *WORDS))
    for name, (heads, shifted) in CHOSEN.items():
        choice = best_agreement(found, heads, shifted)
        assert choice.shifted == shifted
        assert heads or choice.head is None
        assert table._method(name, "forward") == ("attention", choice.settings)
    text = [tmp_path / "en", tmp_path / "de"]
    for path, lines in zip(text, (ENGLISH, GERMAN), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [row["alignment"] for row in table.free(tuple(text), ["attention"])] == ["forward"]
    assert {"forward", "backward", "union"} <= {row["alignment"] for row in table.yardstick(tuple(text))}


def test_a_run_that_was_cut_off_goes_on(translators, tmp_path, monkeypatch) -> None:
    first = AlignmentTable(*translators, PAIRS[:2], (GOLD[0][:2], GOLD[1][:2]), tmp_path, batch_size=1)
    assert len(list(first.force(["attention"]))) == 13
    (file,) = tmp_path.glob("force-forward-*")
    file.write_text(file.read_text().splitlines(True)[0] + "[[[1, 2")  # killed while it wrote the second line
    said: list[str] = []
    whole = list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path, 1, said.append).force(["attention"]))
    assert [line.split(": ")[1] for line in said] == ["2 of 3", "3 of 3", "3 of 3"]
    assert whole == list(
        AlignmentTable(*translators, PAIRS, GOLD, tmp_path / "new", batch_size=1).force(["attention"])
    )
    monkeypatch.setattr(alignment_table, "explain", None)
    assert whole == list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path).force(["attention"]))
    with pytest.raises(TypeError):  # other pairs, other numbers
        list(AlignmentTable(*translators, PAIRS[::-1], GOLD, tmp_path).force(["attention"]))


@pytest.fixture
def training(tmp_path, eflomal):
    """Two files of text, and an aligner to train on them."""
    paths = tmp_path / "train.en", tmp_path / "train.de"
    for path, lines in zip(paths, (ENGLISH, GERMAN), strict=True):
        path.write_text("\n".join(lines), encoding="utf-8")
    return paths


def test_free_rows_and_eflomal(table, translators, training, monkeypatch) -> None:
    rows = list(table.free(training, ["attention"]))
    assert [row["alignment"] for row in rows] == ["forward", "backward"]
    for row, translator, sources in zip(rows, translators, WORDS, strict=True):
        found = align_words(*translator, sources, None, "attention", layer=-1)
        sizes = [min(map(len, (a.source_words, a.target_words))) for a in found]
        sure, possible = ([{(n, n) for n in range(first, size)} for size in sizes] for first in (1, 0))
        expected = hni.alignment_error_rate([a.links for a in found], sure, possible)
        assert {key: row[key] for key in expected} == pytest.approx(expected)

    rows = list(table.yardstick(training, others=[("x", "y")]))
    sizes = [min(len(source), len(target)) for source, target in zip(*WORDS, strict=True)]
    diagonal = [{(n, n) for n in range(size)} for size in sizes]
    assert rates(rows)["eflomal", "union"] == hni.alignment_error_rate(diagonal, *GOLD)
    assert [row["alignment"] for row in rows] == ["forward", "backward", *HEURISTICS]
    monkeypatch.setitem(sys.modules, "eflomal", None)  # what it found is kept
    assert rows == list(table.yardstick(training, others=[("x", "y")]))
    with pytest.raises(hni.InputError, match="pip install"):
        list(table.yardstick(training))


@pytest.mark.parametrize("name", ["stepwise", "stepwise-online"])
def test_the_stepwise_aligner_in_the_place_of_eflomal(translators, training, tmp_path, name) -> None:
    table = AlignmentTable(*translators, PAIRS, GOLD, tmp_path / "kept", statistical=name)
    rows = list(table.yardstick(training))
    text = [(separate_punctuation(s), separate_punctuation(t)) for s, t in zip(ENGLISH, GERMAN, strict=True)]
    forward, backward = stepwise_links(PAIRS, text, online=name.endswith("online"))
    assert rates(rows)[name, "forward"] == hni.alignment_error_rate(forward, *GOLD)
    assert rates(rows)[name, "union"] == hni.alignment_error_rate(hni.symmetrize(forward, backward, "union"), *GOLD)
    (row, _) = table.free(training, ["attention"])
    assert (row["reference"], rows[0]["reference"]) == (name, "gold")
    with pytest.raises(hni.InputError, match="statistical: 'giza' is not one of eflomal, stepwise, stepwise-online"):
        AlignmentTable(*translators, PAIRS, GOLD, tmp_path, statistical="giza")


def test_noise_rows(table, translators) -> None:
    attention, *rows = table.noise([0, 0.15, 0.3])
    (plain, *_) = table.force(["attention"])
    assert attention | {"table": "force"} == plain
    assert [row["method"] for row in rows] == ["sigma 0", "sigma 0.15", "sigma 0.3"]
    for row, settings in zip(rows, [{}, *({"smoothgrad": 30, "sigma": sigma} for sigma in (0.15, 0.3))], strict=True):
        found = align_words(*translators[0], *WORDS, "saliency", **settings)
        assert row["aer"] == hni.alignment_error_rate([a.links for a in found], *GOLD)["aer"]
        assert row["entropy"] == pytest.approx(hni.dispersion(a.soft for a in found), abs=1e-4)


def test_noise_rows_of_free_decoding(table, translators, training) -> None:
    *force, attention, free = table.noise([0.3], training)
    assert force == list(table.noise([0.3]))
    assert attention | {"table": "free"} == next(table.free(training, ["attention"]))
    found = align_words(*translators[0], WORDS[0], None, "saliency", smoothgrad=30, sigma=0.3)
    assert free["entropy"] == pytest.approx(hni.dispersion(a.soft for a in found), abs=1e-4)
    plain, *_ = table.free(training, ["grad"])
    (_, same) = [row for row in table.noise([0], training) if row["table"] == "free noise"]
    assert same | {"table": "free", "method": "grad"} == plain


# --------------------------------------------------------------------------------------------------- as published
def published(translators, folder, **settings):
    return AlignmentTable(*translators, PAIRS, GOLD, folder, batch_size=2, as_published=True, **settings)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rows_are_those_of_subwords(translators, tmp_path, name) -> None:
    method, settings = PUBLISHED[name]
    rows = list(published(translators, tmp_path).force([name]))
    assert [row["alignment"] for row in rows] == ["forward", "backward", *HEURISTICS]
    assert {row["way"] for row in rows} == {"published"}
    results = [
        hni.attribute(*translator, *sides, method=method, **settings)
        for translator, sides in zip(translators, (WORDS, WORDS[::-1]), strict=True)
    ]
    links = [[twin.links(r.source, r.source_side.word_ids, r.target_side.word_ids) for r in own] for own in results]
    links[1] = [flip(found) for found in links[1]]
    expected = {"forward": links[0], "backward": links[1]} | {h: hni.symmetrize(*links, h) for h in HEURISTICS}
    assert rates(rows) == {(name, key): hni.alignment_error_rate(found, *GOLD) for key, found in expected.items()}
    for row, own in zip(rows, results, strict=False):
        assert row["entropy"] == pytest.approx(twin.entropy(r.source for r in own), abs=1e-6)


def test_li_rows_have_the_absolute_value_of_psi() -> None:
    assert {row: PUBLISHED[row][1].get("aggregate") for row in PUBLISHED if "Li" in row} == {
        "Li grad": "abs_product",
        "Li SmoothGrad": "abs_product",
    }


def test_the_two_ways_share_a_folder(translators, tmp_path, monkeypatch) -> None:
    expected = list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path / "new").force(["grad"]))
    theirs = list(published(translators, tmp_path).force(["grad"]))
    assert all(file.name.startswith("tokens-") for file in tmp_path.glob("*.jsonl"))
    monkeypatch.setattr(alignment_table, "explain", None)  # scores of words are made of those of tokens
    assert list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path, batch_size=2).force(["grad"])) == expected
    words = sorted(file.read_text() for file in (tmp_path / "new").glob("*.jsonl"))
    assert words == sorted(file.read_text() for file in tmp_path.glob("force-*.jsonl"))
    assert list(published(translators, tmp_path).force(["grad"])) == theirs
    assert theirs[0]["way"] != expected[0]["way"] == "default"


def test_scores_of_words_are_computed_where_those_of_tokens_are_missing(translators, tmp_path) -> None:
    list(published(translators, tmp_path).force(["attention"]))
    for file in tmp_path.glob("tokens-*"):
        file.write_text(file.read_text().splitlines(True)[0])  # of the first pair only
    found = list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path, batch_size=1).force(["attention"]))
    expected = list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path / "new").force(["attention"]))
    assert rates(found) == rates(expected)
    for row, other in zip(found[:2], expected, strict=False):  # in other batches, sums are rounded differently
        assert row["entropy"] == pytest.approx(other["entropy"], rel=1e-5)


def test_free_rows_as_published(translators, tmp_path, training) -> None:
    table = published(translators, tmp_path)
    rows = list(table.free(training, ["attention"]))
    for row, (asked, reference), translator in zip(rows, table._own(training).values(), translators, strict=True):
        found = hni.align(*translator, [p.source.words for p in asked], None, "attention", extraction="subword_argmax")
        assert row["aer"] == hni.alignment_error_rate(found, *reference)["aer"]


def test_rows_that_the_paper_does_not_have(translators, tmp_path) -> None:
    with pytest.raises(hni.InputError, match="method: 'LRP' is not one of attention, smoothed attention, Li grad"):
        list(published(translators, tmp_path).force(["LRP"]))
    with pytest.raises(hni.InputError, match="method: 'lrp' is not one of attention"):
        list(AlignmentTable(*translators, PAIRS, GOLD, tmp_path).force(["lrp"]))


@pytest.mark.parametrize("family", RECURRENT)
def test_tables_of_other_architectures(family, tokenizer_of, tmp_path) -> None:
    tokenizer = tokenizer_of("marian")
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = tiny_model(family, vocab_size=len(tokenizer), decoder_start_token_id=tokenizer.pad_token_id, **ids)
    translators = (model, tokenizer), (model, tokenizer)
    for as_published in (False, True):
        table = AlignmentTable(*translators, PAIRS[:2], [x[:2] for x in GOLD], tmp_path, as_published=as_published)
        rows = list(table.noise([0, 0.15]))
        assert [row["method"] for row in rows] == ["attention", "sigma 0", "sigma 0.15"]
        assert all(0 < row["entropy"] < 3 for row in rows)
        mean = as_published and family == "conv"
        assert table._method("attention", "forward") == ("attention", {"layer": "mean" if mean else -1})
        settings = {"layer": "mean" if mean else -1}
        results = hni.attribute(*translators[0], WORDS[0][:2], WORDS[1][:2], method="attention", **settings)
        if as_published:
            assert rows[0]["entropy"] == pytest.approx(twin.entropy(r.source for r in results), abs=1e-6)
        assert len(list(table.force(["smoothed attention"]))) == (7 if as_published else 13)


def test_joint_scores_leave_words_without_agreement_unlinked() -> None:
    forward, backward = np.array([[1.0, 0.0], [-np.inf, -np.inf]]), np.array([[0.0, -np.inf], [2.0, -np.inf]])
    assert np.isneginf(joint_scores(forward, backward)).all()
    assert extract_links(joint_scores(forward, backward)) == set()
