"""Sentence pairs: encoded, force decoded or translated, checked and batched; recorded `generate()` calls."""
