"""Reads the engines' samples from Prometheus, as cumulative values per pod, for all pools of a backend at once."""
