"""Whose a pod was, by its name: all that is left of the pods of the past."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from servingpool.adapters.cluster.kinds import DEPLOYMENT, ORDINAL, Sort

LONGEST_BASE, DRAWN = 58, 5
"""Characters of a ReplicaSet's name, and the dash after it, with which its pods' names begin; and of those drawn for
each, 63 in all (`SimpleNameGenerator` of Kubernetes)."""
LONGEST_HASH = 10
"""Characters after a Deployment's name and a dash in its ReplicaSets' names, at most."""
ALPHABET = "[bcdfghjklmnpqrstvwxz2456789]"
"""Characters that Kubernetes draws and hashes with: no vowels, and no digits that look like vowels."""


def pods_of_any(targets: Iterable[tuple[str, Sort]]) -> str:
    """A short regular expression, for RE2, that the pods of all these match, and few others.

    It stands in each selector of a query, and VictoriaMetrics takes 16 KiB of that.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, sort in targets:
        own, room = _beginning(name)
        if sort == DEPLOYMENT and room > LONGEST_HASH:
            found["-[^-]+-[^-]+"].add(_literal(name))
        elif sort in ORDINAL:
            found["-[0-9]+"].add(_literal(name))
        else:
            found[".+"].add(_literal(own))
    return "|".join(f"(?:{'|'.join(sorted(found[ending]))}){ending}" for ending in sorted(found))


def pods_of(name: str, sort: Sort = DEPLOYMENT) -> str:
    """A regular expression that the whole names of a target's pods match.

    Of a Deployment: those of a StatefulSet or of a Deployment that begins with the same word do not. Those of a Job or
    a DaemonSet that is called like a ReplicaSet may, and where a long name is cut, those of another Deployment.
    Of a StatefulSet, and the leaders of a LeaderWorkerSet: the name and a number. Of another kind: any that begin so.
    """
    own, room = _beginning(name)
    if sort in ORDINAL:
        return f"{re.escape(name)}-[0-9]+"
    if sort != DEPLOYMENT:
        return f"{re.escape(own)}.+"
    drawn = f"{ALPHABET}{{{DRAWN}}}"
    if room == 0:
        return f"{re.escape(own)}{drawn}"
    dash = "-" if room > LONGEST_HASH else "-?"
    return f"{re.escape(own)}{ALPHABET}{{1,{min(room, LONGEST_HASH)}}}{dash}{drawn}"


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\-", "-")


def _beginning(name: str) -> tuple[str, int]:
    """Beginning of all the pods' names, and the characters that are left for a hash and the dash after it."""
    own = f"{name}-"[:LONGEST_BASE]
    return own, LONGEST_BASE - len(own)
