"""A label selector as the scale subresource writes it: `app=vllm,role in (a, b),!canary`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from servingpool.adapters.cluster import input_limits

_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUAL = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<values>[^=!\s]*)")
_EXISTS = re.compile(r"(?P<operator>!?)\s*(?P<key>[^=!\s]+)")
SHORT = 512
"""Characters of the selectors that are kept as they were parsed."""


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on a label."""

    key: str
    values: frozenset[str] | None
    """Values of the label that match; None matches any value."""
    negated: bool

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet it. As in Kubernetes, a label that is absent meets `!=` and `notin`."""
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms on labels, all of which must hold."""

    text: str
    terms: tuple[Term, ...]

    @property
    def named(self) -> list[tuple[str, frozenset[str]]]:
        """Labels that a pod must have, each with the values that it may have."""
        return [(term.key, term.values) for term in self.terms if term.values is not None and not term.negated]

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is selected."""
        return all(term.admits(labels) for term in self.terms)


def parse(text: str) -> Selector | None:
    """The selector; None where the text is empty, no selector or too long: that must not select every pod."""
    if len(text) > input_limits.SELECTOR:
        return None
    return _kept(text) if len(text) <= SHORT else _parsed(text)


def _parsed(text: str) -> Selector | None:
    try:
        terms = tuple(_terms(text))
    except ValueError:
        return None
    return Selector(text, terms) if 0 < len(terms) <= input_limits.SELECTOR_TERMS else None


_kept = lru_cache(maxsize=4096)(_parsed)


def _terms(text: str) -> Iterator[Term]:
    for each in filter(None, (part.strip() for part in _parts(text))):
        found = _SET.fullmatch(each) or _EQUAL.fullmatch(each) or _EXISTS.fullmatch(each)
        if found is None:
            raise ValueError(f"'{each}' is no term of a label selector")
        values = None
        if found.re is not _EXISTS:
            values = frozenset(value.strip() for value in found["values"].split(","))
        yield Term(found["key"], values, found["operator"] in {"!=", "notin", "!"})


def _parts(text: str) -> Iterator[str]:
    """Parts between commas that are not within parentheses."""
    begin = depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]
