"""Decoding: translations as ids, force-decoded or caught from `generate()`."""
