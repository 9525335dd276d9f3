"""Smoothed sentence BLEU, as a class (`score`) and as an `evaluate` module: `evaluate.load` of this folder's path."""
