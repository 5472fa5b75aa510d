"""The resource as the API server stores it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from servingpool.api.conditions import Generation
from servingpool.api.part import Part
from servingpool.api.spec import Spec
from servingpool.api.status import Status


class Metadata(Part):
    """The part of an object's metadata that the operator uses."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: Generation = 0
    deletion_timestamp: str | None = None
    """When it is deleted; None while nobody has deleted it."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name: unique in a cluster."""
        return self.namespace, self.name

    @property
    def log_fields(self) -> dict[str, str]:
        """What a log line about the pool carries besides its message."""
        return {"pool": f"{self.namespace}/{self.name}"}


class ServingPool(Part):
    """Keeps a latency objective for one served model with as few replicas as possible."""

    api_version: Literal["servingpool.dev/v1alpha1"] = "servingpool.dev/v1alpha1"
    kind: Literal["ServingPool"] = "ServingPool"
    metadata: Metadata
    spec: Spec
    status: Annotated[Status, Field(validate_default=False)] = Status()

    @field_validator("status", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Status:
        # A status that cannot be read must not stop the pool from being scaled.
        return Status.found(value)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name: unique in a cluster."""
        return self.metadata.key


PLAIN = {"missing": "required", "extra_forbidden": "there is no such field"}
"""Our sentence for some types of problems, in place of pydantic's."""


def problems(error: ValidationError) -> str:
    """What is wrong with a manifest, each as `path: what must be, and what was given`, joined by `; `."""
    return "; ".join(f"{path(problem['loc']) or 'ServingPool'}: {said(problem)}" for problem in each(error))


def each(error: ValidationError) -> list[ErrorDetails]:
    """The problems, less those that only follow: a list counts too few where its items are wrong themselves."""
    found = error.errors()
    return [
        one
        for one in found
        if one["type"] != "too_short"
        or not any(other["loc"][: len(one["loc"])] == one["loc"] for other in found if other is not one)
    ]


def path(location: tuple[str | int, ...]) -> str:
    """The way to a field, such as `targets[0].max`; empty for the whole."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".")


def said(problem: ErrorDetails, *, tell: bool = True) -> str:
    """Sentence on a problem, with the value given. `tell`: also a text, which may be a secret."""
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] in PLAIN:
        return PLAIN[problem["type"]]
    words, given = problem["msg"][0].lower() + problem["msg"][1:], problem["input"]
    if isinstance(given, str):
        return f"{words}, got '{given}'" if tell else words
    return f"{words}, got {given}" if isinstance(given, int | float) else words
