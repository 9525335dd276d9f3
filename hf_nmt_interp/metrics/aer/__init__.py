"""Alignment error rate, as a function (`rate`) and as an `evaluate` module: `evaluate.load` of this folder's path."""
