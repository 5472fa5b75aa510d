"""The operator as it ships, but what it does once a minute it does each 2 s: `python hurried.py run ...`."""

from __future__ import annotations

from servingpool.cli.main import app
from servingpool.loop import operator

operator.FORGET_EVERY = 2.0

if __name__ == "__main__":
    app()
