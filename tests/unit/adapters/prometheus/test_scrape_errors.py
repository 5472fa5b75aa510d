"""Prometheus' errors of a scrape, in words that hold no address."""

import pytest

from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.promql import Queries
from servingpool.adapters.prometheus.scrape_errors import explained_error, scrape_errors


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            "server returned HTTP status 401 Unauthorized",
            "HTTP status 401: the scrape needs credentials (authorization or basicAuth of the monitor)",
        ),
        ("server returned HTTP status 404 Not Found", "HTTP status 404: wrong path"),
        ("server returned HTTP status 502 Bad Gateway", "HTTP status 502"),
        (
            'received unsupported Content-Type "text/html; charset=utf-8" and no fallback_scrape_protocol specified',
            'Content-Type "text/html": not Prometheus\' format, so this is another port, or a login page',
        ),
        (
            'Get "http://10.0.0.5:8000/metrics": dial tcp 10.0.0.5:8000: connect: connection refused',
            "connection refused: wrong port",
        ),
        ('Get "http://10.0.0.5:8000/metrics": context deadline exceeded', "no answer within the scrape's timeout"),
        ('expected a valid start token, got "<" ("INVALID")', "the page is not in Prometheus' format"),
        ("secret-host.internal is odd", None),
        ("", None),
    ],
)
def test_an_error_is_told_in_words_of_our_own(said: str, meaning: str | None):
    assert explained_error(said) == meaning


def test_errors_of_other_pods_are_left_out():
    def target(pod: str) -> dict[str, object]:
        return {"labels": {"namespace": "chat", "pod": pod}, "lastError": "server returned HTTP status 500 Oops"}

    found = scrape_errors(Queries(profile_of("vllm")), [target("a"), target("b"), {}], [("chat", "a"), ("chat", "c")])
    assert found == {("chat", "a"): "HTTP status 500"}
