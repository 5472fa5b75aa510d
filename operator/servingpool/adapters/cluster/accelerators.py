"""The extended resources that are accelerators, and the number of accelerators in a pod's amounts.

A vendor's device plugin may offer several resources for one device: the devices themselves or parts of them, which
are counted, and attributes of what is counted, such as its memory and its share of cores, which are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache

DEVICE = re.compile(
    r"[a-z]{0,2}(gpu|npu|tpu|xpu|gcu|dcu|ppu|mlu)([0-9]+[a-z]?)?(mem|cores?|num|s)?|v?cuda|gaudi[0-9]*|ascend.*|neuron.*"
)
"""A word of a resource's name that names accelerators, of whatever vendor: `gpu`, `vgpu`, `dcunum`, `mlu370`."""
OF_VENDORS = re.compile(
    r"nvidia\.com/mig-.*|gpu\.intel\.com/(i915|xe|millicores|memory|tiles)(\..*)?"
    r"|amd\.com/[a-z]+_nps[0-9]+|rebellions\.ai/.*|furiosa\.ai/.*|(.*\.)?iluvatar\.ai/.*|metax-tech\.com/v(core|memory)"
)
"""Vendors' resource names without such a word."""
ATTRIBUTE = re.compile(r".*(?<!neuron)(mem|memory|cores?|percent|percentage|ratio)|tiles")
"""A word that makes it an attribute. `neuroncore` is a part of a device, and counted."""
PERCENT = re.compile(
    r"koordinator\.sh/gpu(-core|-memory-ratio)?|(.*\.)?tencent\.com/(qgpu|vcuda)-core|.*[-.](percent|percentage|ratio)"
)
"""Attributes in hundredths of a device: 200 are two devices. `koordinator.sh/gpu` is such an attribute too."""
WORD = re.compile(r"[^a-z0-9]+")
LONGEST = 317
"""Characters of a resource's name: a domain of 253, a slash and a name of 63."""


@lru_cache(maxsize=4096)
def _sort(resource: str) -> str:
    """`device`, `percent` or `attribute`; empty for what is no accelerator."""
    if len(resource) > LONGEST or "/" not in resource:
        return ""
    lowered = resource.lower()
    words = WORD.split(lowered.partition("/")[2])
    if "monitoring" in words or not (any(map(DEVICE.fullmatch, words)) or OF_VENDORS.fullmatch(lowered)):
        return ""  # one who monitors occupies no device
    if PERCENT.fullmatch(lowered):
        return "percent"
    return "attribute" if any(map(ATTRIBUTE.fullmatch, words)) else "device"


def counted(resources: Mapping[str, int]) -> int:
    """Accelerators that a pod occupies with these amounts of extended resources.

    With attributes alone it has a share of one device, or of as many as the hundredths make.
    """
    asked = [(_sort(name), amount) for name, amount in resources.items() if amount > 0]
    devices = sum(amount for sort, amount in asked if sort == "device")
    shares = [math.ceil(amount / 100) if sort == "percent" else 1 for sort, amount in asked if sort]
    return devices or max(shares, default=0)
