"""Metrics, most of them also `evaluate` modules."""
