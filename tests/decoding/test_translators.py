"""`load`, names in place of models, and what stands before a source."""

import copy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import make_nllb_tokenizer, make_t5_tokenizer

SOURCE, TARGET = "The old dog sleeps.", "Der alte Hund schläft."


def test_load_is_ready_to_use(model_folder):
    model, tokenizer = hni.load(str(model_folder))
    assert (model.training, model.dtype) == (False, torch.float32)
    assert len(hni.attribute(model, tokenizer, SOURCE, TARGET, method="attention").to_words().target_side.words) == 5


@pytest.mark.parametrize("dtype", ["float64", torch.bfloat16])
def test_precision(model_folder, dtype):
    assert str(hni.load(model_folder, dtype=dtype)[0].dtype).endswith(str(dtype).removeprefix("torch."))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"dtype": "int8"}, "dtype: 'int8' is not one of float32, float64, bfloat16, float16"),
        ({"device": "toaster"}, "device: 'toaster' cannot be used"),
        (
            {"name": "demo:xx-yy"},
            "model: 'demo:xx-yy' is not a bundled translator; choose from demo:de-en, demo:en-de",
        ),
        ({"name": "./nowhere"}, "model: folder './nowhere' does not exist"),
    ],
)
def test_what_does_not_load(model_folder, options, problem):
    with pytest.raises(InputError, match=problem):
        hni.load(**{"name": str(model_folder)} | options)


GOLD = [{(0, 0)}]
CALLS = {
    "attribute": lambda *model: hni.attribute(*model, SOURCE, TARGET, method="attention").source,
    "align": lambda *model: hni.align(*model, SOURCE, TARGET, method="attention"),
    "align_words": lambda *model: hni.align_words(*model, [SOURCE], [TARGET], method="attention")[0].scores,
    "head_report": lambda *model: hni.head_report(*model, [SOURCE], [TARGET]).rows,
    "calibration_report": lambda *model: hni.calibration_report(*model, [SOURCE], [TARGET]).layers,
    "best_attention": lambda *model: hni.best_attention(*model, [SOURCE], [TARGET], GOLD),
    "transfer_markup": lambda *model: hni.transfer_markup(f"<b>{SOURCE}</b>", *model, method="attention"),
    "contribution_study": lambda *model: hni.contribution_study(*model, [SOURCE], [TARGET]).rows,
}


@pytest.mark.parametrize("call", CALLS)
def test_names_are_taken_in_place_of_models(model_folder, call):
    found, expected = CALLS[call](str(model_folder), None), CALLS[call](*hni.load(str(model_folder)))
    np.testing.assert_equal(found, expected)
    with pytest.raises(InputError, match=r"tokenizer: is loaded with .*; give None"):
        CALLS[call](str(model_folder), "a tokenizer")


@pytest.mark.parametrize("call", [hni.lexical_probe, hni.flip_influence])
def test_names_are_taken_where_there_are_ids_only(model_folder, call):
    ids = torch.tensor([[5, 6, 2]])
    found, expected = (call(model, ids, ids) for model in (str(model_folder), hni.load(str(model_folder))[0]))
    assert torch.equal(getattr(found, "beta", found), getattr(expected, "beta", expected))


def test_links_by_a_name(model_folder):
    results = hni.attribute(model_folder, None, [SOURCE], [TARGET], method="attention")
    assert (
        hni.add_links(str(model_folder), results)[0].links
        == hni.add_links(hni.load(model_folder)[0], results)[0].links
    )


def test_the_tokenizer_may_be_left_out(model_folder):
    found = hni.attribute(str(model_folder), sources=SOURCE, targets=TARGET, method="attention")
    assert found.source_tokens


def test_former_names_of_targets_are_taken(model_folder):
    found = hni.attribute(model_folder, None, SOURCE, target=TARGET, method="attention")
    assert found.text == TARGET
    assert hni.transfer_markup("<b>a</b>", translation="A", links={(0, 0)}) == "<b>A</b>"
    with pytest.raises(InputError, match="target: is the former name of targets; give targets only"):
        hni.attribute(model_folder, None, SOURCE, target=TARGET, targets=TARGET)


def test_contexts_need_the_model_itself(model_folder):
    names = (str(model_folder),), (str(model_folder), None), (Path(model_folder),)
    for context, given in product((hni.explain_generation, hni.align_generation), names):
        with pytest.raises(InputError, match=r"model: '.*' is a name; load it first, with hf_nmt_interp.load"):  # noqa: SIM117
            with context(*given):
                pass


@pytest.fixture(scope="module")
def nllb_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nllb")
    model = tiny_model("m2m100", vocab_size=len(make_nllb_tokenizer(folder)))
    model.generation_config.max_length = 12
    model.save_pretrained(folder)
    return str(folder)


def test_names_of_many_languages_take_them(nllb_folder):
    german = hni.attribute(nllb_folder, sources=SOURCE, method="attention", target_lang="deu_Latn")
    english = hni.attribute(nllb_folder, sources=SOURCE, method="attention", target_lang="eng_Latn")
    assert (german.target_tokens[0], english.target_tokens[0]) == ("deu_Latn", "eng_Latn")


