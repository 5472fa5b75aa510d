"""Autoscalers that really run, at once on one local control plane, under the same traffic: `make rivals`."""
