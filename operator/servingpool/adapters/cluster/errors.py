"""The cluster's failures in our own words. Nothing above this layer sees a vendor's exception."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import yaml
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException

from servingpool.adapters.cluster.refusals import (
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unanswered,
    Unfit,
    kind_of,
    said,
    why,
)

INVALID = 422

__all__ = ["ClusterError", "Conflict", "Forbidden", "Invalid", "NotFound", "Unanswered", "Unfit", "translated"]


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Run a request; `what` says what it tries, such as "scale Deployment chat/vllm"."""
    try:
        yield
    except ApiException as error:
        raise _refusal(what, error) from error
    except (ConfigException, yaml.YAMLError) as error:
        raise ClusterError(f"Cannot {what}: {error}") from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise _unanswered(what, type(error).__name__, why(error)) from error
    except ValueError as error:  # an answer that broke off in the middle, or that is not the API server's
        raise _unanswered(what, "its answer cannot be read", str(error)) from error


# Functions: an exception in a variable of the frame that raises it is a cycle, which only the garbage collector ends.


def _refusal(what: str, error: ApiException) -> ClusterError:
    kind = kind_of(error.status or 0)
    told = [f"Cannot {what}", f"{error.status} {error.reason}"]
    if error.status == INVALID:
        judged = _names_an_object(error)
        kind = Invalid if judged else Conflict
        told += ["rejected by an admission policy or by validation"] if judged else []
    refused = kind(": ".join(filter(None, [*told, _message(error)])))
    if isinstance(refused, Invalid):
        refused.fields = _fields(error)
    return refused


def _unanswered(what: str, how: str, detail: str) -> Unanswered:
    unanswered = Unanswered(f"Cannot {what}: the API server did not answer ({how})")
    unanswered.detail = detail
    return unanswered


def _message(error: ApiException) -> str:
    try:
        return said(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _fields(error: ApiException) -> tuple[str, ...]:
    try:
        causes = json.loads(error.body)["details"]["causes"]
        return tuple(str(cause["field"]) for cause in causes)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def _names_an_object(error: ApiException) -> bool:
    """Whether a 422 is a judgement of the object.

    A JSON patch whose `test` fails is a 422 as well, but names none; and one on `metadata.uid` says that another object
    has the name by now.
    """
    try:
        details = json.loads(error.body)["details"]
        causes = details.get("causes", ())
        return "name" in details and all(cause.get("field") != "metadata.uid" for cause in causes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
