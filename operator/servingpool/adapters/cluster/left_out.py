"""Objects of the cluster that are not read, or in part: left out, counted, and named to the pools around them."""

from __future__ import annotations

import functools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import islice
from typing import Any

from servingpool.adapters.cluster import input_limits
from servingpool.adapters.cluster.errors import said
from servingpool.adapters.cluster.objects import Key, Raw, Unreadable, key_of

log = logging.getLogger(__name__)


class LeftOut:
    """Parts of objects that are not read, with the reasons."""

    def __init__(self) -> None:
        self._found: defaultdict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        """Reasons by namespace, and there by kind and name."""

    def __len__(self) -> int:
        """Number of namespaces with such objects."""
        return len(self._found)

    def note(self, kind: str, key: Key, why: str) -> None:
        """This object is not read, or in part."""
        self._found[key[0]][kind, key[1]] = why

    def forget(self, kind: str, key: Key) -> str | None:
        """This object is read in full, or gone. Why it was not before; None where it was."""
        namespace, name = key
        before = self._found.get(namespace, {}).pop((kind, name), None)
        if not self._found.get(namespace, True):
            del self._found[namespace]
        return before

    def why(self, kind: str, key: Key) -> str | None:
        """Why this object is not read; None where it is."""
        return self._found.get(key[0], {}).get((kind, key[1]))

    def around(self, namespace: str) -> tuple[list[str], int]:
        """Some of a namespace's objects with their reasons, kinds of the whole cluster first, and the number of all."""
        found = self._found.get("", {}) | self._found.get(namespace, {})
        told = (f"{kind} {name}: {why}" for (kind, name), why in found.items())
        return list(islice(told, input_limits.TOLD)), len(found)

    def kinds(self) -> Counter[str]:
        """How many there are of each kind. May be called by another thread."""
        return Counter(kind for names in list(self._found.values()) for kind, _ in list(names))


def tolerant(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a method that takes in objects of this kind.

    An object that the method cannot read is left out and noted; other objects are still read.
    """

    def decorated(see: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(see)
        def seen(cache: Any, raw: Raw, *, gone: bool) -> None:
            key, own = key_of(raw), "ScaledObject" if raw.get("kind") == "ScaledObject" else kind
            before = cache.left_out.forget(own, key)
            try:
                see(cache, raw, gone=gone)
            except Exception as defect:
                see(cache, {"kind": own, "metadata": raw["metadata"]}, gone=True)
                if not gone:
                    cache.left_out.note(own, key, reason(defect))
            why = cache.left_out.why(own, key)
            if why is not None and why != before:
                log.warning("%s %s/%s is not read in full: %s", own, *key, why)

        return seen

    return decorated


def reason(defect: Exception) -> str:
    """Why an object cannot be read, as it is told."""
    if isinstance(defect, Unreadable):
        return said(str(defect))
    return said(f"its fields are not as expected ({type(defect).__name__}: {str(defect)[: input_limits.REASON]})")
