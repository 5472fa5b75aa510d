"""Reasons and limits: each that is declared is emitted, and each that is emitted is declared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import servingpool
from servingpool.api.conditions import Reason
from servingpool.decision import limits

SOURCES = Path(servingpool.__file__).parent
REASONS = {reason.name for reason in Reason}
LIMITS = {name for name, value in vars(limits).items() if name.isupper() and isinstance(value, str)}


def trees(folder: str) -> Iterator[ast.AST]:
    """Of every source file in it."""
    return (ast.parse(path.read_text()) for path in (SOURCES / folder).glob("*.py"))


def emitted(folder: str, owner: str) -> set[str]:
    """Names of `owner.NAME` in this folder, less those that are only compared with."""
    found = set()
    for tree in trees(folder):
        compared = {id(each) for part in ast.walk(tree) if isinstance(part, ast.Compare) for each in ast.walk(part)}
        found |= {
            part.attr
            for part in ast.walk(tree)
            if isinstance(part, ast.Attribute) and ast.unparse(part.value) == owner and id(part) not in compared
        }
    return found


def arguments(folder: str, methods: set[str], position: int, of: int) -> list[str]:
    """What is given at this position of so many to calls of these methods, as written."""
    return [
        ast.unparse(part.args[position])
        for tree in trees(folder)
        for part in ast.walk(tree)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in methods
        if len(part.args) == of  # other classes have methods of these names too
    ]


def test_every_declared_reason_is_emitted() -> None:
    assert REASONS - emitted("reconcile", "Reason") == set()


def test_every_event_has_a_declared_reason() -> None:
    """Those of conditions are held to it by their type; an API server takes any text for an event's."""
    given = arguments("reconcile", {"event"}, 2, of=4)
    assert given
    assert [reason for reason in given if not re.fullmatch(r"Reason\.\w+|Reason\(.*\)", reason)] == []


def test_every_declared_limit_is_applied() -> None:
    assert LIMITS - emitted("decision", "limits") == set()


def test_every_applied_limit_is_declared() -> None:
    given = arguments("decision", {"at", "at_least", "at_most"}, 1, of=3)
    assert {name.removeprefix("limits.") for name in given} == LIMITS
