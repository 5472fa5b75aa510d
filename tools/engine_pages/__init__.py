"""Metrics pages printed by the engines' own collector classes, kept in `tests/fixtures/engines`.

A developer's tool, not run in CI: `python tools/engine_pages` (see `--help`) downloads pinned packages from the
registry, unpacks the few modules that hold the collectors, plays `story.REQUESTS` to them and writes what they print.
"""
