"""Reports: HTML pages, figures and model cards."""
