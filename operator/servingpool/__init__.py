"""ServingPool: a Kubernetes operator that holds an LLM latency SLO at minimum fleet size."""
