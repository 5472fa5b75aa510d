"""What the API server says of the pods, told to whoever asks for it; and the exit of a server that has drained."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from servingpool.adapters.cluster.client import Connection
from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.kinds import path_of
from servingpool_lab.kwok import app_of

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
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

    def __init__(self, api: Connection, namespace: str, selector: str) -> None:
        self._api, self._path = api, path_of("v1", "pods", namespace)
        self._selector = selector

    async def follow(self, sink: PodSink) -> None:
        """Tells `sink` of every change, for ever. While the API server is away, what was last told stands."""
        while True:
            try:
                listed = await self._api.get(self._path, labelSelector=self._selector)
                sink.see_all([pod_of(manifest) for manifest in listed["items"]])
                since = listed["metadata"]["resourceVersion"]
                # The API server ends the watch after a while, and the list that follows heals whatever was missed.
                changes = self._api.watch(self._path, "watch pods", labelSelector=self._selector, resourceVersion=since)
                async for kind, manifest in changes:
                    sink.see(pod_of(manifest, deleted=kind == "DELETED"))
            except ClusterError as error:
                log.warning("%s. Retrying in %g s", error, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)

    async def exit(self, namespace: str, name: str) -> None:
        """The server in this pod has exited: removes the pod, as the kubelet does then."""
        path = path_of("v1", "pods", namespace, name)
        try:
            await self._api.request("DELETE", path, f"remove Pod {namespace}/{name}", query={"gracePeriodSeconds": 0})
        except ClusterError as error:
            log.warning("%s", error)  # the grace period ends it anyway, a little later
