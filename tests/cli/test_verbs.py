"""What each verb reads and writes.

Also for cli/arguments.py, cli/output.py, cli/verbs/attribute.py, cli/verbs/translate.py, cli/verbs/demo.py and
cli/verbs/env.py.
"""

import argparse
import io
import json
import sys

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.attribution.registry import parse_method_settings
from hf_nmt_interp.cli.arguments import add_decoding, generate_options
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.errors import InputError

ONE, TWO = "The old baker opens his shop.", "Where did you put the keys?"


@pytest.fixture
def translate(run, model_folder):
    """Run `translate` with the tiny model."""
    return lambda *arguments: run("translate", "--model", model_folder, *arguments)


@pytest.fixture
def attribute(run, model_folder):
    """Run `attribute` with the tiny model."""
    return lambda *arguments: run("attribute", "--model", model_folder, *arguments)


# where sentences come from and results go


def test_sentences_from_arguments_file_and_stdin_are_the_same(translate, tmp_path, monkeypatch) -> None:
    (tmp_path / "in.txt").write_text(f"{ONE}\n{TWO}\n", encoding="utf-8")
    by_arguments = translate(ONE, TWO)
    assert by_arguments.code == 0
    assert by_arguments.out.count("\n") == 2
    assert translate("--input", tmp_path / "in.txt") == by_arguments
    for dash in (["-"], ["--input", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{ONE}\r\n{TWO}\r\n".encode())))
        assert translate(*dash) == by_arguments


def test_stdin_must_be_utf8(translate, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"gr\xfc\xdfe\n"), encoding="latin-1"))
    code, _, err = translate("-")
    expected = "stdin, line 1: byte 3 (0xfc) is not UTF-8; convert the file first"
    assert (code, err) == (2, f"hf-nmt-interp translate: error: {expected}\n")


def test_input_errors(translate, tmp_path) -> None:
    assert translate().err.endswith("no sentences: give them as arguments, in a file with --input, or - for stdin\n")
    assert translate("--input", tmp_path / "none").err.endswith(f"{tmp_path / 'none'}: No such file or directory\n")
    assert "give only one of them" in translate("--input", tmp_path / "none", ONE).err


