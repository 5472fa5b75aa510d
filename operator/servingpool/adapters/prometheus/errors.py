"""What can go wrong between the operator and Prometheus, in words that may be shown to anybody."""

from __future__ import annotations


class MetricsUnavailable(Exception):
    """Prometheus gave no usable answer.

    The message reaches the status of pools, which tenants can read. It is therefore worded here and never
    carries a response body: bodies have held internal addresses, and whatever an authentication proxy prints.
    """

    def __init__(self, backend: str, what: str) -> None:
        """`what` goes on from the backend's name: "did not answer within 10 s"."""
        super().__init__(f"Prometheus backend '{backend}' {what}")


class Unsent(MetricsUnavailable):
    """It was not asked: other queries took all the time that there was."""
