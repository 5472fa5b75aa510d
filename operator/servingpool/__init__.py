"""ServingPool: a Kubernetes operator that holds an LLM latency SLO at minimum fleet size."""

__version__ = "0.1.0"
"""Of the operator, the simulation and the lab."""
