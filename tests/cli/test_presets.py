"""`align --preset`: the methods and directions that a name stands for."""

import json

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.alignment import joint_links
from hf_nmt_interp.analysis.own_attention import own_attention
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.cli.verbs.align import PRESETS
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs
from hf_nmt_interp.text.pharaoh import format_links
from tests.tiny_tokenizers import ENGLISH, GERMAN

PAIRS = [line.split() for line in ENGLISH[:4]], [line.split() for line in GERMAN[:4]]


@pytest.fixture
def files(tmp_path) -> list[str]:
    paths = [tmp_path / "en", tmp_path / "de"]
    for path, lines in zip(paths, (ENGLISH[:4], GERMAN[:4]), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return list(map(str, paths))


@pytest.fixture
def tiny(model_folder):
    return load(str(model_folder))


def chosen(translator, pairs) -> str:
    return named(own_attention(translator[0], Pairs.force(*translator, *pairs), cached=False))


def named(choice) -> str:
    head = "null" if choice.head is None else choice.head
    return f"attention:layer={choice.layer},head={head},shifted={str(choice.shifted).lower()}"


@pytest.mark.parametrize("preset", PRESETS)
def test_methods_of_one_direction(run, model_folder, tiny, files, preset) -> None:
    code, out, _ = run("align", "--model", model_folder, "--preset", preset, *files)
    method = chosen(tiny, PAIRS) + PRESETS[preset]
    links = hni.align(*tiny, *PAIRS, method=method)
    assert (code, out.splitlines()) == (0, [format_links(found) for found in links])


def test_both_directions_if_the_reverse_is_known(run, model_folder, tiny, files) -> None:
    methods = [chosen(tiny, pairs) + PRESETS["balanced"] for pairs in (PAIRS, PAIRS[::-1])]
    sides = [hni.align_words(*tiny, *p, method=m) for p, m in zip((PAIRS, PAIRS[::-1]), methods, strict=True)]
    expected = [joint_links(a.scores, b.scores, "grow-diag", least=0.2) for a, b in zip(*sides, strict=True)]
    options = "--model", model_folder, "--reverse-model", model_folder, "--preset", "balanced"
    code, out, _ = run("align", *options, *files)
    assert (code, out.splitlines()) == (0, [format_links(found) for found in expected])
    of_the_box = run("align", "--preset", "balanced", *files)
    assert of_the_box == run("align", "--preset", "balanced", "--reverse-model", "demo:de-en", *files)
    assert of_the_box.out != run("align", *files).out


def test_both_directions_read_the_same_words_and_text(run, model_folder, tiny, files) -> None:
    sides = (ENGLISH[:4], GERMAN[:4]), (GERMAN[:4], ENGLISH[:4])
    options = "--model", model_folder, "--reverse-model", model_folder, "--preset", "balanced", "--format", "json"
    rows = [json.loads(line) for line in run("align", *options, *files).out.splitlines()]
    aligned = []
    for side in sides:
        pairs = Pairs.force(*tiny, *side, SHOWN)
        method = named(own_attention(tiny[0], pairs, cached=False)) + PRESETS["balanced"]
        aligned.append(hni.align_words(*tiny, *side, method=method, **SHOWN))
    for row, a, b in zip(rows, *aligned, strict=True):
        assert (row["source"], row["target"]) == (a.source_words, a.target_words) == (b.target_words, b.source_words)
        assert {(i, j) for i, j in row["links"]} == joint_links(a.scores, b.scores, "grow-diag", least=0.2)


def test_a_preset_leaves_no_method_to_choose(run, model_folder, files, tmp_path) -> None:
    err = run("align", "--preset", "fast", "--method", "lrp", *files).err
    assert "--preset: 'fast' also chooses --method; give one of them" in err
    (tmp_path / "en").write_text("\n\n", encoding="utf-8")
    (tmp_path / "de").write_text("\n\n", encoding="utf-8")
    err = run("align", "--model", model_folder, "--preset", "balanced", *files).err
    assert "no attention can be chosen: the first 40 lines have no words" in err
