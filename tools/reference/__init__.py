"""Writes the reference pages that are generated: `python -m reference`, by `make generate`."""
