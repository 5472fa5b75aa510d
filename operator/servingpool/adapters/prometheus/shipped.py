"""The profiles that a release ships: one YAML file each, named as the profile, in the folder of their package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import TypeVar

import yaml
from pydantic import BaseModel

Profile = TypeVar("Profile", bound=BaseModel)


def read_profiles(package: str, form: type[Profile]) -> Mapping[str, Profile]:
    """By name, sorted. Raises ValidationError where one is not of this form."""
    found = {}
    for file in sorted(files(package).iterdir(), key=lambda one: one.name):
        name, _, ending = file.name.rpartition(".")
        if ending == "yaml":
            found[name] = form.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    return MappingProxyType(found)
