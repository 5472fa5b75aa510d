"""A read-only page on localhost: all ServingPools, and each one's decisions. `servingpool dashboard` serves it."""
