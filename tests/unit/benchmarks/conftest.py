"""The benchmark is a folder of scripts, not a package: its modules are found as a script finds its neighbours."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "control")]
