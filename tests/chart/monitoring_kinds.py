"""The fields that the chart uses of the Prometheus Operator's kinds, after its API reference; any other is an error.

No cluster of the tests has its custom resources, so nothing else would notice a field in the wrong place.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Duration = Annotated[
    str, Field(pattern=r"^(0|(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?)$", min_length=1, strict=True)
]
Text = Annotated[str, Field(min_length=1, strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class _Object(_Strict):
    api_version: Literal["monitoring.coreos.com/v1"]
    metadata: dict[str, Any]


class _Selector(_Strict):
    match_labels: dict[str, str]


class _Endpoint(_Strict):
    port: Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$")]
    """By its name: a number is targetPort's, or portNumber's."""
    interval: Duration
    honor_labels: bool


class _PodMonitorSpec(_Strict):
    selector: _Selector
    pod_metrics_endpoints: Annotated[list[_Endpoint], Field(min_length=1)]


class PodMonitor(_Object):
    kind: Literal["PodMonitor"]
    spec: _PodMonitorSpec


class _ServiceMonitorSpec(_Strict):
    selector: _Selector
    endpoints: Annotated[list[_Endpoint], Field(min_length=1)]


class ServiceMonitor(_Object):
    kind: Literal["ServiceMonitor"]
    spec: _ServiceMonitorSpec


class _Alert(_Strict):
    alert: Text
    expr: Text
    for_: Annotated[Duration | None, Field(alias="for")] = None
    labels: dict[str, Text]
    annotations: dict[str, Text]


class _Group(_Strict):
    name: Text
    rules: Annotated[list[_Alert], Field(min_length=1)]


class _RuleSpec(_Strict):
    groups: list[_Group]


class PrometheusRule(_Object):
    kind: Literal["PrometheusRule"]
    spec: _RuleSpec


KINDS: dict[str, type[BaseModel]] = {each.__name__: each for each in (PodMonitor, ServiceMonitor, PrometheusRule)}
