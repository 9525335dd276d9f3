"""Pieces of byte-level BPE: every byte has its character."""

from hf_nmt_interp.text.byte_level import show_byte_level, spell_byte_level


def test_added_tokens_are_spelt_as_they_are():
    assert spell_byte_level("日本").decode() == "日本"
    assert show_byte_level("ĠÃ¼ber") == "Ġüber"
