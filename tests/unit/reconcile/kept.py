"""Worlds whose first minutes are passed once for all the tests that begin with them. Each test has a copy of its own."""

from __future__ import annotations

import copyreg
import gc
from collections.abc import Callable
from copy import deepcopy
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, TypeVar

from servingpool.decision.observation import NOT_EXPOSED, NOT_READ

World = TypeVar("World")

_KEPT: dict[str, Any] = {}

copyreg.pickle(MappingProxyType, lambda view: (MappingProxyType, (dict(view),)))


def kept(key: str, make: Callable[[], World]) -> World:
    """What `make` makes. It is called once for a key."""
    if key not in _KEPT:
        _KEPT[key] = make()
        assert not reaches(copied(_KEPT[key]), _KEPT[key]), f"a copy of {key} shares what tests change"
    world: World = copied(_KEPT[key])
    return world


def copied(world: World) -> World:
    """A copy that goes on by itself. Reasons that the operator compares by identity stay the same objects."""
    return deepcopy(world, {id(reason): reason for reason in (NOT_EXPOSED, NOT_READ)})


def reaches(start: object, goal: object) -> bool:
    """Whether an object holds another one, be it in a function's closure, which a copy shares."""
    seen: set[int] = set()
    to_see = [start]
    while to_see:
        one = to_see.pop()
        if one is goal:
            return True
        if id(one) in seen or isinstance(one, (type, ModuleType, str, bytes, int, float)):
            continue
        seen.add(id(one))
        # Not the globals of a function, which are every test's.
        to_see += [one.__closure__, one.__defaults__] if isinstance(one, FunctionType) else gc.get_referents(one)
    return False
