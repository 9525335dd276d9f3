"""Studies: what runs several models or settings and gives the rows of a paper's table."""

PREFIXES = ("reference", "model", "random")  # here because `studies.contribution_study` takes long to import
