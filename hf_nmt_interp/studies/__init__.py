"""Studies: what runs several models or settings and gives the rows of a paper's table."""
