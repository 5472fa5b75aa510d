"""Requests to the API server for the operator, the commands that survey a cluster, and the lab's emulator.

On the `kubernetes` package's asyncio client, with plain data in and out, for any group: `CoreV1Api` alone imports 90 MB
of models, and reading a Lease through the typed APIs loses the form of its times. `api_server` is the synchronous twin.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import aiohttp
import orjson
from kubernetes.aio import client, config

from servingpool.adapters.cluster.errors import ClusterError, answer, said, unanswered, why
from servingpool.adapters.cluster.kubeconfig import NO_FILE, Credentials, choose, credentials_in, unusable
from servingpool.adapters.cluster.paths import JSON

TIMEOUT = 10.0
"""Seconds for one request. The client's own default is five minutes: twenty ticks."""
WATCHED = 300
"""Seconds after which the API server ends a watch."""
AT_ONCE = 100
"""Connections at a time; more requests wait for one."""
OK = 200
LOST = (TimeoutError, aiohttp.ClientError, OSError)
"""What the client raises where no answer comes."""


async def credentials(kubeconfig: str | None) -> Credentials:
    """Those that `Connection.connect` uses, read anew: a token may have been renewed, by a plugin too."""
    settings = await _configuration(kubeconfig, None)
    return credentials_in(settings, await settings.get_api_key_with_prefix("BearerToken"))


class Connection:
    """Connections to one API server, kept for the life of the process."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """Connect with a kubeconfig's path, or else as the pod's service account, or else with `~/.kube/config`."""
        return cls(client.ApiClient(await _configuration(kubeconfig, context)))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._api.close()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """Whatever stands at a path of the API, as plain data. NotFound if nothing does."""
        return await self.request("GET", path, f"read {path}", query=query)

    async def request(
        self,
        method: str,
        path: str,
        what: str,
        body: object = None,
        *,
        query: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> dict[str, Any]:
        """The answer, decoded. A ClusterError says "Cannot" and `what`, such as "scale Deployment chat/vllm"."""
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            response = await self._send(method, path, query, headers, body)
            content = await response.read()
        except config.ConfigException as error:  # a service account's token is read anew once a minute
            raise ClusterError(f"Cannot {what}: {error}") from error
        except LOST as error:
            raise unanswered(what, type(error).__name__, why(error)) from error
        return answer(what, response.status, response.reason, content, loads=orjson.loads)

    async def watch(self, path: str, what: str, **query: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Changes of a list, as type and object, until the API server ends the watch. Raises as `request`."""
        given = {**query, "watch": "true", "timeoutSeconds": WATCHED}
        try:
            response = await self._send("GET", path, given, {"Accept": JSON}, None, WATCHED + TIMEOUT)
            async with response.response as stream:
                if stream.status != OK:
                    answer(what, stream.status, stream.reason, await stream.read())
                async for line in stream.content:
                    change = answer(what, OK, None, line, loads=orjson.loads)
                    if change["type"] == "ERROR":  # such as a resourceVersion that is too old
                        raise ClusterError(f"Cannot {what}: {said(change['object'].get('message'))}")
                    yield change["type"], change["object"]
        except LOST as error:
            raise unanswered(what, type(error).__name__, why(error)) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        headers: dict[str, str],
        body: object,
        within: float | None = None,
    ) -> Any:
        """The answer, its body unread. `within`: seconds for all of it, `TIMEOUT` by default."""
        request = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        return await self._api.call_api(*request, _request_timeout=within or TIMEOUT)


async def _configuration(kubeconfig: str | None, context: str | None) -> client.Configuration:
    settings = client.Configuration(connection_pool_maxsize=AT_ONCE)
    try:
        if kubeconfig is None and context is None:
            with contextlib.suppress(config.ConfigException):
                config.load_incluster_config(client_configuration=settings)
                return settings
        chosen = choose(kubeconfig, context)
        if chosen is None:
            raise unusable(NO_FILE)
        # By name: the client takes KUBECONFIG as it was when it was imported, and the last file's context.
        await config.load_kube_config(chosen.path, context=chosen.name, client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        raise unusable(str(error)) from error
    return settings
