"""The verbs `aer`, `best-attention` and `translate --markup`.

Also for cli/verbs/aer.py and cli/verbs/best_attention.py.
"""

import json

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.own_attention import AttentionChoice
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.pharaoh import format_links
from tests.tiny_tokenizers import ENGLISH, GERMAN


class TestAER:
    @pytest.fixture
    def gold(self, tmp_path):
        (tmp_path / "gold").write_text("1-1 2p2\n1-1\n")
        (tmp_path / "hyp").write_text("0-0 1-1\n1-1\n")
        return tmp_path / "gold", tmp_path / "hyp"

    def test_rates(self, run, gold) -> None:
        code, out, _ = run("aer", *gold, "--gold-base", 1, "--format", "json")
        rates = hni.alignment_error_rate([{(0, 0), (1, 1)}, {(1, 1)}], [{(0, 0)}, {(0, 0)}], [{(1, 1)}, set()])
        row = json.loads(out)
        assert code == 0
        assert {name: row[name] for name in rates} == {name: pytest.approx(rate) for name, rate in rates.items()}
        assert (row["sentences"], row["links"], row["sure"]) == (2, 3, 2)
        assert "precision" in run("aer", *gold, "--gold-base", 1).out

    def test_errors(self, run, gold, tmp_path) -> None:
        (tmp_path / "short").write_text("0-0\n")
        assert "1 lines, but" in run("aer", gold[0], tmp_path / "short").err
        assert run("aer", gold[0], gold[1], "--base", 1).code == 2  # 0-0 where words count from 1

    def test_figure(self, run, gold, tmp_path) -> None:
        for name, text in (("en", "A dog.\nOne two.\n"), ("de", "Ein Hund.\nEins zwei.\n"), ("short", "One\n")):
            (tmp_path / name).write_text(text)
        figure = ("aer", *gold, "--gold-base", 1, "--figure", tmp_path / "pairs.svg")
        assert run(*figure, "--text", tmp_path / "en", tmp_path / "de", "--pairs", 2).code == 0
        assert "0,1,1,two.,zwei.,0.0,True," in (tmp_path / "pairs.csv").read_text()
        assert "--figure: needs the words of the sentences; give --text" in run(*figure).err
        short = run(*figure, "--text", tmp_path / "en", tmp_path / "short").err
        assert f"{tmp_path / 'short'}, line 2: missing; " in short
        many = run(*figure, "--text", tmp_path / "en", tmp_path / "de", "--pairs", 3).err
        assert "--pairs: line 3 is out of range" in many


class TestBestAttention:
    @pytest.fixture
    def best(self, run, model_folder, tiny, short_files, tmp_path):
        """Run `best-attention` with gold links that one head of the tiny model gives."""
        links = hni.align(*tiny, ENGLISH, GERMAN, method="attention", layer=1, head=1)
        (tmp_path / "gold").write_text("".join(f"{format_links(pair)}\n" for pair in links))
        start = "best-attention", "--model", model_folder, "--gold", tmp_path / "gold", *short_files
        return lambda *arguments: run(*start, *arguments)

    def test_the_best_head_is_found_and_saved(self, run, best, model_folder, short_files, tmp_path) -> None:
        files = short_files
        code, out, err = best("--format", "json", "--top", 3, "--save", tmp_path / "best")
        assert (code, err) == (0, "")
        rows = [json.loads(line) for line in out.splitlines()]
        assert rows[0] == {"layer": 1, "head": 1, "shifted": False, "aer": 0}
        assert len(rows) == 3
        assert all(row["aer"] > 0 for row in rows[1:])
        chosen = "--method", "attention", "--set", "layer=1", "--set", "head=1"
        assert (
            run("align", "--model", tmp_path / "best", *files)
            == run("align", "--model", model_folder, *chosen, *files)
            != run("align", "--model", model_folder, "--method", "attention", *files)
        )
        assert "exists and is not empty; name a new folder" in best("--save", tmp_path / "best").err

    def test_a_table_by_default(self, best) -> None:
        code, out, err = best()
        assert (code, err) == (0, "")
        _, head, _, *rows, _ = out.splitlines()
        assert head.split() == ["layer", "head", "shifted", "aer"]
        assert len(rows) == 10

    def test_alignment_heads_for_ctranslate2(self, best, tiny, tmp_path) -> None:
        ran = best("--ctranslate2")
        assert (ran.code, json.loads(ran.out)) == (0, {"alignment_heads": [[1, 1]]})
        best("--ctranslate2", "--output", tmp_path / "heads.json")
        assert (tmp_path / "heads.json").read_text() == ran.out
        number = tiny[0].config.decoder_attention_heads
        mean = AttentionChoice(0, None, False, 0.1).ctranslate2(tiny[0])
        assert mean == {"alignment_heads": [[0, head] for head in range(number)]}
        with pytest.raises(InputError, match="shifted: CTranslate2 returns the attention of the step that predicts"):
            AttentionChoice(0, None, True, 0.1).ctranslate2(tiny[0])

    def test_errors(self, best, tmp_path) -> None:
        gold, target = tmp_path / "gold", tmp_path / "in.de"
        assert f"--save: {gold}: Not a directory" in best("--save", gold).err
        assert "--save: '' exists and is not empty" in best("--save", "").err  # of a variable that is not set
        gold.write_text("0-0\n")
        assert f"{gold}: 1 lines" in best().err
        (tmp_path / "in.en").write_text("A\n")
        for count, message in ((600, "sentence 1, target: 601 tokens"), (63, "shifted weights need one more")):
            target.write_text("a " * count + "\n")
            code, out, err = best()
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert message in err


def test_translate_with_markup(run, model_folder, tiny) -> None:
    source = "Two <b>children</b> are <br/> looking for {0} shells."
    code, out, err = run(
        "translate", "--model", model_folder, "--markup", "--align", "attention", source, "", "A dog."
    )
    assert (code, err) == (0, "")
    first, empty, plain, _ = out.split("\n")
    assert empty == ""
    assert all(first.count(item) == 1 for item in ("<b>", "</b>", "<br/>", "{0}"))
    texts = hni.align_words(*tiny, [hni.strip_markup(source), "A dog."], method="attention")
    assert [hni.strip_markup(first), plain] == [alignment.target_text for alignment in texts]
    lines = "--markup", "--align", "attention", "A dog.", "<b>A", "A dog."
    code, out, err = run("translate", "--model", model_folder, *lines)
    assert code == 0
    assert out.split("\n") == [plain, "<b>A", plain, ""]
    assert "line 2: source: <b> is not closed; write &lt; for < that is not a tag; wrote it untranslated" in err
    code, _, err = run("translate", "--model", model_folder, "--strict", *lines)
    assert code == 2
    assert "line 2: source: <b> is not closed" in err
