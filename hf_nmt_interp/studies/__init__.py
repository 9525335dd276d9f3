"""Studies: run several models or settings to compute the rows of a paper's table."""
