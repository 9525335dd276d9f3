"""Kinds of attention in an encoder-decoder; a separate module, so importing them is cheap."""

KINDS = ("encoder", "decoder", "cross")
