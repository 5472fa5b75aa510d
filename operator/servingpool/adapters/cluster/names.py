"""Whose a pod was, by its name: all that is left of the pods of the past."""

from __future__ import annotations

import re

LONGEST_BASE = 58
"""Characters of a ReplicaSet's name, and the dash behind it, with which its pods' names begin: 63 less those drawn
(`SimpleNameGenerator` of Kubernetes)."""
DRAWN = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes draws names from: no vowels, and no digits that look like one."""
POD = re.compile(f"(?P<base>.*){DRAWN}{{5}}")
REVISION = re.compile(f"{DRAWN}{{1,10}}")
"""What stands behind a Deployment's name and a dash in its ReplicaSets' names."""


def beginning(deployment: str) -> str:
    """What the names of all its pods begin with."""
    return f"{deployment}-"[:LONGEST_BASE]


def may_be_of(deployment: str, pod: str) -> bool:
    """Whether a pod of this Deployment could be called so; where a long name is cut, a pod of another could too."""
    found = POD.fullmatch(pod)
    if found is None:
        return False
    own, base = f"{deployment}-", found["base"]
    cut = len(base) == LONGEST_BASE
    if cut and own.startswith(base):
        return True
    revision = base.removeprefix(own)
    whole = revision.endswith("-")
    return revision != base and (whole or cut) and REVISION.fullmatch(revision.removesuffix("-")) is not None
