"""kopf's handlers: they put what the watches show into the cache, and start and stop the operator."""
