"""The cluster's failures by kind. Nothing above this layer sees a vendor's exception."""

from __future__ import annotations

from servingpool.catalogue.plain import plain

CONFLICT, NOT_FOUND, FORBIDDEN, UNAUTHORIZED, TROUBLE = 409, 404, 403, 401, 500
"""HTTP statuses that have a kind of their own; and that from which a server is in trouble."""

LONGEST_SAID = 400
"""Characters of an API server's message that are told. Webhooks and policies write them, too."""


class ClusterError(Exception):
    """A request to the API server failed. The message is fit for a condition."""

    detail: str = ""
    """What the system said besides, such as "Connection refused": for the person whose request it was."""


class Conflict(ClusterError):
    """The object is no longer what the request assumed; look again and decide again."""


class NotFound(ClusterError):
    """There is no such object."""


class NotInstalled(NotFound):
    """The API server does not know the kind at all."""


class Unfit(NotFound):
    """What there is cannot be used for this: the kind is another one."""


class Invalid(ClusterError):
    """Validation or an admission policy does not take the object."""

    fields: tuple[str, ...] = ()
    """Paths of what it does not take, such as `status.conditions[3].type`, where the answer names them."""


class Unanswered(ClusterError):
    """No answer came, or that of a server in trouble: what was asked for may have been done."""


class Unauthorized(ClusterError):
    """The API server does not know who asks: a token ran out, or a certificate is not its own."""


class Forbidden(ClusterError):
    """RBAC or an admission policy does not allow it."""


def kind_of(status: int) -> type[ClusterError]:
    """The kind of a refusal with this HTTP status."""
    kinds: dict[int, type[ClusterError]] = {
        CONFLICT: Conflict,
        NOT_FOUND: NotFound,
        FORBIDDEN: Forbidden,
        UNAUTHORIZED: Unauthorized,
    }
    return kinds.get(status, Unanswered if status >= TROUBLE else ClusterError)


def said(message: object) -> str:
    """An API server's message as it is told: bounded, without controls, and without a full stop."""
    text = message if isinstance(message, str) else ""
    cut = text if len(text) <= LONGEST_SAID else f"{text[: LONGEST_SAID - 1]}…"
    return plain(cut).strip().rstrip(".")


def why(error: BaseException) -> str:
    """What is behind a failure of the network in the system's words, such as "Connection refused"."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        if isinstance(seen, TimeoutError):
            return "no answer in time"
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__
