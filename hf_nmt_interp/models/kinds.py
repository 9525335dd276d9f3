"""Kinds of attention in an encoder-decoder; a module of its own, so that naming them imports nothing."""

KINDS = ("encoder", "decoder", "cross")
