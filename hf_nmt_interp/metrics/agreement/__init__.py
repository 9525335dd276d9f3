"""Agreement of two scores of positions, as functions (`score`) and as an `evaluate` module: load this folder."""
