"""Kubernetes' quantities, such as `8`, `16k`, `1.5Gi` or `1e3`: a CRD without a schema may hold any text instead."""

from __future__ import annotations

import math
import re
from decimal import Decimal

LONGEST = 64
"""Characters of a quantity that are read."""
MOST = 2**63 - 1
"""The greatest amount that Kubernetes keeps. A greater amount is unreadable here."""
SUFFIXES = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
SUFFIXES |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
SUFFIXES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
# `E` alone is a suffix, and with digits behind it an exponent. Two digits of it are beyond MOST already.
FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]?|[KMGTPE]i))")


def whole(amount: object) -> int | None:
    """A quantity, rounded up as Kubernetes does; None where it is none, or below 0."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return None
    text = str(amount)
    found = FORM.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    value = Decimal(found[1]).scaleb(int(found[2])) if found[2] else Decimal(found[1]) * SUFFIXES[found[3]]
    return math.ceil(value) if 0 <= value <= MOST else None
