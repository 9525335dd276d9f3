"""Analysis: what attributions, attentions and models say about a whole data set."""
