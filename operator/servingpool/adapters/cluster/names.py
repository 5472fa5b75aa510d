"""Whose a pod was, by its name: all that is left of the pods of the past."""

from __future__ import annotations

import re

LONGEST_BASE, DRAWN = 58, 5
"""Characters of a ReplicaSet's name, and the dash behind it, with which its pods' names begin; and of those drawn for
each, 63 in all (`SimpleNameGenerator` of Kubernetes)."""
LONGEST_HASH = 10
"""What stands behind a Deployment's name and a dash in its ReplicaSets' names, at most."""
ALPHABET = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes draws and hashes with: no vowels, and no digits that look like one."""


def pods_of(deployment: str) -> str:
    """A regular expression, as RE2 and Python have it, that the whole names of a Deployment's pods match.

    Those of a Job, a StatefulSet or a Deployment that begins with the same word do not; but where a long name is cut,
    those of another that is as long may.
    """
    own = f"{deployment}-"[:LONGEST_BASE]
    room = LONGEST_BASE - len(own)
    drawn = f"{ALPHABET}{{{DRAWN}}}"
    if room == 0:
        return f"{re.escape(own)}{drawn}"
    dash = "-" if room > LONGEST_HASH else "-?"
    return f"{re.escape(own)}{ALPHABET}{{1,{min(room, LONGEST_HASH)}}}{dash}{drawn}"
