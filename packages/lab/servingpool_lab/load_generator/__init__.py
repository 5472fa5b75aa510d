"""Open-loop traffic against an OpenAI-style endpoint, every request judged as its client saw it.

`python -m servingpool_lab.load_generator` is what the load generator's pod of the end-to-end tests runs.
"""
