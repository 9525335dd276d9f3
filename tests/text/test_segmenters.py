"""Words by name."""

import sys
from types import SimpleNamespace

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.segmenters import word_rule


def test_names():
    assert word_rule("pieces") == "pieces"
    with pytest.raises(InputError, match="words: 'mecab' is not one of pieces, spaces, jieba"):
        word_rule("mecab")


def test_a_segmenter_of_another_package(monkeypatch):
    quiet = []
    fake = SimpleNamespace(lcut=lambda text: [text[:2], text[2:]], setLogLevel=quiet.append)
    monkeypatch.setitem(sys.modules, "jieba", fake)
    assert word_rule("jieba")("我们买") == ["我们", "买"]
    assert quiet == ["WARNING"]


def test_a_package_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(
        InputError, match=r"words: 'jieba' is not installed; pip install -c constraints.txt -e \"\.\[words\]\""
    ):
        word_rule("jieba")
