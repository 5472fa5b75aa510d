"""A real control plane and a real Prometheus for the integration tests of all processes, or for those of one."""

import contextlib
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import pytest

from servingpool.adapters.cluster.client import Cluster as Connection
from servingpool_lab import audit
from servingpool_lab.api_client import ApiError
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, wait_until
from servingpool_lab.prometheus import Prometheus

from ..placing import chain  # noqa: TID252, tests are no package of an installed name
from .backends import BACKENDS, Serve
from .one_for_all import Found, shared
from .operators import ACCOUNT, NAMESPACE, PATIENCE, Cluster, OperatorProcess, Traffic, install, settings_on
from .pod_pages import PodPages

PodMetrics = dict[tuple[str, str], str]
HERE = Path(__file__).parent
LONG = {"test_lab.py", "test_own_record.py", "test_roles.py"}
"""Over half a minute each. They begin right after the chains, so that none is left alone at the end."""
STORIES = {"test_handover.py"}
"""One operator process for the whole module: what a test does to it is what the next one finds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories as they are written, and files of ours among the others': ours wait, the others compute."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    ours: dict[object, list[Path]] = {}
    others: list[list[Path]] = []
    for path, tests in files.items():
        if HERE not in path.parents:
            others.append([path])
            continue
        ours.setdefault(chain(path) or path, []).append(path)
        for item in tests:  # only the test's own time: the first one also starts the cluster, or builds it
            item.add_marker(pytest.mark.timeout(1200, func_only=True))
    first = sorted(ours.values(), key=lambda one: (chain(one[0]) is None, one[0].name not in LONG, one[0].name))
    # Chains first, and each other with its place between 0 and 1.
    placed = [
        (index / len(some) if chain(each[0]) is None else -1.0, each)
        for some in (first, others)
        for index, each in enumerate(some)
    ]
    paths = [path for _, each in sorted(placed, key=itemgetter(0)) for path in each]
    items[:] = [item for path in paths for item in in_order(path, files[path])]


def in_order(path: Path, tests: list[pytest.Item]) -> list[pytest.Item]:
    """A story as it is written."""
    return sorted(tests, key=lambda item: item.location[1] or 0) if path.name in STORIES else tests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that read what was scraped do so through each server of the option, else through the module's own ones."""
    if "serve" in metafunc.fixturenames:
        through = metafunc.config.getoption("backend") or getattr(metafunc.module, "THROUGH", ("prometheus",))
        metafunc.parametrize("serve", through, indirect=True, scope="module")


@pytest.fixture(scope="module")
def serve(request: pytest.FixtureRequest) -> Serve:
    """Starts a scraper by its configuration, and the server that the operator asks; gives the URL."""
    return BACKENDS[request.param]


@pytest.fixture(scope="session")
def binaries() -> dict[str, Path]:
    # Minutes the first time: `python -m servingpool_lab.binaries` does it ahead of a test run.
    return ensure_binaries()


@dataclass
class Stage:
    """A control plane and the Prometheus beside it."""

    plane: ControlPlane
    prometheus: Prometheus


@dataclass
class Stages:
    """Those of this process. What another process may use ends with it."""

    binaries: dict[str, Path]
    directory: Path
    """Of this process."""
    common: Path
    """Of all processes of the run."""
    until: contextlib.ExitStack
    own: contextlib.ExitStack
    """Ends what no other process uses."""
    pages: PodPages = field(init=False)
    _target: str = ""
    _stages: dict[bool, Stage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.common / "pages").mkdir(exist_ok=True)
        self.pages = PodPages(self.common / "pages")

    def stage(self, *, own: bool) -> Stage:
        """A control plane of this process, or the one that all processes share."""
        if own not in self._stages:
            if own:
                self._stages[own] = self._start(self.directory, self.own)
                self.own.callback(self._stages.pop, own)
            else:
                told = self.until.enter_context(shared(self.common / "shared", self._start_shared))
                plane = ControlPlane.attach(Path(told["plane"]))
                self._stages[own] = Stage(plane, self._prometheus(plane, port=int(told["prometheus"])))
        return self._stages[own]

    def target(self) -> str:
        """host:port of a server that speaks for every pod."""
        if not self._target:
            port = free_ports(1)[0]
            command: list[str | Path] = [sys.executable, HERE / "pod_pages.py", self.common / "pages", str(port)]
            ready = http_ready(f"http://127.0.0.1:{port}/")
            server = SupervisedProcess("pod pages", command, self.directory / "pod-pages.log", ready=ready)
            self.until.callback(server.stop)
            server.start().wait_ready()
            self._target = f"127.0.0.1:{port}"
        return self._target

    def _start_shared(self, until: contextlib.ExitStack) -> Found:
        self.target()  # it ends later than what is started with it
        stage = self._start(self.common / "shared", until)
        return {"plane": str(stage.plane.directory), "prometheus": stage.prometheus.url.rpartition(":")[2]}

    def _start(self, within: Path, until: contextlib.ExitStack) -> Stage:
        """With the fake node gpu-0. Pods that do not say load for two seconds. The API server writes down who scales."""
        directory = Path(tempfile.mkdtemp(prefix="plane-", dir=within))
        plane = ControlPlane(
            directory,
            binaries=self.binaries,
            default_load_seconds=2.0,
            default_load_jitter_seconds=0.0,
            flags={
                "kube-apiserver": audit.flags(directory),
                "kube-controller-manager": ["--horizontal-pod-autoscaler-sync-period=1s"],
            },
        )
        until.enter_context(plane).add_gpu_node("gpu-0", gpus=8)
        return Stage(plane, until.enter_context(self._prometheus(plane)))

    def _prometheus(self, plane: ControlPlane, port: int | None = None) -> Prometheus:
        """Scrapes every ready pod once a second."""
        return Prometheus(
            plane.directory / "prometheus",
            plane.viewer_kubeconfig("prometheus"),
            self.target(),
            scrape_interval_seconds=1.0,
            port=port,
            binary=self.binaries["prometheus"],
        )


