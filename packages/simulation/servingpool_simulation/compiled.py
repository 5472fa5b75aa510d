"""numba where it is installed, plain Python where it is not: the same functions, only slower."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

HERE = Path(__file__).parent
SOURCES = ("balancer.py", "compiled.py", "hardware.py", "kernel.py", "page.py", "tables.py", "upgrade.py")
"""What the machine code depends on."""

try:
    import numba
except ImportError:
    COMPILED = False

    def compiled(function: F) -> F:
        """Leave the function as it is: numba (extra `simulation`) is not installed."""
        return function

else:
    COMPILED = True

    # numba's cache looks at the time stamp of a function's own file alone: after a change of a constant or
    # a callee in another file it would go on with stale code. So each state of the sources has its own folder.
    if not numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        _fingerprint = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in SOURCES)).hexdigest()[:16]
        numba.config.CACHE_DIR = str(  # type: ignore[attr-defined]
            HERE / "__pycache__" / f"numba-{_fingerprint}"
        )

    def compiled(function: F) -> F:
        """Compile the function on its first call; the machine code is cached on disk.

        No fastmath: the compiled and the interpreted model must agree to the last bit.
        """
        return cast("F", numba.njit(cache=True, error_model="numpy")(function))
