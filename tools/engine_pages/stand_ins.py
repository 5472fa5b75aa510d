"""Imports a few modules of a large package without the rest of it.

A module whose file was unpacked is the real one. Any other module of the named packages is a stand-in: it holds what it
was given, and every other name of it raises when it is used, so that nothing invented can reach a page.
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class _Unusable(type):
    """Of a name that may be imported, stand in an annotation or be a base class, and not be called."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{cls.__module__}.{cls.__qualname__} is a stand-in: give it a value")


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unusable(name, (), {"__module__": self.__name__})


class StandIns(MetaPathFinder, Loader):
    """Finder for `packages`: files below `root`, else stand-ins with the names of `given[module]`."""

    def __init__(self, root: Path, packages: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
        self._root, self._packages, self._given = root, packages, given

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """The real file's spec, or a stand-in's; None outside `packages`."""
        if fullname.partition(".")[0] not in self._packages:
            return None
        file = self._root.joinpath(*fullname.split(".")).with_suffix(".py")
        if file.is_file():
            return importlib.util.spec_from_file_location(fullname, file)
        spec = ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Put in what was given."""
        vars(module).update(self._given.get(module.__name__, {}))


def install(root: Path, packages: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Import `packages` from `root` from now on, in this process."""
    sys.meta_path.insert(0, StandIns(root, packages, given))
