"""Entries of the catalogue, and message templates: `str.format` with named fields, which must be given exactly."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from string import Formatter
from typing import Any, Self


@cache
def fields(template: str) -> frozenset[str]:
    """The names of the fields of a template."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def render(template: str, given: Mapping[str, object]) -> str:
    """The template with its fields filled in. ValueError where a field is missing or unknown."""
    if given.keys() != fields(template):
        raise ValueError(f"'{template}' has the fields {sorted(fields(template))}, got {sorted(given)}")
    return template.format(**given)


class Templated:
    """An entry of the catalogue with a message."""

    template: str

    def message(self, **given: object) -> str:
        """The message. ValueError where a field is missing or unknown."""
        return render(self.template, given)


class Entry(StrEnum):
    """An entry is the string of its name; what else it says are the fields that its class annotates, in that order."""

    def __new__(cls, name: str, *said: object) -> Self:
        """A member with its fields."""
        member = str.__new__(cls, name)
        member._value_ = name
        for field, value in zip(cls.__annotations__, cls.filled(*said), strict=True):
            setattr(member, field, value)
        return member

    @staticmethod
    def filled(*said: Any) -> tuple[object, ...]:
        """The value of each field, from what the entry says."""
        return said
