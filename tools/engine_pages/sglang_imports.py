"""What the imports of SGLang's collectors need, and calls that fit each version."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class Unset:
    """Settings that were not given: None, but for one that the collector computes with."""

    prefill_delayer_max_delay_passes = 30

    def __getattr__(self, _: str) -> None:
        return None


class _Switches:
    """Environment variables that were not set: all off."""

    def __getattr__(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(get=lambda: False)


class _Struct:
    def __init_subclass__(cls, **_: Any) -> None:
        """Take msgspec's options."""


def given() -> dict[str, dict[str, Any]]:
    """What stand-in modules must hold for the collectors to be made."""
    return {
        "msgspec": {"Struct": _Struct},
        "sglang.srt.disaggregation.utils": {"DisaggregationMode": SimpleNamespace(NULL="null")},
        "sglang.srt.environ": {"envs": _Switches()},
        "sglang.srt.utils": {"get_bool_env_var": lambda *_: False},
        "sglang.srt.runtime_context": {
            "get_observability": Unset,
            "get_schedule": Unset,
            "exports_expert_balancedness_to_prometheus": lambda: False,
        },
        "sglang.srt.utils.nvtx_utils": {"NVTX_SCHEDULER_ENABLED": False},
    }


def call(function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Call with those of the named arguments that this version's function takes."""
    accepted = inspect.signature(function).parameters
    return function(*args, **{name: value for name, value in given.items() if name in accepted})


def module(root: Path, name: str) -> Any:
    """A module of the collectors, which were below `srt/metrics` until 0.5.9."""
    package = "observability" if (root / "sglang/srt/observability").is_dir() else "metrics"
    return importlib.import_module(f"sglang.srt.{package}.{name if package == 'observability' else 'collector'}")
