"""A comparison of policies as people read it: a sentence, a table, plots, a page."""
