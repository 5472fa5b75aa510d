"""The composition root: it creates every part and passes it to those that need it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import threading
import time
import uuid

import kopf
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.adapters.cluster.lease import Election, Terms
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.adapters.cluster.session import session_of
from servingpool.adapters.cluster.shard_lease import ShardMembership
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.cli.web import health, serve
from servingpool.gpubudget.budgets import Budgets
from servingpool.gpubudget.report import BudgetReporter
from servingpool.handlers.lifecycle import live
from servingpool.handlers.watching import Watches
from servingpool.loop.backfill import Backfill
from servingpool.loop.metrics import LoopMetrics, PoolCollector
from servingpool.loop.operator import Candidate, Heartbeat, Operator, SteadyClock
from servingpool.loop.reconciler import All, Reconciler, Share
from servingpool.loop.shards import Shards
from servingpool.reconcile.act import Actor
from servingpool.reconcile.collect.readings import Readings
from servingpool.reconcile.config import OperatorConfig
from servingpool.status.report import Reporter

log = logging.getLogger(__name__)

GC_THRESHOLDS = (50_000, 20, 100)
"""Samples of 20,000 pods are a hundred thousand objects that live for one tick. With the default thresholds the
collector also scans older objects, which costs 7% of a read."""
MOST_FILES = 65_536
"""Open files that the process may have: systemd's default of 1,024 is less than some fleets' connections."""
LONGEST_END = 28.0
"""Seconds from the end of the operator to that of the process, whatever hangs: the grace period is 30 s."""


class _Assembly:
    """Objects that live as long as kopf's event loop."""

    def __init__(self, config: OperatorConfig, kubeconfig: str | None) -> None:
        self._config, self._kubeconfig = config, kubeconfig
        self._cache = ClusterCache()
        self.watches = Watches(self._cache, time.monotonic, config.namespaces)
        self.stop_flag = asyncio.Event()
        self.lost = False
        self.failure: Exception | None = None
        """Why the start failed."""
        self._operator: Operator | None = None
        self._login: Login | None = None
        self._cluster: Cluster | None = None
        self._backends: dict[str, PrometheusBackend] = {}

    async def start(self) -> None:
        """Connect and start the loop."""
        try:
            await self._start()
        except Exception as error:
            self.failure = error
            self.stop_flag.set()  # as in `stop`, which kopf does not call after this
            raise

    async def _start(self) -> None:
        config = self._config
        self._login = await asyncio.to_thread(Login, self._kubeconfig)
        cluster = self._cluster = Cluster.of(self._login)
        profiles = config.known_engines, config.known_gateways
        self._backends = {backend.name: PrometheusBackend(backend, *profiles) for backend in config.backends}
        await self.watches.expect(self._cluster)
        candidate, share = _candidate(self._cluster, config, self.watches)
        actor = Actor(self._cluster, self._cache, deletion_costs=config.pod_deletion_cost.enabled)
        reporter = Reporter(self._cluster, self._cache)
        targets = TargetReader(self._cluster, self._cache, time.monotonic)
        reconciler = Reconciler(
            targets,
            Readings(self._backends, *profiles),
            Backfill(self._backends, history=config.history),
            actor,
            reporter,
            share=share,
            interval=config.interval,
            prices=config.prices,
            budgets=BudgetReporter(Budgets(targets, ClaimTemplates(self._cluster)), self._cluster),
        )
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        registry.register(
            PoolCollector(
                lambda: reconciler.snapshot,
                lambda: cluster.writes,
                lambda: actor.failures | reporter.failures,
                lambda: reconciler.shared,
                lambda: self.watches.left_out,
                self._cache.left_out.kinds,
            )
        )
        if config.metrics_port:
            serve(config.metrics_port, make_wsgi_app(registry))
        operator = self._operator = Operator(
            reconciler,
            self.watches,
            candidate,
            LoopMetrics(registry),
            Heartbeat(time.monotonic),
            interval=config.interval,
            now=SteadyClock(time.time, time.monotonic),
            lost=self._leave,
        )
        if isinstance(candidate, ShardMembership):
            candidate.changed, candidate.alive = operator.share_changed, lambda: operator.alive
        if config.health_port:
            serve(config.health_port, health(self._problem, asyncio.get_running_loop()))
        self._operator.start()

    async def stop(self) -> None:
        """Stop the loop and disconnect."""
        self.stop_flag.set()  # else kopf waits five seconds for its own waiter for it
        end = threading.Timer(LONGEST_END, os._exit, (1,))
        end.daemon = True
        end.start()
        if self._operator is not None:
            await self._operator.stop()
        await asyncio.gather(*(backend.aclose() for backend in self._backends.values()))
        if self._cluster is not None:
            await self._cluster.aclose()

    async def _problem(self) -> str | None:
        """Why the operator should be restarted."""
        return self.watches.problem or (self._operator.problem if self._operator is not None else None)

    async def login(self) -> kopf.AiohttpSession:
        """Give kopf a session of its own, with the same login as ours."""
        assert self._login is not None, "kopf logs in after the start"
        session = session_of(self._login, tolerant=True)
        return kopf.AiohttpSession(server=self._login.server, aiohttp_session=session)

    def _leave(self) -> None:
        self.lost = True
        self.stop_flag.set()


def operate(config: OperatorConfig, kubeconfig: str | None) -> int:
    """Run until stopped. Returns the process's exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    assembly = _Assembly(config, kubeconfig)
    registry = kopf.OperatorRegistry()
    live(registry, scoped=bool(config.namespaces), start=assembly.start, stop=assembly.stop, login=assembly.login)
    assembly.watches.register(registry)
    try:
        kopf.run(
            registry=registry,
            standalone=True,
            clusterwide=not config.namespaces,
            namespaces=config.namespaces,
            insights=assembly.watches.insights,
            stop_flag=assembly.stop_flag,
        )
    except Exception as error:
        log.error("The operator stops: %s", assembly.failure or error_text(error))  # noqa: TRY400, kopf has logged the traceback
        return 1
    return 1 if assembly.lost else 0


def error_text(error: Exception) -> str:
    """One line. kopf's error of a request may be "404 page not found" alone, and its cause has the URL."""
    text = " ".join((getattr(error, "message", None) or str(error)).split()) or type(error).__name__
    request = getattr(error.__cause__, "request_info", None)
    return text if request is None else f"{text} ({request.method} {request.real_url})"


def _candidate(cluster: Cluster, config: OperatorConfig, watches: Watches) -> tuple[Candidate | None, Share]:
    """Who says whether we may write, and for what."""
    settings, host = config.leader_election, socket.gethostname()
    namespace = settings.namespace or os.environ.get("POD_NAMESPACE") or "servingpool-system"
    identity = f"{host}_{uuid.uuid4().hex[:8]}"
    if config.shards.enabled:
        member = ShardMembership(cluster, namespace, settings.name, identity, clock=time.monotonic)
        # The chart gives the pod's name; a process outside a cluster has one with its number.
        name = os.environ.get("POD_ID", host)
        return member, Shards(member, name, time.monotonic, lambda: watches.listed_at)
    if not settings.enabled:
        return None, All(lambda: True)
    election = Election(
        cluster,
        (namespace, settings.name),
        identity,
        terms=Terms(settings.duration, settings.deadline, settings.retry),
        clock=time.monotonic,
    )
    return election, All(lambda: election.leading)
