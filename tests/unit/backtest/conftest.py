"""Histories are written as the benchmark writes them; its folder holds scripts, not a package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3] / "benchmarks")]
