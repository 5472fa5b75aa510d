from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# With importlib mode tests are not a package; the shared story-telling world is loaded under one name.
_spec = importlib.util.spec_from_file_location("decision_world", Path(__file__).with_name("world.py"))
assert _spec is not None
assert _spec.loader is not None
_world = importlib.util.module_from_spec(_spec)
sys.modules["decision_world"] = _world
_spec.loader.exec_module(_world)