UNTIL, OWN = pytest.StashKey[contextlib.ExitStack](), pytest.StashKey[contextlib.ExitStack]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Not in a fixture's end, whose time is the last test's: another process may be busy for minutes."""
    for key in (OWN, UNTIL):
        session.config.stash.get(key, contextlib.ExitStack()).close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The control plane of a chain ends with it: one that waits takes 2.4 s of CPU a minute."""
    if chain(item.path) is not None and (nextitem is None or chain(nextitem.path) is None):
        item.config.stash.get(OWN, contextlib.ExitStack()).close()


@pytest.fixture(scope="session")
def stages(binaries: dict[str, Path], pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    until, own = (pytestconfig.stash.setdefault(key, contextlib.ExitStack()) for key in (UNTIL, OWN))
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Stages(binaries, tmp_path_factory.mktemp("stages"), common, until, own)


@pytest.fixture(scope="module")
def _stage(stages: Stages, request: pytest.FixtureRequest) -> Stage:
    return stages.stage(own=chain(request.path) is not None)


@pytest.fixture(scope="module")
def control_plane(_stage: Stage) -> ControlPlane:
    """Of the tests of all processes, or of those of this one: see tests/placing.py."""
    return _stage.plane


@pytest.fixture(scope="module")
def prometheus(_stage: Stage) -> Prometheus:
    """Scrapes every ready pod once a second."""
    return _stage.prometheus


@pytest.fixture(scope="session")
def pod_metrics(stages: Stages) -> PodMetrics:
    """What each pod, by namespace and name, exposes. Tests write, Prometheus reads."""
    return stages.pages


@pytest.fixture(scope="session")
def metrics_target(stages: Stages) -> str:
    """host:port of a server that speaks for every pod."""
    return stages.target()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own."""
    with own_namespace(control_plane) as name:
        yield name


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """For modules whose `cluster` lasts as long as they do."""
    settings = settings_on(prometheus.url)
    with OperatorProcess(cluster.plane, tmp_path_factory.mktemp("operator"), settings).running() as operator:
        yield operator


@pytest.fixture
async def connection(control_plane: ControlPlane) -> AsyncIterator[Connection]:
    """With the operator's own rights: an apply would make a pod that is gone, for who may create pods."""
    for manifest in ("namespace.yaml", "rbac.yaml", "admissionpolicy.yaml"):
        control_plane.apply(HERE.parents[1] / "deploy" / manifest)
    found = await Connection.connect(str(control_plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)))
    yield found
    await found.aclose()


@pytest.fixture
def cluster(control_plane: ControlPlane, pod_metrics: PodMetrics, namespace: str) -> Iterator[Cluster]:
    """The test's own namespace under traffic, in a cluster in which the operator may start."""
    install(control_plane, namespace)
    with Traffic(control_plane, pod_metrics) as traffic:
        yield Cluster(control_plane, traffic, namespace)


@contextlib.contextmanager
def own_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace. When it ends, the GPUs of its pods are free again."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    wait_until(lambda: bool(control_plane.client.items(accounts)), PATIENCE, accounts)
    yield name
    with contextlib.suppress(ApiError):  # a test may have deleted it
        control_plane.client.delete(f"/api/v1/namespaces/{name}")
    wait_until(lambda: not _kill_pods(control_plane, name), PATIENCE, f"{name} without pods")


def _kill_pods(control_plane: ControlPlane, namespace: str) -> list[str]:
    """Delete all pods without grace; returns those there were."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [pod["metadata"]["name"] for pod in control_plane.client.items(path)]
    for name in names:
        with contextlib.suppress(ApiError):  # gone meanwhile
            control_plane.client.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
    return names
