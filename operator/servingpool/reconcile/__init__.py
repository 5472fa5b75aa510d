"""One loop over all pools: look, decide, act, tell."""
