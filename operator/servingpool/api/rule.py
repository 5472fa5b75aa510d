"""One rule, two judges: CEL at admission, Python where a pool got in around it. Both use the same words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue, model_validator
from pydantic_core import CoreSchema, core_schema

DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
GIVEN = "{}"
"""Where a wording tells the value that is refused."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL validation for Kubernetes 1.29 and later."""

    test: str
    """CEL; true where the value is fine."""
    says: str
    """What must be, with `GIVEN` where the value goes."""
    given: str = ""
    """CEL string: the value to tell."""

    def to_dict(self) -> dict[str, JsonValue]:
        """An entry of x-kubernetes-validations."""
        # `replace`, because the cost of `+` is estimated by its result, and string(int) has no bound in that
        # estimate: one such rule would exceed the budget of the whole CRD. `replace` is estimated by its target.
        # No `fieldPath`: Kubernetes 1.29 appends each one to those before it (spec.targets[0].min.max).
        told = f"{quoted(self.says)}.replace({quoted(GIVEN)}, {self.given})" if self.given else quoted(self.says)
        return {"rule": self.test, "messageExpression": told}


def rules(*entries: Rule) -> dict[str, JsonValue]:
    """For `json_schema_extra`."""
    return {"x-kubernetes-validations": [entry.to_dict() for entry in entries]}


def quoted(text: str) -> str:
    """A CEL string literal; CEL reads JSON's."""
    return json.dumps(text)


def told(says: str, given: object) -> str:
    """The wording with its value."""
    return says.replace(GIVEN, str(given))


def needs_some(says: str, *fields: str) -> Any:
    """Validator of a type that needs one of these fields at least."""

    def given(part: Any) -> Any:
        if all(getattr(part, field) is None for field in fields):
            raise ValueError(says)
        return part

    return model_validator(mode="after")(given)


@dataclass(frozen=True, slots=True)
class Between:
    """Marks a number within `low` and `high`, both included.

    A rule and not `minimum` and `maximum`, each of which would leave out the other end.
    """

    low: float
    high: float

    @property
    def _says(self) -> str:
        return f"must be {self.low:g} to {self.high:g}, got {GIVEN}"

    def check(self, value: float) -> float:
        """The value; ValueError if it is out of range."""
        if not self.low <= value <= self.high:
            raise ValueError(told(self._says, f"{value:g}"))
        return value

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after the type."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The number's schema, with the rule."""
        number = handler(schema)
        low, high = (int(end) if number["type"] == "integer" else float(end) for end in (self.low, self.high))
        return {**number, **rules(Rule(f"self >= {low} && self <= {high}", self._says, "string(self)"))}


@dataclass(frozen=True, slots=True)
class Matches:
    """Marks a string that matches `pattern` as a whole."""

    pattern: str
    what: str
    """What such a string is, as in `must be ...`."""

    @property
    def _says(self) -> str:
        return f"must be {self.what}, got '{GIVEN}'"

    def check(self, value: str) -> str:
        """The value; ValueError if it does not match."""
        if not re.fullmatch(self.pattern, value):
            raise ValueError(told(self._says, value))
        return value

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after the type."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The string's schema, with the rule."""
        return {**handler(schema), **rules(Rule(f"self.matches({quoted(f'^({self.pattern})$')})", self._says, "self"))}
