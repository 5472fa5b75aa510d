"""The example of docs/design.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DESIGN = Path(__file__).parents[3] / "docs" / "design.md"


def test_the_core_is_driven_from_outside_in_twenty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DESIGN.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 1
    assert len(blocks[0].split("\n\n", 1)[1].splitlines()) <= 20
    exec(compile(blocks[0], str(DESIGN), "exec"), {})
    assert capsys.readouterr().out.startswith("hold 1: 2 requests/s now")
