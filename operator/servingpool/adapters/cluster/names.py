"""Whose a pod was, by its name: all that is left of the pods of the past."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

LONGEST_BASE, DRAWN = 58, 5
"""Characters of a ReplicaSet's name, and the dash after it, with which its pods' names begin; and of those drawn for
each, 63 in all (`SimpleNameGenerator` of Kubernetes)."""
LONGEST_HASH = 10
"""What stands after a Deployment's name and a dash in its ReplicaSets' names, at most."""
ALPHABET = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes draws and hashes with: no vowels, and no digits that look like one."""


def pods_of_any(deployments: Iterable[str]) -> str:
    """A short regular expression, for RE2, that the pods of all these match, and few others.

    It stands in each selector of a query, and VictoriaMetrics takes 16 KiB of that.
    """
    found: defaultdict[bool, set[str]] = defaultdict(set)
    for name in deployments:
        own, room = _beginning(name)
        cut = room <= LONGEST_HASH
        found[cut].add(re.escape(own if cut else name).replace(r"\-", "-"))
    endings = {False: "-[^-]+-[^-]+", True: ".+"}
    return "|".join(f"(?:{'|'.join(sorted(found[cut]))}){endings[cut]}" for cut in sorted(found))


def pods_of(deployment: str) -> str:
    """A regular expression that the whole names of a Deployment's pods match.

    Those of a StatefulSet or of a Deployment that begins with the same word do not. Those of a Job or a DaemonSet that
    is called like a ReplicaSet may, and where a long name is cut, those of another Deployment.
    """
    own, room = _beginning(deployment)
    drawn = f"{ALPHABET}{{{DRAWN}}}"
    if room == 0:
        return f"{re.escape(own)}{drawn}"
    dash = "-" if room > LONGEST_HASH else "-?"
    return f"{re.escape(own)}{ALPHABET}{{1,{min(room, LONGEST_HASH)}}}{dash}{drawn}"


def _beginning(deployment: str) -> tuple[str, int]:
    """What all its pods' names begin with, and the characters that are left for a hash and the dash after it."""
    own = f"{deployment}-"[:LONGEST_BASE]
    return own, LONGEST_BASE - len(own)
