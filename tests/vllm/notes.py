"""Figures that a person wants to see beside the verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Note = Callable[[str], None]
NOTES = pytest.StashKey[list[str]]()
