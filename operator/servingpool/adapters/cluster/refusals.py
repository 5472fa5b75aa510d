"""The cluster's failures by kind. Nothing above this layer sees a vendor's exception."""

from __future__ import annotations

CONFLICT, NOT_FOUND, FORBIDDEN, TROUBLE = 409, 404, 403, 500
"""HTTP statuses that have a kind of their own; and that from which a server is in trouble."""


class ClusterError(Exception):
    """A request to the API server failed. The message is fit for a condition."""


class Conflict(ClusterError):
    """The object is no longer what the request assumed; look again and decide again."""


class NotFound(ClusterError):
    """There is no such object."""


class Unanswered(ClusterError):
    """No answer came, or that of a server in trouble: what was asked for may have been done."""


class Forbidden(ClusterError):
    """RBAC or an admission policy does not allow it."""


def kind_of(status: int) -> type[ClusterError]:
    """The kind of a refusal with this HTTP status."""
    kinds: dict[int, type[ClusterError]] = {CONFLICT: Conflict, NOT_FOUND: NotFound, FORBIDDEN: Forbidden}
    return kinds.get(status, Unanswered if status >= TROUBLE else ClusterError)
