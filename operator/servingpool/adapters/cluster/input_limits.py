"""Limits on the length of texts in objects of the cluster. Longer texts are left out, and reported.

The API server takes objects of 1.5 MB, and any tenant may write them. They are read on the event loop, which serves
all tenants, and are kept in memory. Each limit is far above what real objects have.
"""

from __future__ import annotations

from collections.abc import Mapping

WORD = 4_096
"""Characters of one word of a command, its variables filled in."""
ARGUMENTS = 16_384
"""Characters of all words of a container's command and arguments."""
SELECTOR = 4_096
"""Characters of the selector of a scale subresource."""
SELECTOR_TERMS = 64
"""Conditions of a selector at most: each is checked for every pod of the namespace."""
LABELS = 8_192
"""Characters of all labels of an object, names and values."""
SHARED_LABELS = 1_024
"""Characters of labels up to which objects that are labelled alike share them; the others are not kept for that."""
OWNER = 1_024
"""Characters of the names of the object that controls another."""
KEPT = 32_768
"""Characters of what is kept of an object, as Python writes it: labels and selectors of nodes are the most of it."""
SHARED_NAMES = 8
"""Names of devices up to which pods that ask for the same share them."""
TOLD = 3
"""Objects that are named where several are left out."""
REASON = 200
"""Characters of why an object cannot be read."""


def size_of(labels: Mapping[str, str]) -> int:
    """Characters of these labels. TypeError where one is no text."""
    return len("".join([*labels, *labels.values()]))
