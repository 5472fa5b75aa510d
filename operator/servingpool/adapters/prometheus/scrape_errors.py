"""Why Prometheus cannot scrape a pod, as its list of targets tells. For a person's question only: the list is long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.promql import Queries

KNOWN = (
    (r"HTTP status 40[13]", "{0}: the scrape needs credentials (authorization or basicAuth of the monitor)"),
    (r"HTTP status 404", "{0}: wrong path"),
    (r"HTTP status \d{3}", "{0}"),
    (r"Content-Type \"[^\";]*", "{0}\": not Prometheus' format, so this is another port, or a login page"),
    (r"connection refused", "{0}: wrong port"),
    (r"deadline exceeded", "no answer within the scrape's timeout"),
    (r"x509|tls:", "TLS fails: check scheme and CA"),
    (r"expected .*got|parse error|invalid metric", "the page is not in Prometheus' format"),
)
"""What Prometheus 2 and 3 say, and what it means. Other text is not passed on: it holds addresses."""


def scrape_errors(queries: Queries, targets: Iterable[Mapping[str, Any]], pods: Iterable[PodKey]) -> dict[PodKey, str]:
    """Of these pods, why their scrape fails, as far as it is known."""
    wanted, (namespace, pod) = set(pods), queries.identity[:2]
    found = {}
    for target in targets:
        labels = target.get("labels", {})
        key = labels.get(namespace, ""), labels.get(pod, "")
        said = explained_error(target.get("lastError", "")) if key in wanted else None
        if said is not None:
            found[key] = said
    return found


def explained_error(text: str) -> str | None:
    """What Prometheus' error of a scrape means; None where it is not known."""
    for pattern, meaning in KNOWN:
        if (match := re.search(pattern, text)) is not None:
            return meaning.format(match[0])
    return None
