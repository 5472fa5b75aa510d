"""The base of every type in the resource."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel


class Part(BaseModel):
    """Immutable; camelCase in manifests, snake_case in Python.

    Strict, because the API server is: it refuses `max: "3"`, so a pool read from a file must be refused too.
    Unknown fields are dropped, as the API server prunes them: a newer CRD does not break an older operator.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        strict=True,
        extra="ignore",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    def to_dict(self) -> dict[str, Any]:
        """The manifest's form: camelCase, JSON types only, absent where None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def read(cls, raw: object) -> Self:
        """The type from a manifest's form; `pydantic.ValidationError` if it is wrong (`problems` words it)."""
        return cls.model_validate(raw)


def keyed(most: int, *keys: str, **schema: JsonValue) -> Any:
    """Of a list: at most so many items, which the API server tells apart by these keys. `schema`: what else it says."""
    told: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys], **schema}
    return Field(strict=False, max_length=most, json_schema_extra=told)