def test_output_appears_complete_or_not_at_all(translate, attribute, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    assert translate("--output", out, ONE)[:2] == (0, "")
    assert json.loads(out.read_text())["source"] == ONE  # the format comes from the name
    out.write_text("old")
    assert attribute("--output", out, ONE, "a dog " * 60).code == 2
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_output_errors(translate, tmp_path) -> None:
    code, _, err = translate("--output", tmp_path / "none" / "out.txt", ONE)
    assert code == 2
    assert err == (
        f"hf-nmt-interp translate: error: --output: {tmp_path / 'none' / 'out.txt'}: No such file or directory\n"
    )
    assert "Is a directory" in translate("--output", tmp_path, ONE).err


@pytest.mark.parametrize(
    ("verb", "name", "endings"),
    [
        ("attribute", "x.png", ".json, .jsonl, .tsv, .html, .htm or .txt"),
        ("heads", "a.b/x.TSV", ".json, .jsonl, .csv or .txt"),
        ("contributions", "x.html.gz", ".json, .jsonl, .tsv, .html, .htm or .txt"),
    ],
)
def test_unknown_endings_of_outputs_are_refused(run, tmp_path, verb, name, endings) -> None:
    output = tmp_path / name
    output.parent.mkdir(exist_ok=True)
    problem = f"--output: {str(output)!r} does not end in {endings}; use one of these extensions, or set --format"
    ran = run(verb, "--model", tmp_path / "never-loaded", ONE, "--output", output)
    assert ran == (2, "", f"hf-nmt-interp {verb}: error: {problem}\n")
    assert not output.exists()


@pytest.mark.parametrize("verb", ["translate", "align"])
def test_lines_of_text_do_not_go_to_pictures(run, tmp_path, verb) -> None:
    ran = run(verb, "--model", tmp_path / "never-loaded", tmp_path / "x.en", "--output", tmp_path / "x.PNG")
    problem = "has the extension of an image, but the output is text; use another extension, or set --format"
    assert ran == (2, "", f"hf-nmt-interp {verb}: error: --output: {str(tmp_path / 'x.PNG')!r} {problem}\n")


def test_the_demo_writes_pages_only(run, tmp_path) -> None:
    ran = run("demo", "--output", tmp_path / "x.png")
    assert ran.code == 2
    assert "x.png' does not end in .html or .htm; use one of these extensions\n" in ran.err


def test_other_endings_are_for_lines_of_text_or_a_named_format(translate, attribute, tmp_path) -> None:
    for name, begins in (("x.de", ""), ("x.txt", ""), ("x.HTM", "<!doctype html>"), ("x.jsonl", "{")):
        assert translate(ONE, "--output", tmp_path / name).code == 0
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text[: len(begins)] == begins
        assert (ONE in text) == bool(begins)  # lines of text are translations alone
    for name, options in (("x.png", ["--format", "table"]), ("y.txt", []), ("a.b/x", [])):
        (tmp_path / "a.b").mkdir(exist_ok=True)
        assert attribute(ONE, "--output", tmp_path / name, *options).code == 0
        assert "→" in (tmp_path / name).read_text(encoding="utf-8")


def test_devices_and_links_are_written_through(translate, tmp_path) -> None:
    assert translate("--output", "/dev/null", ONE).code == 0
    assert not open("/dev/null", "rb").read()  # noqa: SIM115
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert translate("--output", tmp_path / "link.txt", ONE).code == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() != "old"


# translate


def test_translate_keeps_order_and_empty_lines(translate, model_folder) -> None:
    lines = translate("--batch-size", "1", TWO, "", ONE).out.split("\n")
    assert lines[1] == ""
    assert [lines[0], lines[2]] == translate(TWO, ONE).out.splitlines()
    model, tokenizer = load(str(model_folder))
    inputs = tokenizer([ONE], return_tensors="pt")
    for beams in (1, 3):
        expected = tokenizer.decode(model.generate(**inputs, num_beams=beams)[0], skip_special_tokens=True)
        assert translate("--beams", beams, ONE).out == expected + "\n"


def test_options_of_the_search() -> None:
    parser = argparse.ArgumentParser()
    add_decoding(parser, batch_size=8)
    assert generate_options(parser.parse_args([])) == {"seed": 0}
    given = parser.parse_args(["--beams", "4", "--length-penalty", "0.6"])
    assert generate_options(given) == {"num_beams": 4, "length_penalty": 0.6, "seed": 0}


def test_translate_formats(translate) -> None:
    text = translate(ONE).out.removesuffix("\n")
    assert json.loads(translate("--format", "json", ONE).out) == {"source": ONE, "translation": text}
    assert translate("--format", "tsv", ONE).out == f"source\ttranslation\n{ONE}\t{text}\n"
    assert "translation" in translate("--format", "table", ONE).out
    page = translate("--format", "html", "<script>alert(1)</script>").out
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page


# attribute


def test_attribute_json_is_the_result(attribute, model_folder) -> None:
    code, out, err = attribute("--format", "json", "--tokens", ONE, TWO)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    expected = hni.attribute(*load(str(model_folder)), [ONE, TWO])
    for i, (row, result) in enumerate(zip(rows, expected, strict=True)):
        assert (row["sentence"], row["method"], row["level"]) == (i, "lrp", "token")
        assert (row["source_tokens"], row["target_tokens"]) == (result.source_tokens, result.target_tokens)
        assert row["source_words"] == result.source_side.words
        assert row["conservation_gap"] < 1e-4
        for name in ("source", "prefix", "start", "source_contribution", "log_probs"):
            np.testing.assert_allclose(row[name], getattr(result, name), rtol=1e-5, atol=1e-6)
    words = json.loads(attribute("--format", "json", "--words", "pieces", ONE).out)
    assert words["level"] == "word"
    assert words["source_tokens"] == [*ONE[:-1].split(), ".", "</s>"]
    words = json.loads(attribute("--format", "json", "--punctuation", "attached", ONE).out)
    assert words["source_tokens"] == [*ONE.split(), "</s>"]


def test_attribute_given_targets(attribute, tmp_path) -> None:
    target = "Der alte Bäcker öffnet seinen Laden."
    (tmp_path / "de.txt").write_text(target + "\n", encoding="utf-8")
    by_argument = attribute("--format", "json", ONE, "--target", target)
    assert json.loads(by_argument.out)["target_words"] == [*target[:-1].split(), "."]
    assert attribute("--format", "json", ONE, "--target-file", tmp_path / "de.txt") == by_argument
    code, _, err = attribute(ONE, TWO, "--target", target)
    expected = "hf-nmt-interp attribute: error: --target: 1 targets for 2 sentences; give one per sentence\n"
    assert (code, err) == (2, expected)


def test_attribute_tsv_has_every_score(attribute) -> None:
    options = (ONE, "--target", "Ein Hund.")
    whole = json.loads(attribute("--format", "json", *options).out)
    header, *lines = attribute("--format", "tsv", *options).out.splitlines()
    assert header.split("\t") == ["sentence", "step", "target", "side", "position", "token", "score"]
    sums = {"source": 0.0, "prefix": 0.0, "start": 0.0}
    for line in lines:
        sentence, step, target, side, position, token, score = line.split("\t")
        assert sentence == "0"
        assert target == whole["target_tokens"][int(step)]
        if side != "start":
            assert token == whole["source_tokens" if side == "source" else "target_tokens"][int(position)]
        sums[side] += float(score)
    for side, total in sums.items():
        assert total == pytest.approx(np.sum(whole[side]), abs=1e-5)


def test_attribute_table_and_page(attribute, tmp_path, monkeypatch) -> None:
    code, out, _ = attribute(ONE, TWO, "--target", "Ein Hund.", "--target", "Zwei Kinder.")
    assert code == 0
    assert all(word in out for word in ("Hund", "Kinder", "from the source", "most relevant", "log p"))
    assert attribute(ONE, "--output", tmp_path / "page.html") == (0, "", "")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<!doctype html>" in page
    assert '"links":[[' in page
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert f"Wrote {tmp_path / 'page.html'}: open it" in attribute(ONE, "--output", tmp_path / "page.html").err


TEA = ("attribute", "--method", "saliency", "--target", "Ich mag Tee.", "I like tea.")  # the bundled translator


def test_attribute_contrasts_a_word_a_token_or_a_translation(run) -> None:
    texts = ("Tee=Kaffee", "#2=▁Kaffee", "Ich mag Kaffee.")
    found = [run(*TEA, "--format", "json", "--contrast", text) for text in texts]
    assert found[0].code == 0
    assert json.loads(found[0].out)["contrast"] == [None, None, "Kaffee", None, None]
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_attribute_contrast_on_a_page(run, tmp_path) -> None:
    assert run(*TEA, "--contrast", "Tee=Kaffee", "--output", tmp_path / "tea.html").code == 0
    page = (tmp_path / "tea.html").read_text(encoding="utf-8")
    shown = json.loads(page.split('id="data">')[1].split("</script>")[0])[0]["views"][0]["word"]
    assert (shown["contrast"], shown["diverges"]) == ([None, None, "Kaffee", None, None], False)


def test_attribute_methods_and_settings(attribute) -> None:
    row = json.loads(attribute("--format", "json", "--method", "attention", "--set", "layer=0", ONE).out)
    assert (row["method"], row["settings"], row["conservation_gap"]) == ("attention", {"layer": 0}, None)
    listed = attribute("--list-methods").out
    assert all(text in listed for text in ("lrp: ", "attention: ", "--set alpha=1.0", "--set head=null"))


def test_attribute_compares_methods_on_one_translation(attribute, tmp_path) -> None:
    methods = ("--method", "lrp", "--method", "attention:layer=0,head=1")
    rows = [json.loads(line) for line in attribute("--format", "json", *methods, ONE, TWO).out.splitlines()]
    assert [(row["sentence"], row["method"]) for row in rows] == [
        (0, "lrp"), (0, "attention"), (1, "lrp"), (1, "attention"),
    ]  # fmt: skip
    assert rows[1]["settings"] == {"layer": 0, "head": 1}
    assert rows[0]["target_tokens"] == rows[1]["target_tokens"]
    lines = attribute("--format", "tsv", *methods, ONE).out.splitlines()
    assert lines[0].split("\t")[:3] == ["sentence", "model", "method"]
    assert {line.split("\t")[2] for line in lines[1:]} == {"lrp", "attention (layer 0, head 1)"}
    out = attribute(*methods, ONE).out
    assert "attention (layer 0, head 1)" in out
    assert "Methods: lrp (relevance" in out
    assert attribute(*methods, "--output", tmp_path / "page.html", ONE, TWO).code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count('<article class="card"') == 2
    assert '<option value="attention (layer 0, head 1)">' in page


def test_attribute_compares_models(run, model_folder, gated_folder) -> None:
    models = ("--model", model_folder, "--model", f"pruned={gated_folder}", "--target", "Ein Hund.")
    rows = [json.loads(line) for line in run("attribute", "--format", "json", *models, ONE).out.splitlines()]
    assert [row["model"] for row in rows] == [model_folder.name, "pruned"]
    assert rows[0]["source"] != rows[1]["source"]
    page = run("attribute", "--format", "html", *models, ONE).out
    assert page.count('<article class="card"') == 1
    assert '<option value="pruned: lrp">' in page
    err = run("attribute", "--model", model_folder, "--model", model_folder, ONE).err
    assert f"--model: two models are called '{model_folder.name}'; give labels" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--method", "lrp", "--method", "attention", "--set", "layer=0"],
            "--set: is ambiguous with 2 methods; write",
        ),
        (["--method", "attention:head=x"], "--method: head=x is not of type int"),
        (["--method", "magic"], "--method: 'magic' is not one of lrp, alti"),
        (["--set", "alpha"], "--set: 'alpha' is not name=value, e.g. rule=..."),
        (["--set", "model=1"], "--set: method 'lrp' has no setting 'model'; it has rule, alpha, beta"),
        (["--set", "alpha=much"], "--set: alpha=much is not of type float"),
        (["--set", "rule=delta"], "rule: 'delta'"),
        (["--method", "attention", "--set", "head=true"], "--set: head=true is not of type int or null"),
        (["--method", "attention", "--set", "layer=7"], "layer: 7 is out of range"),
        (["--contrast", "#2="], "--contrast[0]: '#2=' has no token after the index; write e.g. \"#2=▁Kaffee\""),
        (["--contrast", "#99=a"], "contrast[0]: 99 is out of range: the translation has"),
        (["--contrast", "#0=no token"], "contrast[0]: 'no token' is not a token of the tokenizer; see"),
        (["--contrast", "a", "--contrast", "b"], "--contrast: 2 contrasts for 1 sentences; give one per sentence"),
    ],
)
def test_attribute_errors(attribute, arguments, message) -> None:
    code, _, err = attribute(ONE, *arguments)
    assert code == 2
    assert err.startswith(f"hf-nmt-interp attribute: error: {message}")
    assert err.count("\n") == 1


