"""How to reach one Prometheus, from the operator's own configuration: a pool can only name it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from servingpool.api.duration import DurationBetween

LABEL_NAME = "^[a-zA-Z_][a-zA-Z0-9_]*$"


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
    password_file: Path
    """Read anew for each query, so that a rotated secret needs no restart."""


class Tls(_Section):
    """Whom to trust, and how to prove who we are."""

    ca_file: Path | None = None
    """Certificates to trust, PEM. Default: the ones that come with `certifi`."""
    cert_file: Path | None = None
    """Client certificate, PEM; with `keyFile`."""
    key_file: Path | None = None
    """Its private key, PEM, not encrypted."""

    @model_validator(mode="after")
    def _both_halves(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("certFile and keyFile go together: give both or neither")
        return self


class SeriesLabels(_Section):
    """Names of the labels that scraping added. `exported_model_name` is looked for by itself."""

    namespace: Annotated[str, Field(pattern=LABEL_NAME)] = "namespace"
    pod: Annotated[str, Field(pattern=LABEL_NAME)] = "pod"
    exported: bool = False
    """Believe `exported_namespace` and `exported_pod` before the labels above: only where this Prometheus reads another
    one's federation endpoint. Anywhere else a pod could print another tenant's names and scale its fleet."""


class GatewayQueue(_Section):
    """Requests held before the engines, by a gateway or router that publishes how many."""

    metric: Annotated[str, Field(pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
    """A gauge, such as llm_d_epp_flow_control_queue_size. One only: its older twin would count double."""
    model_label: Annotated[str, Field(pattern=LABEL_NAME)] = "model_name"
    """Holds the served model's name; target_model_name at llm-d's endpoint picker."""
    namespace_label: Annotated[str, Field(pattern=LABEL_NAME)] | None = None
    """Set where a series belongs to one namespace's pools. Else every pool of the model sees the whole queue."""
    match_labels: dict[Annotated[str, Field(pattern=LABEL_NAME)], str] = Field(default_factory=dict)
    """Further labels with their exact values, such as the job where two jobs scrape the gateway."""


class BackendConfig(_Section):
    """One Prometheus, or anything that speaks its query API: Thanos, Mimir, VictoriaMetrics."""

    name: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"
    """What a pool writes in `spec.metrics.backend`."""
    url: str
    """Base of the query API, such as http://prometheus.monitoring:9090; a path prefix is kept."""
    namespaces: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    """Namespaces whose pools may use it, as globs."""
    timeout: Annotated[float, DurationBetween("1s", "1m")] = 10.0
    """Longest time of all queries of a tick together, to the last byte. At most the operator's interval."""
    staleness: Annotated[float, DurationBetween("10s", "10m")] = 60.0
    """A page scraped longer ago than this is unknown. At least 4 scrape intervals of 15 s; raise it for slower ones."""
    concurrency: Annotated[int, Field(ge=1, le=8)] = 2
    """Queries under way at once. Each may hold one reply of up to about 20 MB."""
    bearer_token_file: Path | None = None
    """Read anew for each query: Kubernetes rotates projected tokens."""
    basic_auth: BasicAuth | None = None
    tls: Tls = Tls()
    headers: dict[str, str] = Field(default_factory=dict)
    """Sent with each query, such as X-Scope-OrgID for the tenant."""
    labels: SeriesLabels = SeriesLabels()
    gateway: GatewayQueue | None = None

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"must be http:// or https:// and a host, got '{url}'")
        if "@" in parts.netloc:
            raise ValueError("must carry no credentials, for URLs reach logs: use basicAuth or bearerTokenFile")
        if parts.query or parts.fragment:
            raise ValueError(f"must end with its path, without '?' and '#', got '{url}'")
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
            raise ValueError(f"takes one way to authenticate, got {' and '.join(given)}")
        return self

    def serves(self, namespace: str) -> bool:
        """Whether pools in this namespace may read from it."""
        return any(fnmatchcase(namespace, glob) for glob in self.namespaces)
