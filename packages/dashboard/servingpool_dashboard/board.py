"""The pools as they are now, or as they were when the API server last answered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from servingpool.adapters.cluster.errors import ClusterError, Forbidden
from servingpool.adapters.cluster.pools import Pools
from servingpool.api.spec import Spec
from servingpool_dashboard import pods
from servingpool_dashboard.rows import Filter, Key, Row, row_of

PROBE = 10.0
"""Seconds between two looks whether the API server still answers."""
RETRY, PAUSE = 5.0, 1.0
"""Seconds until the next try after it did not, and after a watch has ended: a proxy may end each at once."""

Workload = tuple[str, str, str]
"""Namespace, kind and name."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sight:
    """All pools at one time."""

    version: int
    """Another one where anything has changed that a page shows."""
    rows: tuple[Row, ...]
    """The worst first."""
    namespaces: tuple[str, ...]
    read_at: float | None
    """When the API server last answered, Unix seconds; None if it never did."""
    failure: str
    """Why it does not answer now; empty if it does."""
    nobody: str
    """That no operator leads, in a sentence; empty where one does."""

    def found(self, wanted: Filter) -> list[Row]:
        """The pools that are asked for."""
        return [row for row in self.rows if wanted.wants(row)]


class Board:
    """Keeps up with a cluster in two threads of its own: one watches, one looks whether the API server answers."""

    def __init__(
        self,
        connect: Callable[[], Pools],
        namespace: str | None,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = print,
    ) -> None:
        """`connect` may raise ClusterError. It is called again after each failure, as credentials may be new.

        `tell` is given each failure once, and the end of it.
        """
        self._connect, self._namespace, self._clock, self._tell = connect, namespace, clock, tell
        self._lock = threading.Lock()
        self._rows: dict[Key, Row] = {}
        self._stored: dict[Key, bytes] = {}
        self._cluster: Pools | None = None
        self._since = ""
        """The resourceVersion up to which everything was seen; empty where a list is due."""
        self._read_at: float | None = None
        self._failures = {"read": "", "probe": ""}
        """Why each thread got no answer; empty if it did."""
        self._nobody = ""
        self._scalers: dict[Workload, Mapping[str, Any] | None] = {}
        self._version = 1
        self._sight: Sight | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to follow the cluster."""
        threading.Thread(target=self._follow, daemon=True, name="watch").start()
        threading.Thread(target=self._probe, daemon=True, name="probe").start()

    def stop(self) -> None:
        """Let the threads end; they are daemons, so none is waited for."""
        self._stopped.set()

    def read(self) -> None:
        """List all pools if need be, and watch until the API server ends that. A failure is kept, not raised."""
        try:
            if self._cluster is None or not self._since:
                self._cluster = self._connect()
                self._since = self._list(self._cluster)
            for event in self._cluster.watch(self._namespace, None, self._since):
                if event["type"] == "ERROR":  # such as 410: the version is no longer kept
                    self._since = ""
                    return
                self._since = event["object"]["metadata"]["resourceVersion"]
                self._see(event)
        except Forbidden as error:
            narrow = "" if self._namespace else ". Give -n NAMESPACE if you may read the pools of one namespace only"
            self._told("read", f"{error}{narrow}")
        except ClusterError as error:
            self._told("read", str(error))
        except Exception as error:
            _log.exception("reading the pools failed")
            self._told(
                "read", f"Internal error while the pools were read ({type(error).__name__}); the terminal shows it"
            )

    def probe(self) -> None:
        """Look once whether the API server answers."""
        if self._cluster is None:
            return
        try:
            self._cluster.probe(self._namespace)
        except ClusterError as error:
            self._told("probe", str(error))
        else:
            before, self._nobody = self._nobody, self._cluster.nobody_decides(self._clock())
            self._told("probe", "", changed=before != self._nobody)

    @property
    def sight(self) -> Sight:
        """All pools now. Sorted once for each change, not for each page."""
        with self._lock:
            if self._sight is None or self._sight.version != self._version:
                rows = tuple(sorted(self._rows.values(), key=lambda row: row.order))
                spaces = tuple(sorted({namespace for namespace, _ in self._rows}))
                self._sight = Sight(self._version, rows, spaces, self._read_at, self._failure, self._nobody)
            return replace(self._sight, read_at=self._read_at)

    @property
    def _failure(self) -> str:
        return self._failures["read"] or self._failures["probe"]

    def pool(self, key: Key) -> Row | None:
        """One pool; None where there is none of this name."""
        with self._lock:
            stored = self._stored.get(key)
        return None if stored is None else row_of(orjson.loads(stored))

    def listed(self, key: Key, spec: Spec) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]], str]:
        """A pool's pods and its events now, and why they cannot be read; empty where they can."""
        try:
            if self._cluster is None or self._failure:
                return [], [], self._failure
            return pods.listed(self._cluster, key[0], spec), pods.events(self._cluster, *key), ""
        except ClusterError as error:
            return [], [], str(error)

    def last_autoscaler(self, target: Workload) -> Mapping[str, Any] | None:
        """The HorizontalPodAutoscaler of a workload as `autoscaler` found it last; a page does not wait for it."""
        return self._scalers.get(target)

    def autoscaler(self, target: Workload) -> Mapping[str, Any] | None:
        """The HorizontalPodAutoscaler of a workload now; None where there is none, or where it may not be read."""
        namespace, kind, name = target
        try:
            found = [] if self._cluster is None or self._failure else self._cluster.autoscalers(namespace)
        except ClusterError:
            found = []
        ours = {"kind": kind, "name": name}.items()
        self._scalers[target] = next((one for one in found if ours <= one["spec"]["scaleTargetRef"].items()), None)
        return self._scalers[target]

    def _follow(self) -> None:
        while not self._stopped.is_set():
            self.read()
            if self._failure:
                self._since = ""
            self._stopped.wait(RETRY if self._failure else PAUSE)

    def _probe(self) -> None:
        while not self._stopped.wait(PROBE):
            self.probe()

    def _list(self, cluster: Pools) -> str:
        rows: dict[Key, Row] = {}
        stored: dict[Key, bytes] = {}
        version = ""
        for page in cluster.pages(self._namespace):
            version = page["metadata"]["resourceVersion"]
            for raw in page["items"]:
                row = row_of(raw)
                rows[row.key], stored[row.key] = _light(row), _kept(raw)
            if self._read_at is None or len(rows) > len(self._rows):  # the first time, page by page: it takes seconds
                self._show(dict(rows), dict(stored))
        self._show(rows, stored)
        return version

    def _show(self, rows: dict[Key, Row], stored: dict[Key, bytes]) -> None:
        with self._lock:
            self._rows, self._stored = rows, stored
        self._told("read", "", changed=True)

    def _see(self, event: Mapping[str, Any]) -> None:
        raw = event["object"]
        row = row_of(raw)
        with self._lock:
            if event["type"] == "DELETED":
                self._rows.pop(row.key, None)
                self._stored.pop(row.key, None)
            else:
                self._rows[row.key], self._stored[row.key] = _light(row), _kept(raw)
        self._told("read", "", changed=True)

    def _told(self, thread: str, failure: str, *, changed: bool = False) -> None:
        """A thread has an answer, or a failure."""
        with self._lock:
            before = self._failure
            self._version += changed or failure != self._failures[thread]
            self._failures[thread] = failure
            self._read_at = self._read_at if failure else self._clock()
            now = self._failure
        if now != before:
            self._tell(f"The pools cannot be read: {now}." if now else "The pools can be read again.")


def _kept(raw: Mapping[str, Any]) -> bytes:
    """Without what no page shows: the learned profile is 9 KiB of each pool."""
    status = {name: value for name, value in (raw.get("status") or {}).items() if name != "profile"}
    meta = {name: raw["metadata"].get(name) for name in ("namespace", "name")}
    return orjson.dumps({"metadata": meta, "spec": raw.get("spec"), "status": status})


def _light(row: Row) -> Row:
    """Without the parts of the status that the table does not show."""
    left_out = {"history": (), "last_decision": None, "profile": None, "conditions": ()}
    return replace(row, status=row.status.model_copy(update=left_out))