@pytest.mark.parametrize("call", ["transfer_markup", "contribution_study"])
def test_every_function_that_takes_a_name_takes_the_options_of_load(nllb_folder, call):
    calls = {
        "transfer_markup": lambda *model, **more: hni.transfer_markup("<b>a</b>", *model, method="attention", **more),
        "contribution_study": lambda *model, **more: hni.contribution_study(*model, [SOURCE], [TARGET], **more).rows,
    }
    languages = {"source_lang": "eng_Latn", "target_lang": "deu_Latn"}
    assert calls[call](nllb_folder, None, **languages) == calls[call](*hni.load(nllb_folder, **languages))
    with pytest.raises(InputError, match="target_lang: 'xx' is not a language of"):
        calls[call](nllb_folder, None, target_lang="xx")


PREFIX = "translate English to German: "


@pytest.fixture(scope="module")
def t5_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    model = tiny_model("t5", vocab_size=len(make_t5_tokenizer(folder)))
    model.generation_config.max_length = 12
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("method", ["lrp", "saliency", "attention"])
def test_a_prefix_is_explained_and_is_not_a_word(t5_folder, method):
    plain = hni.load(t5_folder)
    loaded = hni.load(t5_folder, source_prefix=PREFIX)
    result = hni.attribute(*loaded, SOURCE, TARGET, method=method)
    written = hni.attribute(*plain, PREFIX + SOURCE, TARGET, method=method)  # the same ids, other words
    assert result.source_tokens == written.source_tokens
    np.testing.assert_array_equal(result.source, written.source)
    front = len(plain[1](PREFIX.strip(), add_special_tokens=False).input_ids)
    assert result.source_side.special == [True] * front + [False] * (len(result.source_tokens) - front - 1) + [True]
    assert result.to_words().source_tokens[front:] == [*SOURCE[:-1].split(), ".", "</s>"]
    assert (result.source[:, :front] != 0).all()


def test_a_prefix_shifts_no_link(t5_folder):
    loaded = hni.load(t5_folder, source_prefix=PREFIX)
    for source, target in ((SOURCE, TARGET), (SOURCE.split(), TARGET.split())):
        (found,) = hni.align_words(*loaded, [source], [target], method="attention")
        assert found.source_words == SOURCE.split()
        assert {i for i, _ in found.links} <= set(range(4))
    prefixed = PREFIX.split() + SOURCE.split()
    (plain,) = hni.align_words(*hni.load(t5_folder), [prefixed], [TARGET.split()], method="attention")
    # sums over another number of words are rounded differently on some processors
    np.testing.assert_allclose(found.scores, plain.scores[:, -4:], rtol=1e-6)


def test_a_prefix_is_found_in_what_is_generated(t5_folder):
    model, tokenizer = hni.load(t5_folder, source_prefix=PREFIX)
    with hni.explain_generation(model, tokenizer, method="attention") as explained:
        model.generate(**tokenizer(PREFIX + SOURCE, return_tensors="pt"))
        model.generate(**tokenizer(SOURCE, return_tensors="pt"))
    assert [result.source_side.words for result in explained.results] == [[*SOURCE[:-1].split(), "."]] * 2


def test_prefixes_of_the_command_line(t5_folder, run):
    words = "translate", "--model", t5_folder, "--format", "json", SOURCE
    assert run(*words).out != run(*words, "--source-prefix", PREFIX).out
    assert run(*words, "--source-prefix", "").out == run(*words).out


def test_a_prefix_that_is_needed_is_asked_for(t5_folder, tmp_path, run):
    model, tokenizer = hni.load(t5_folder)
    model.config.task_specific_params = {"summarization": {"prefix": "x"}, "translation_en_to_de": {"prefix": PREFIX}}
    model.save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    problem = f"source_prefix: t5 needs a prefix before every source, but none was given; give e.g. .*'{PREFIX}'"
    with pytest.raises(InputError, match=problem):
        hni.load(tmp_path / "t5")
    assert hni.load(tmp_path / "t5", source_prefix="")[1] is not None
    assert f"--source-prefix '{PREFIX}'" in run("translate", "--model", tmp_path / "t5", SOURCE).err
    del model.config.task_specific_params
    model.save_pretrained(tmp_path / "madlad")
    tokenizer.add_tokens(["<2de>", "<2fr>", "<2zh_Hant>"])
    tokenizer.save_pretrained(tmp_path / "madlad")
    with pytest.raises(
        InputError, match=r"madlad needs a prefix .*; give e.g. source_prefix='<2de> ' or source_prefix='<2fr> '"
    ):
        hni.load(tmp_path / "madlad")


def test_a_prefix_without_a_space(tokenizer_of):
    from hf_nmt_interp.text.tokens import encode_source

    tokenizer = copy.deepcopy(tokenizer_of("t5"))
    tokenizer.source_prefix = "«"
    assert encode_source(tokenizer, "The dog").token_words.words == ["The", "dog"]
    assert encode_source(tokenizer, "The dog", spans=[(0, 7)]).token_words.words == ["The dog"]
