"""What the loop keeps of a pool and of its targets is changed by one module each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import servingpool.reconcile.keep.state
from servingpool.reconcile.keep.kept_memory import KeptMemory
from servingpool.reconcile.keep.orders import Ledger
from servingpool.reconcile.keep.state import PoolState

WRITER = Path(servingpool.reconcile.keep.state.__file__)
FIELDS = {field.name for kind in (PoolState, KeptMemory, Ledger) for field in fields(kind)}


def written(source: str) -> Iterator[str]:
    """Fields of such a state that this source sets, each as it is written there; an object's own are not among them."""
    for node in ast.walk(ast.parse(source)):
        for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
            parts = [*ast.walk(target)] if target is not None else []
            keys = [key for part in parts if isinstance(part, ast.Subscript) for key in ast.walk(part.slice)]
            for part in parts:
                own = isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self"
                if isinstance(part, ast.Attribute) and part.attr in FIELDS and part not in keys and not own:
                    yield ast.unparse(part)


def test_writing_a_field_is_seen_in_whatever_form() -> None:
    assert [*written("state.plan = 1")] == ["state.plan"]
    assert [*written("a, one.state.conflicts = 1, 2")] == ["one.state.conflicts"]
    assert [*written("state.conflicts += 1")] == ["state.conflicts"]
    assert [*written("self.states[key].warned[reason] = 0.0")] == ["self.states[key].warned"]
    assert [*written("self.status = state.status")] == []
    assert [*written("found[state.plan] = 1")] == []


def test_one_module_writes_the_state_of_a_pool_and_a_target_its_own() -> None:
    """Three did, about 20 fields: what a field held depended on which of them had come last."""
    rooms = [WRITER.parents[2] / room for room in ("loop", "reconcile", "gpubudget", "status")]
    others = {path for room in rooms for path in room.rglob("*.py")} - {WRITER}
    assert others
    assert {path.name: found for path in others if (found := [*written(path.read_text())])} == {}
