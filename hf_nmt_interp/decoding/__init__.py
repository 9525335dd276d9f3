"""Sentence pairs: encoded, force-decoded or translated, checked and batched; what `generate()` made, caught."""
