"""Why Prometheus cannot scrape a pod, as its list of targets tells. For a person's question only: the list is long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.promql import Queries
from servingpool.adapters.prometheus.rows import Unread, shown

FALLBACK = "set fallback_scrape_protocol (fallbackScrapeProtocol of the monitor) to PrometheusText0.0.4"
KNOWN = (
    (r"HTTP status 40[13]", "{0}: the scrape needs credentials (authorization or basicAuth of the monitor)"),
    (r"HTTP status 404", "{0}: wrong path"),
    (r"HTTP status \d{3}[\w \-]*", "{0}"),
    (r"blank Content-Type", f"the page has no Content-Type, which Prometheus 3 refuses: {FALLBACK}"),
    (r"Content-Type \"text/html", "{0}\": not Prometheus' format, so this is another port, or a login page"),
    (
        r"Content-Type \"[^\";]*",
        f"{{0}}\" is none of Prometheus' formats: if the page is in its text format, {FALLBACK}; else correct the port",
    ),
    (
        r"server gave HTTP response to HTTPS client|first record does not look like a TLS handshake",
        "the target speaks plain HTTP, and is scraped with https: set scheme: http",
    ),
    (
        r"malformed HTTP (?:response|status)|HTTP request to an HTTPS server",
        "the answer is no plain HTTP: if the target speaks TLS, set scheme: https; else it is another port",
    ),
    (
        r"(label_limit|label_name_length_limit|label_value_length_limit|target_limit) exceeded(?: \([^)]*\))?",
        "{0}: raise {1} of the monitor, or drop what is too much by its metricRelabelings",
    ),
    (
        r"(sample|body size|bucket) limit exceeded",
        "{0}: raise the {1} limit of the monitor, or let the target export less",
    ),
    (r"connection refused", "{0}: nothing listens at that port"),
    (r"no such host|no route to host|network is unreachable", "{0}: the address of the target is not reached"),
    (r"deadline exceeded|i/o timeout", "no answer within the scrape's timeout"),
    (r"x509|tls:", "TLS fails: check CA, serverName and the client's certificate (tlsConfig of the monitor)"),
    (r"expected .*got|parse error|invalid metric", "the page is not in Prometheus' format"),
)
"""Errors of Prometheus 2 and 3, and their meaning."""
_PLACE = re.compile(r'(?:Get|Post) "[^"]*": |dial tcp [^ ]*: |(?:read|write) tcp [^ ]*: ')
"""Where an error happened, which the list of targets tells by itself, and whose parameters may be secret."""
LONGEST_READ = 2_000
"""Characters of an error that are looked at: it may repeat what a page says."""
LONGEST = 200
"""Characters of an error that is quoted."""


def scrape_errors(queries: Queries, targets: Iterable[Mapping[str, Any]], pods: Iterable[PodKey]) -> dict[PodKey, str]:
    """Why the scrapes of these pods fail, as far as Prometheus tells."""
    wanted, (namespace, pod) = set(pods), queries.identity[:2]

    def parsed(target: Mapping[str, Any]) -> tuple[PodKey, str | None]:
        labels = target.get("labels", {})
        key = labels.get(namespace, ""), labels.get(pod, "")
        return key, explained_error(target.get("lastError", "")) if key in wanted else None

    return {key: said for key, said in Unread().readable(targets, parsed) if said is not None}


def explained_error(text: str) -> str | None:
    """Meaning of a scrape's error; the error itself where that is not known, None where there is none."""
    text = text[:LONGEST_READ]
    for pattern, meaning in KNOWN:
        if (match := re.search(pattern, text)) is not None:
            return meaning.format(match[0], *match.groups())
    return shown(_PLACE.sub("", text), LONGEST) or None
