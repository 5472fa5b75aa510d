"""One emulated vLLM replica as a process of its own: real sockets, real time, the step model's speed.

`python -m servingpool_lab.engine_pod` is what a pod of the end-to-end tests runs. It starts without numba:
one engine at wall time needs no machine code.
"""
