"""Writes what is generated of the chart, and the plain manifests from it: `python -m chart`, by `make generate`."""
