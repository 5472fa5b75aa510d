"""What the API server says of the pods, told to whoever asks for it; and the exit of a server that has drained."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from kubernetes.aio import client, config, watch
from kubernetes.aio.client.exceptions import ApiException

from servingpool_lab.kwok import app_of

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_WATCH_SECONDS = 300
_SLEEP = re.compile(r"^\d+(\.\d+)?$")


class Standing(StrEnum):
    """Where a pod is in its life."""

    PENDING = "pending"
    """No node has it."""
    LOADING = "loading"
    READY = "ready"
    TERMINATING = "terminating"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, as far as an emulated server depends on it."""

    namespace: str
    name: str
    standing: Standing
    pre_stop: float = 0.0
    """Seconds that its preStop hook sleeps."""
    app: str = ""
    """Its Deployment, see `kwok.app_of`; empty if unknown."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class PodSink(Protocol):
    """Whoever wants to know of pods."""

    def see(self, pod: Pod) -> None:
        """A pod appeared or changed."""

    def see_all(self, pods: list[Pod]) -> None:
        """These are all pods that there are."""


def pod_of(manifest: Mapping[str, Any], *, deleted: bool = False) -> Pod:
    """A pod from its manifest, as the API server returns it."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if deleted or status.get("phase") in ("Succeeded", "Failed"):
        standing = Standing.GONE
    elif metadata.get("deletionTimestamp"):
        standing = Standing.TERMINATING
    elif conditions.get("Ready") == "True":
        standing = Standing.READY
    else:
        standing = Standing.LOADING if manifest["spec"].get("nodeName") else Standing.PENDING
    return Pod(metadata["namespace"], metadata["name"], standing, _pre_stop(manifest["spec"]), app_of(manifest))


def _pre_stop(spec: Mapping[str, Any]) -> float:
    """The longest preStop sleep of the containers; a hook that does something else counts as none."""
    seconds = [0.0]
    for container in spec["containers"]:
        hook = (container.get("lifecycle") or {}).get("preStop") or {}
        command = (hook.get("exec") or {}).get("command") or []
        if "sleep" in hook:
            seconds.append(float(hook["sleep"]["seconds"]))
        elif len(command) == 2 and command[0].endswith("sleep") and _SLEEP.match(command[1]):
            seconds.append(float(command[1]))
    return max(seconds)


class Pods:
    """The pods of one namespace with given labels."""

    def __init__(self, api: client.ApiClient, namespace: str, selector: str) -> None:
        self._core = client.CoreV1Api(api)
        self._scope: dict[str, Any] = {"namespace": namespace, "label_selector": selector}

    @staticmethod
    async def connect(kubeconfig: Path) -> client.ApiClient:
        """A client with the identity of a kubeconfig."""
        configuration = client.Configuration()
        await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        return client.ApiClient(configuration)

    async def follow(self, sink: PodSink) -> None:
        """Tells `sink` of every change, for ever. While the API server is away, what was last told stands."""
        while True:
            try:
                listed = await self._list()
                sink.see_all([pod_of(manifest) for manifest in listed["items"]])
                async for kind, manifest in self._changes(listed["metadata"]["resourceVersion"]):
                    sink.see(pod_of(manifest, deleted=kind == "DELETED"))
            except (ApiException, aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("watching pods failed, retrying in %g s: %s", _RETRY_SECONDS, error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def exit(self, namespace: str, name: str) -> None:
        """The server in this pod has exited: removes the pod, as the kubelet does then."""
        try:
            await self._core.delete_namespaced_pod(name, namespace, grace_period_seconds=0, _request_timeout=10)
        except (ApiException, aiohttp.ClientError, OSError, TimeoutError) as error:
            # The grace period ends it anyway, a little later.
            log.warning("removing pod %s/%s failed: %s", namespace, name, error)

    async def _list(self) -> dict[str, Any]:
        answer = await self._core.list_namespaced_pod_without_preload_content(**self._scope, _request_timeout=10)
        if answer.status != 200:
            raise ApiException(status=answer.status, reason=await answer.text())
        listed: dict[str, Any] = await answer.json()
        return listed

    async def _changes(self, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        # With timeout_seconds the watch ends by itself, and the list that follows heals whatever was missed.
        async with watch.Watch(return_type="object") as stream:
            events = stream.stream(
                self._core.list_namespaced_pod,
                **self._scope,
                resource_version=version,
                timeout_seconds=_WATCH_SECONDS,
                _request_timeout=_WATCH_SECONDS + 30,
            )
            async for event in events:
                yield event["type"], event["raw_object"]
