"""Analysis of attributions, attention and models over a whole dataset."""
