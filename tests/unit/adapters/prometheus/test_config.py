"""The operator's own configuration of a backend: wrong entries are refused in words."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from servingpool.adapters.prometheus.backend_config import BackendConfig

VALID = {"url": "http://prometheus.monitoring:9090"}


def test_a_url_is_enough():
    config = BackendConfig.model_validate(VALID)
    assert (config.name, config.timeout, config.staleness) == ("default", 10.0, 60.0)


def test_reads_the_form_of_the_configuration_file():
    config = BackendConfig.model_validate(
        {
            **VALID,
            "name": "thanos",
            "namespaces": ["team-*", "shared"],
            "timeout": "8s",
            "bearerTokenFile": "/var/run/secrets/token",
            "tls": {"caFile": "/ca.pem", "certFile": "/cert.pem", "keyFile": "/key.pem"},
            "headers": {"X-Scope-OrgID": "gpu"},
            "labels": {"namespace": "kubernetes_namespace"},
        }
    )
    assert config.timeout == 8.0
    assert config.labels.pod == "pod"
    assert [config.serves(namespace) for namespace in ("team-a", "shared", "other")] == [True, True, False]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"url": "prometheus:9090"}, "must be http:// or https:// with a host, got 'prometheus:9090'"),
        ({"url": "ftp://prometheus"}, "must be http:// or https:// with a host"),
        ({"url": "http://me:secret@prometheus"}, "must not contain credentials"),
        ({"url": "http://prometheus/graph?g0=up"}, "must have no '?' or '#'"),
        ({"timeout": "5m"}, "must be 1s to 1m, got 5m"),
        ({"timeout": "fast"}, "'fast' is not a duration"),
        ({"namespaces": []}, "at least 1 item"),
        ({"concurrency": 0}, "greater than or equal to 1"),
        ({"tls": {"certFile": "/cert.pem"}}, "must be set together"),
        ({"bearerTokenfile": "/token"}, "Extra inputs are not permitted"),
        ({"labels": {"pod": "kubernetes-pod"}}, "should match pattern"),
        (
            {"bearerTokenFile": "/t", "basicAuth": {"username": "u", "passwordFile": "/p"}},
            "must have one way to authenticate, got bearerTokenFile and basicAuth",
        ),
        ({"bearerTokenFile": "/t", "headers": {"authorization": "x"}}, "bearerTokenFile and an Authorization header"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(wrong, says):
    with pytest.raises(ValidationError) as refusal:
        BackendConfig.model_validate(VALID | wrong)
    assert says in str(refusal.value)


def test_a_refusal_does_not_repeat_a_password():
    for wrong in (
        {"url": "http://me:secret@prometheus"},
        {"bearerToken": "secret"},
        {"headers": {"X-Key": ["secret"]}},
    ):
        with pytest.raises(ValidationError) as refusal:
            BackendConfig.model_validate(VALID | wrong)
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    ["http://me:secret@prometheus", "me:secret@prometheus:9090", "ftp://me:secret@prometheus"]
    + [f"{host}/{mark}token=secret" for host in ("http://prometheus", "prometheus:9090") for mark in "?#"],
)
def test_a_secret_in_a_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        BackendConfig(url=url)
    assert "secret" not in str(caught.value)
