"""CoNLL-U: multiword tokens, empty nodes, comments, and errors that name file and line."""

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.conllu import Sentence, read_conllu

GERMAN = """\
# sent_id = 1
# text = Sie war am Meer.
1\tSie\tsie\tPRON\t_\t_\t5\tnsubj\t_\t_
2\twar\tsein\tAUX\t_\t_\t5\tcop\t_\t_
3-4\tam\t_\t_\t_\t_\t_\t_\t_\t_
3\tan\tan\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
4.1\tschönen\tschön\tADJ\t_\t_\t_\t_\t5:amod\t_
5\tMeer\tMeer\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t_\t_\t5\tpunct\t_\t_
"""
ENGLISH = "1\tDogs\tdog\tNOUN\t_\t_\t2\tnsubj:pass\t_\t_\n2\tbark\tbark\tVERB\t_\t_\t0\troot\t_\tA=b|SpaceAfter=No"


def read(tmp_path, content: str) -> list[Sentence]:
    (tmp_path / "x.conllu").write_bytes(content.encode())
    return list(read_conllu(tmp_path / "x.conllu"))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_sentences(tmp_path, newline):
    german, english = read(tmp_path, f"\n{GERMAN}\n\n{ENGLISH}".replace("\n", newline))
    assert german == Sentence(
        words=["Sie", "war", "an", "dem", "Meer", "."],
        heads=[4, 4, 4, 4, None, 4],
        deprels=["nsubj", "cop", "case", "det", "root", "punct"],
        upos=["PRON", "AUX", "ADP", "DET", "NOUN", "PUNCT"],
        text="Sie war am Meer.",
        tokens=["Sie", "war", "am", "Meer", "."],
        token_ids=[0, 1, 2, 2, 3, 4],
    )
    assert english.words == english.tokens == ["Dogs", "bark"]
    assert english.deprels == ["nsubj:pass", "root"]
    assert english.text == "Dogs bark"


def test_text_without_its_comment(tmp_path):
    (sentence,) = read(tmp_path, GERMAN.replace("# text", "# not_text"))
    assert sentence.text == "Sie war am Meer."


def test_no_sentence(tmp_path):
    assert read(tmp_path, "\n\n") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2\twar\tsein", "2\twar sein", "line 4: 9 columns, not 10 separated by tabs"),
        ("2\twar", "3\twar", "line 4: ID '3' instead of word 2"),
        ("2\twar", "x\twar", "line 4: ID 'x' instead of word 2"),
        ("3-4\t", "4-5\t", "line 5: multiword token 4-5 instead of word 3"),
        ("3-4\t", "3-2\t", "line 5: multiword token 3-2 instead of word 3"),
        ("3-4\t", "3-7\t", "line 10: the multiword token continues to word 7"),
        ("\t0\troot", "\t_\troot", "line 9: HEAD '_' is not a number; the file must have trees"),
        ("\t0\troot", "\t7\troot", "line 9: HEAD 7 of word 5 must be another word of the sentence"),
        ("\t0\troot", "\t5\troot", "line 9: HEAD 5 of word 5 must be another word of the sentence"),
    ],
)
def test_errors_name_file_and_line(tmp_path, old, new, message):
    with pytest.raises(InputError, match=rf"x\.conllu, {message}"):
        read(tmp_path, GERMAN.replace(old, new))


@pytest.mark.data
@pytest.mark.parametrize("language", ["en", "de"])
def test_real_trees(data_dir, language):
    sentences = list(read_conllu(data_dir / "ud" / f"{language}_pud-ud-test.conllu"))
    assert len(sentences) == 1000
    for sentence in sentences:
        assert sentence.heads.count(None) == 1
        assert "".join(sentence.tokens) == sentence.text.replace(" ", "")
        assert len(sentence.token_ids) == len(sentence.words) == len(sentence.upos) == len(sentence.deprels)