def test_settings_are_read_by_their_type() -> None:
    given = ["rule=epsilon", "alpha=2", "beta=-1.5", "max_memory=1024"]
    assert parse_method_settings("lrp", given) == {"rule": "epsilon", "alpha": 2.0, "beta": -1.5, "max_memory": 1024}
    assert parse_method_settings("attention", ["head=null", "shifted=true"]) == {"head": None, "shifted": True}
    with pytest.raises(InputError, match="not of type bool"):
        parse_method_settings("attention", ["shifted=1"])


# env and demo


def test_env(run) -> None:
    code, text, _ = run("env")
    assert code == 0
    found = json.loads(run("env", "--json").out)
    assert found["hf_nmt_interp"] == hni.__version__
    for name in ("python", "platform", "torch", "transformers", "bundled translators"):
        assert name in found
        assert name in text
    assert found["torch"] in text


def test_demo_writes_a_page(run, model_folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("demo", "--model", model_folder)
    assert (code, err) == (0, "")
    page = (tmp_path / "demo.html").read_text(encoding="utf-8")
    for sentence in ("The cat is sleeping on the sofa.", "Can you help me tomorrow?"):
        assert sentence in page
    assert "Wrote demo.html" in out
    assert (tmp_path / "demo.html").as_uri() in out
    assert max(map(len, out.split("\nWrote")[0].splitlines())) <= 80


def test_demo_replaces_pages_of_demos_and_no_other_file(run, model_folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "demo.html"
    page.write_text("<title>mine</title>", encoding="utf-8")
    code, out, err = run("demo", "--model", tmp_path / "none", "A cat.")
    assert (code, out) == (2, "")
    problem = "demo.html exists and is not a page of the demo; name another file, e.g. --output demo-2.html"
    assert err == f"hf-nmt-interp demo: error: --output: {problem}\n"
    assert page.read_text(encoding="utf-8") == "<title>mine</title>"
    for arguments in (["--output", "demo.html", "A cat."], ["A dog."]):  # named, then the page of an earlier demo
        assert run("demo", "--model", model_folder, *arguments).code == 0
        assert arguments[-1] in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("direction", "word"), [("en-de", "Katze"), ("de-en", "cat")])
def test_demo_with_the_box(run, tmp_path, direction, word) -> None:
    from hf_nmt_interp.models.demo import box

    if direction not in box():
        pytest.skip(f"the box has no demo:{direction}")
    code, out, err = run("demo", "--language", direction, "--output", tmp_path / "demo.html")
    assert (code, err) == (0, "")
    assert f"{word}²" in out
    assert out.splitlines()[-1].startswith("Next: hf-nmt-interp demo")


def test_the_demo_has_a_language_or_a_model(run, model_folder) -> None:
    assert "not allowed with argument" in run("demo", "--language", "de-en", "--model", model_folder).err
    assert "invalid choice: 'fr-de'" in run("demo", "--language", "fr-de").err
    assert "does not name a model" in run("demo", "--model", "").err


def test_attribute_shows_heads_on_a_page_only(attribute, tmp_path) -> None:
    page = tmp_path / "heads.html"
    methods = ("--method", "attention", "--method", "saliency")
    for model in ((), ("--model", "demo:en-de")):  # the heads of the first model
        code, _, err = attribute(*model, "--heads", "--output", page, *methods, ONE, TWO)
        assert (code, err) == (0, "")
        assert page.read_text(encoding="utf-8").count('"Cross-attention"') == 2  # of each card
    assert attribute("--heads", ONE).err.endswith("--heads: only a page shows them; add --output page.html\n")
    assert (
        "--heads: is not supported with --shards"
        in attribute("--heads", "--shards", tmp_path / "s", "--input", page).err
    )
