"""Access to a Prometheus, from the operator's own configuration: a pool can only name it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from servingpool.adapters.prometheus.engines.profile import Label
from servingpool.api.duration import DurationBetween
from servingpool.api.spec import GATEWAY_NAME
from servingpool.api.target import WORKLOAD_NAME


class _Section(BaseModel):
    # Not lenient as the resource's types are: a key that is misspelt here would switch authentication off.
    # Inputs are hidden because a wrong entry is often a secret in the wrong place, and errors are logged.
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


class BasicAuth(_Section):
    """HTTP basic authentication."""

    username: Annotated[str, Field(min_length=1, max_length=256)]
    """Name to log in with."""
    password_file: Path
    """File with the password. It is read for each query, so rotation needs no restart."""


class Tls(_Section):
    """Trusted certificates and the client certificate."""

    ca_file: Path | None = None
    """Trusted certificates (PEM). Default: those of `certifi`."""
    cert_file: Path | None = None
    """Client certificate (PEM). Needs `keyFile`."""
    key_file: Path | None = None
    """Private key of the client certificate (PEM, not encrypted)."""

    @model_validator(mode="after")
    def _both_halves(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("certFile and keyFile must be set together")
        return self


class SeriesLabels(_Section):
    """Names of the labels that scraping adds. `exported_model_name` is found by itself."""

    namespace: Label = "namespace"
    """Label with the pod's namespace."""
    pod: Label = "pod"
    """Label with the pod's name."""
    exported: bool = False
    """Prefer `exported_namespace` and `exported_pod` to the labels above. Set it only if this Prometheus federates
    another one. Otherwise a pod could export another tenant's names and scale its pool."""


class GatewayChoice(_Section):
    """The gateway in front of all pools of a backend that name none of their own."""

    name: Annotated[str, Field(pattern=f"^{GATEWAY_NAME.pattern}$", max_length=63)]
    """Gateway, such as llm-d-epp: a profile of this release, or one of `gateways`."""
    namespace: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    """Namespace of the gateway's pods. Without it, each pool has a gateway in its own namespace."""
    workload: Annotated[str, Field(pattern=f"^{WORKLOAD_NAME.pattern}$", max_length=253)] | None = None
    """Name of the gateway's Deployment or StatefulSet. Default: all gateways in the namespace."""
    models: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """By model, the namespaces (globs) whose pools read its demand. Default: any pool reads that of the model it names.
    With any entry, nobody reads the demand of a model that is not in it."""

    def tells(self, model: str, namespace: str) -> bool:
        """Whether a pool of this namespace reads the demand of this model."""
        return not self.models or any(fnmatchcase(namespace, glob) for glob in self.models.get(model, ()))

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: object) -> object:
        return {"name": given} if isinstance(given, str) else given


class BackendConfig(_Section):
    """One Prometheus, or a server with its query API: Thanos, Mimir, VictoriaMetrics."""

    name: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"
    """Name for `spec.metrics.backend`."""
    url: str
    """Base URL of the query API, such as http://prometheus.monitoring:9090; a path prefix is kept."""
    namespaces: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    """Namespaces (globs) whose pools may use this backend."""
    timeout: Annotated[float, DurationBetween("1s", "1m")] = 10.0
    """Time limit for all queries of a tick together, to the last byte. At most the operator's interval."""
    staleness: Annotated[float, DurationBetween("10s", "10m")] = 60.0
    """Older samples count as unknown. Use at least 4 scrape intervals."""
    concurrency: Annotated[int, Field(ge=1, le=8)] = 2
    """Queries at the same time. Each may hold a reply of up to about 20 MB."""
    bearer_token_file: Path | None = None
    """File with a bearer token. It is read for each query, because Kubernetes rotates projected tokens."""
    basic_auth: BasicAuth | None = None
    tls: Tls = Tls()
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of each query, such as X-Scope-OrgID for the tenant."""
    labels: SeriesLabels = SeriesLabels()
    gateway: GatewayChoice | None = None
    """A gateway's name, or name, namespace, workload and models. A pool can name its own in spec.metrics.gateway."""

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        # In the whole text: without a scheme a password is no part of the host, and the other messages show the URL.
        if "@" in url:
            raise ValueError("must not contain credentials, because URLs are logged; use basicAuth or bearerTokenFile")
        if "?" in url or "#" in url:
            raise ValueError("must have no '?' or '#'")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            hint = "" if "://" in url or not url else f"; write http://{url}"
            raise ValueError(f"must be http:// or https:// with a host, got '{url}'{hint}")
        try:
            port = parts.port
        except ValueError:
            port = 0
        if port == 0:
            raise ValueError("must have a port from 1 to 65535, or none")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        ways = [
            self.bearer_token_file is not None and "bearerTokenFile",
            self.basic_auth is not None and "basicAuth",
            any(name.lower() == "authorization" for name in self.headers) and "an Authorization header",
        ]
        given = [way for way in ways if way]
        if len(given) > 1:
            raise ValueError(f"must have one way to authenticate, got {' and '.join(given)}")
        return self

    def serves(self, namespace: str) -> bool:
        """Whether pools in this namespace may read from it."""
        return any(fnmatchcase(namespace, glob) for glob in self.namespaces)
