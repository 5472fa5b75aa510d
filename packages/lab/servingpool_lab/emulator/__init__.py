"""The vLLM fleet behind the pods: kwok says that they run, this process answers for what they do.

One process serves every pod's `/metrics` as vLLM 0.32 prints it. Requests of a recorded trace arrive at wall
time, go to the pods that are Ready in the API server, and are run by the engine model of `servingpool_simulation`.
What really happened to each request is at `/truth`, which the operator never sees.
"""
