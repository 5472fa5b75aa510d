"""Prometheus' errors of a scrape, in words that hold no address."""

import pytest

from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.promql import Queries
from servingpool.adapters.prometheus.scrape_errors import FALLBACK, explained_error, scrape_errors

OR_DROP = "or drop what is too much by its metricRelabelings"
OR_FALLBACK = f"if the page is in its text format, {FALLBACK}; else correct the port"


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            "server returned HTTP status 401 Unauthorized",
            "HTTP status 401: the scrape needs credentials (authorization or basicAuth of the monitor)",
        ),
        ("server returned HTTP status 404 Not Found", "HTTP status 404: wrong path"),
        ("server returned HTTP status 502 Bad Gateway", "HTTP status 502 Bad Gateway"),
        (
            'received unsupported Content-Type "text/html; charset=utf-8" and no fallback_scrape_protocol specified',
            'Content-Type "text/html": not Prometheus\' format, so this is another port, or a login page',
        ),
        (
            'Get "http://10.0.0.5:8000/metrics": dial tcp 10.0.0.5:8000: connect: connection refused',
            "connection refused: nothing listens at that port",
        ),
        ('Get "http://10.0.0.5:8000/metrics": context deadline exceeded', "no answer within the scrape's timeout"),
        ('expected a valid start token, got "<" ("INVALID")', "the page is not in Prometheus' format"),
        (
            "non-compliant scrape target sending blank Content-Type and no fallback_scrape_protocol specified for target",
            f"the page has no Content-Type, which Prometheus 3 refuses: {FALLBACK}",
        ),
        (
            'received unsupported Content-Type "application/json; charset=utf-8" and no fallback_scrape_protocol specified',
            f'Content-Type "application/json" is none of Prometheus\' formats: {OR_FALLBACK}',
        ),
        (
            'Get "https://10.0.0.1:8000/metrics": http: server gave HTTP response to HTTPS client',
            "the target speaks plain HTTP, and is scraped with https: set scheme: http",
        ),
        (
            'Get "http://10.0.0.1:8443/metrics": net/http: HTTP/1.x transport connection broken: malformed HTTP response',
            "the answer is no plain HTTP: if the target speaks TLS, set scheme: https; else it is another port",
        ),
        (
            "label_limit exceeded (metric: litellm_x, limit: 30)",
            f"label_limit exceeded (metric: litellm_x, limit: 30): raise label_limit of the monitor, {OR_DROP}",
        ),
        (
            "sample limit exceeded",
            "sample limit exceeded: raise the sample limit of the monitor, or let the target export less",
        ),
        (
            "body size limit exceeded",
            "body size limit exceeded: raise the body size limit of the monitor, or let the target export less",
        ),
        # Not known: no cause is guessed, and the URL with its parameters is left out.
        ('Get "http://10.0.0.1/metrics?token=secret": EOF', "EOF"),
        ("a \x1b[31mnovelty" + "!" * 300, "a ?[31mnovelty" + "!" * 186 + "..."),
        ("", None),
    ],
)
def test_an_error_is_told_in_words_of_our_own(said: str, meaning: str | None):
    assert explained_error(said) == meaning


def test_errors_of_other_pods_are_left_out():
    def target(pod: str) -> dict[str, object]:
        return {"labels": {"namespace": "chat", "pod": pod}, "lastError": "server returned HTTP status 500 Oops"}

    found = scrape_errors(
        Queries(profile_of("vllm")), [target("a"), target("b"), {}, {"labels": 7}], [("chat", "a"), ("chat", "c")]
    )
    assert found == {("chat", "a"): "HTTP status 500 Oops"}
