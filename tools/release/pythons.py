"""What Pex needs to know of each Python that the one file is for: `python -m release.pythons TO 3.11 3.12`.

The wheels are for this machine's platform. Those Pythons need not be here, so their tags are computed.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.tags import compatible_tags, cpython_tags, platform_tags


def described(version: str) -> dict[str, Any]:
    """CPython of a minor version, such as `3.12`, as a file for `pex --complete-platform`."""
    major, minor = map(int, version.split("."))
    name, platforms = f"cp{major}{minor}", list(platform_tags())
    tags = [*cpython_tags((major, minor), [name], platforms), *compatible_tags((major, minor), name, platforms)]
    return {
        "compatible_tags": [str(tag) for tag in tags],
        "marker_environment": {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": platform.machine(),
            "platform_python_implementation": "CPython",
            "platform_release": platform.release(),
            "platform_system": platform.system(),
            "platform_version": platform.version(),
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": sys.platform,
        },
    }


def main(to: Path, versions: Sequence[str]) -> None:
    """A file for each version."""
    to.mkdir(parents=True, exist_ok=True)
    for version in versions:
        (to / f"{version}.json").write_text(json.dumps(described(version)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
