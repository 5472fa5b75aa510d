"""kube-apiserver for the lab and its tests: manifests of any kind, also of a kind that it learnt of a second ago.

The requests are those of the command line, `servingpool.adapters.cluster.api_server`; reads keep a connection open. Its
errors are not: a test reads all of a refusal, an operator's condition a part of it.
"""

import contextlib
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Self

import yaml

from servingpool.adapters.cluster.api_server import ApiServer
from servingpool.adapters.cluster.errors import REFUSED
from servingpool.adapters.cluster.kinds import APPLY_PATCH, JSON, MERGE_PATCH, base_of, path_of
from servingpool.adapters.cluster.kubeconfig import Login

Manifest = Mapping[str, Any]
Manifests = Path | str | Manifest | Iterable[Manifest]

_FIELD_MANAGER = "servingpool-lab"
_DISCOVERY_TIMEOUT_SECONDS = 60.0


class ApiError(RuntimeError):
    """kube-apiserver answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def load_manifests(source: Manifests) -> list[Manifest]:
    """Objects of a YAML file, of every YAML file in a folder, of YAML text, or as given.

    Raises:
        OSError: a path cannot be read.
        yaml.YAMLError: not YAML.
    """
    if isinstance(source, Path):
        files = sorted(source.glob("*.yaml")) if source.is_dir() else [source]
        return [manifest for file in files for manifest in load_manifests(file.read_text())]
    if isinstance(source, str):
        return [manifest for manifest in yaml.safe_load_all(source) if manifest]
    if isinstance(source, Mapping):
        source = [source]
    return [item for manifest in source for item in _items(manifest)]


def _items(manifest: Manifest) -> list[Manifest]:
    return list(manifest["items"]) if manifest.get("kind") == "List" else [manifest]


class _OpenConnection(ApiServer):
    """Reads over one connection a thread: waits ask many times a second, and a handshake costs more than an answer."""

    def __init__(self, server: str, context: ssl.SSLContext | None, authorization: str | None) -> None:
        super().__init__(server, context, authorization, agent=_FIELD_MANAGER)
        self._kept = threading.local()

    def read(self, path: str, timeout: float) -> HTTPResponse:
        """The answer, its body unread: read all of it before the next call. OSError or HTTPException."""
        kept: HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is not None and kept.sock is not None:
            kept.sock.settimeout(timeout)
            with contextlib.suppress(ConnectionError, HTTPException, ssl.SSLError):  # the server was stopped since
                return self._get(kept, path)
        self._kept.connection = new = self._connection(timeout)
        return self._get(new, path)

    def _get(self, connection: HTTPConnection, path: str) -> HTTPResponse:
        headers = {name: value for name, value in self._headers.items() if name != "Connection"} | {"Accept": JSON}
        try:
            connection.request("GET", self._at.path.rstrip("/") + path, headers=headers)
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise


class ApiClient:
    """Requests with one identity."""

    def __init__(self, server: str, context: ssl.SSLContext | None, token: str) -> None:
        """Talk to `server` (a URL), verified by `context`, as the bearer of `token` unless empty; past any proxy."""
        self._server = _OpenConnection(server, context, f"Bearer {token}" if token else None)
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        """As a kubeconfig's user. ClusterError where it cannot be used."""
        login = Login(str(kubeconfig))
        return cls(login.server, login.trust, (login.authorization() or "").removeprefix("Bearer "))

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = JSON, timeout_seconds: float = 30.0
    ) -> dict[str, Any]:
        """One request; `path` starts with a slash and may carry a query.

        Returns:
            The answer as JSON, or empty if it has no body.

        Raises:
            ApiError: the server refused.
            OSError: the server did not answer.
        """
        with _answering():
            if method == "GET":
                response = self._server.read(path, timeout_seconds)
            else:
                response = self._server.open(method, path, body, content_type=content_type, timeout=timeout_seconds)
            answer = json.loads(_read(response) or b"{}")
        return answer if isinstance(answer, dict) else {"value": answer}

    def text(self, path: str, timeout_seconds: float = 30.0) -> str:
        """What is at `path` where that is no JSON, such as a log. Raises as `request`."""
        with _answering():
            return _read(self._server.read(path, timeout_seconds)).decode(errors="replace")

    def get(self, path: str) -> dict[str, Any]:
        """The object or list at `path`."""
        return self.request("GET", path)

    def items(self, path: str) -> list[dict[str, Any]]:
        """The items of the list at `path`."""
        items: list[dict[str, Any]] = self.request("GET", path)["items"]
        return items

    def create(self, path: str, manifest: Manifest) -> dict[str, Any]:
        """Create `manifest` in the collection at `path`."""
        return self.request("POST", path, dict(manifest))

    def patch(self, path: str, changes: Manifest) -> dict[str, Any]:
        """JSON merge patch."""
        return self.request("PATCH", path, dict(changes), content_type=MERGE_PATCH)

    def delete(self, path: str) -> dict[str, Any]:
        """Delete the object at `path`, with its dependents in the background."""
        return self.request("DELETE", path, {"propagationPolicy": "Background"})

    def apply(self, manifests: Manifests) -> list[dict[str, Any]]:
        """Server-side apply of every object, in order; CRDs are usable on return.

        Returns:
            The objects as the server stored them.

        Raises:
            ApiError: refused, or the kind is unknown after a minute.
        """
        return [self._apply_one(manifest) for manifest in load_manifests(manifests)]

    def path_of(self, manifest: Manifest) -> str:
        """URL path of the object that `manifest` describes.

        Raises:
            ApiError: 404, the server does not know the kind after a minute.
        """
        api_version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        plural, namespaced = self._resource(api_version, kind)
        metadata = manifest["metadata"]
        return path_of(
            api_version, plural, metadata.get("namespace", "default") if namespaced else None, metadata["name"]
        )

    def _apply_one(self, manifest: Manifest) -> dict[str, Any]:
        path = self.path_of(manifest)
        query = urllib.parse.urlencode({"fieldManager": _FIELD_MANAGER, "force": "true"})
        applied = self.request("PATCH", f"{path}?{query}", manifest, content_type=APPLY_PATCH)
        if manifest["kind"] == "CustomResourceDefinition":
            self._wait_established(path)
        return applied

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        """Plural name and whether namespaced; waits for a kind that was only just defined."""
        deadline = time.monotonic() + _DISCOVERY_TIMEOUT_SECONDS
        while (api_version, kind) not in self._resources:
            self._discover(api_version)
            if (api_version, kind) in self._resources:
                break
            if time.monotonic() > deadline:
                raise ApiError(404, f"the server has no {kind} in {api_version}")
            time.sleep(0.2)
        return self._resources[api_version, kind]

    def _discover(self, api_version: str) -> None:
        try:
            resources = self.get(base_of(api_version))["resources"]
        except ApiError as error:
            if error.status not in (404, 503):
                raise
            return
        for resource in resources:
            if "/" not in resource["name"]:
                entry = (resource["name"], bool(resource["namespaced"]))
                self._resources[api_version, resource["kind"]] = entry

    def _wait_established(self, path: str) -> None:
        deadline = time.monotonic() + _DISCOVERY_TIMEOUT_SECONDS
        while not _has_condition(self.get(path), "Established"):
            if time.monotonic() > deadline:
                raise ApiError(503, f"{path} is not established")
            time.sleep(0.1)


def _has_condition(manifest: Manifest, kind: str) -> bool:
    # A definition that is a moment old has `"conditions": null`.
    conditions = manifest.get("status", {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """An answer that breaks off is none: OSError."""
    try:
        yield
    except HTTPException as broken:
        raise ConnectionError(f"the answer broke off: {broken!r}") from broken


def _read(response: HTTPResponse) -> bytes:
    content = response.read()
    if response.status >= REFUSED:
        raise ApiError(response.status, _message(content))
    return content


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
