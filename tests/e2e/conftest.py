"""One kind cluster for the whole run: images, Prometheus, the operator, and every scenario's workload, once."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from servingpool_lab.api_client import ApiError

from . import release as operator_release
from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .helm import Helm
from .images import ROOT, Images, build
from .load import LoadGenerator, load_generator_manifests
from .pools import serving_pool, wait_condition
from .prometheus import PrometheusRelease, only, rule_groups
from .release import OperatorRelease
from .results import Results
from .shell import CommandError, lacking
from .steady import Steady
from .waiting import eventually

NAME = os.environ.get("E2E_CLUSTER", "servingpool-e2e")
KEEP = os.environ.get("E2E_KEEP") == "1"
REPORT = Path(os.environ.get("E2E_REPORT", ROOT / "report" / "e2e"))
FIRST = "first"
"""Namespace and name of the pool that is there before the operator is."""
PASSED, FAILED = pytest.StashKey[list[str]](), pytest.StashKey[list[str]]()
"""Names of the tests that did so far."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PASSED], config.stash[FAILED] = [], []
    config.addinivalue_line("markers", "disruptive: harms what all share; runs after all others")
    config.addinivalue_line("markers", "drain: 200 scale-downs under load; `make e2e-drain` runs it")
    config.addinivalue_line("markers", "vllm: real vLLM; `make e2e-vllm` runs it")
    config.addinivalue_line("markers", "llamacpp: real llama-server; `make e2e-llamacpp` runs it")


def pytest_sessionstart(session: pytest.Session) -> None:
    problem = None if session.config.option.collectonly else lacking()
    if problem is not None:
        pytest.exit(problem, returncode=2)
    if not session.config.option.collectonly:
        # As Ctrl-C: a job that is cancelled deletes its cluster too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.config.stash[FAILED].append(item.name)
    elif report.passed and report.when == "call":
        item.config.stash[PASSED].append(item.name)
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a module's `require()` skips for is known before there is a cluster."""
    require = getattr(getattr(item, "module", None), "require", None)
    if require is not None:
        require()


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Iterator[Results]:
    """The last line names what failed, and only what passed in full is published."""
    results = Results(REPORT)
    yield results
    passed, failed = request.config.stash[PASSED], request.config.stash[FAILED]
    results.verdict = f"{len(passed)} of {len(request.session.items)} tests passed."
    if failed:
        results.verdict += f" Failed: {', '.join(failed)}."
    results.save()
    # A run that was cut short has no failure, and is none to publish either.
    if os.environ.get("E2E_PUBLISH") == "1" and not failed and len(passed) == len(request.session.items):
        results.publish(ROOT / "docs" / "records", REPORT.name)


@pytest.fixture(scope="session")
def images_and_cluster(results: Results) -> Iterator[tuple[Images, Cluster]]:
    """Side by side: one waits for the disk, the other for its containers."""
    cluster = Cluster(NAME, ROOT / "build" / "e2e" / f"{NAME}.kubeconfig")
    started = time.monotonic()
    try:
        with ThreadPoolExecutor() as pool:
            built, made = pool.submit(build), pool.submit(_make, cluster)
            images = built.result()
            results.add(scenario="images built", seconds=seconds_since(started))
            made.result()
        cluster.load(images.all)
        results.add(scenario="cluster made, images on its node", seconds=seconds_since(started))
        yield images, cluster
    finally:
        _keep(
            results, "cluster.txt", lambda: cluster.kubectl("get", "pods,events", "--all-namespaces", "--output=wide")
        )
        if not KEEP:
            cluster.delete()


def _make(cluster: Cluster) -> None:
    if cluster.exists():
        if KEEP:
            cluster.connect()
            return
        cluster.delete()
    cluster.create()


@pytest.fixture(scope="session")
def images(images_and_cluster: tuple[Images, Cluster]) -> Images:
    return images_and_cluster[0]


@pytest.fixture(scope="session")
def cluster(images_and_cluster: tuple[Images, Cluster]) -> Cluster:
    return images_and_cluster[1]


@pytest.fixture(scope="session")
def helm(cluster: Cluster) -> Helm:
    return Helm(cluster.kubeconfig)


@pytest.fixture(scope="session")
def prometheus(cluster: Cluster, helm: Helm, images: Images) -> PrometheusRelease:
    """With the operator chart's alerts loaded."""
    chart, release, twins = operator_release.CHART, operator_release.RELEASE, operator_release.TWINS
    groups = rule_groups(helm, chart, release, operator_release.NAMESPACE)
    # The alerts name the namespace of their release, and the twins are there to lead both at once.
    groups += only(rule_groups(helm, chart, twins, twins), "ServingPoolTwoLeaders")
    prometheus = PrometheusRelease(cluster, helm, images.prometheus, groups)
    prometheus.install()
    return prometheus


@pytest.fixture(scope="session")
def load(cluster: Cluster) -> LoadGenerator:
    """One load generator for all scenarios."""
    namespace = cluster.namespace("load")
    # A pod of an earlier run has its traffic under way, and perhaps another image.
    cluster.gone(f"/api/v1/namespaces/{namespace}/pods/load-generator")
    cluster.apply(load_generator_manifests(namespace))
    eventually(lambda: _serves(cluster, "load"), 120, "the load generator")
    return LoadGenerator(cluster.kubectl)


@pytest.fixture(scope="session")
def operator(
    cluster: Cluster, helm: Helm, images: Images, prometheus: PrometheusRelease, results: Results
) -> Iterator[OperatorRelease]:
    """Installed beside a workload that is there already, as a user would: one `helm install`, one `kubectl apply`."""
    cluster.namespace(FIRST)
    cluster.apply(engine_manifests(Engine(name=FIRST, namespace=FIRST, model=FIRST, replicas=1, load_seconds=1)))
    eventually(lambda: cluster.ready(FIRST, FIRST) == 1, 180, "the first engine")
    operator = OperatorRelease(cluster, helm, images.operator)
    started = time.monotonic()
    try:
        operator.install(wait=False)
        installed = seconds_since(started)
        cluster.apply(serving_pool(FIRST, FIRST, mode="Recommend"))
        wait_condition(cluster, FIRST, FIRST, "Ready", ("True", "Recommending"), 180)
        wait_condition(cluster, FIRST, FIRST, "MetricsAvailable", ("True", "ValidMetrics"), 60)
        results.add(
            scenario="helm install, kubectl apply: a pool in Recommend mode is judged on its metrics",
            seconds=seconds_since(started),
            helm_install_s=installed,
        )
        yield operator
    finally:
        _keep(results, "operator.log", operator.logs)


def _keep(results: Results, name: str, said: Callable[[], str]) -> None:
    """A file for whoever looks for what went wrong; a cluster that no longer answers is no second error."""
    try:
        results.write(name, said())
    except (ApiError, CommandError, OSError) as error:
        results.write(name, f"nothing: {error}\n")


@pytest.fixture(scope="session", autouse=True)
def prepared(request: pytest.FixtureRequest, cluster: Cluster, load: LoadGenerator, operator: OperatorRelease) -> None:
    """Every selected module's `prepare(cluster, load)`, so that what loads and what runs overlaps.

    A module that judges what another one sets up names it in `NEEDS`, so that it can be run alone. One that is `ALONE`
    measures the machine's own cores: no traffic of ours beside it.
    """
    selected = dict.fromkeys(item.module for item in request.session.items if isinstance(item, pytest.Function))
    if not all(getattr(module, "ALONE", False) for module in selected):
        request.getfixturevalue("steady")
    for module in dict.fromkeys(each for one in selected for each in (*getattr(one, "NEEDS", ()), one)):
        prepare = getattr(module, "prepare", None)
        if prepare is not None:
            prepare(*(cluster, load)[: len(inspect.signature(prepare).parameters)])


@pytest.fixture(scope="module", autouse=True)
def cleared(request: pytest.FixtureRequest, cluster: Cluster, load: LoadGenerator) -> Iterator[None]:
    """A module's `COURSES` end and its `NAMESPACES` go when its last test is over.

    A small machine has room for so many pods only, and a generator that asks a deleted namespace takes CPU for nothing.
    """
    yield
    for course in getattr(request.module, "COURSES", {}).values():
        load.stop(course)
    for name in getattr(request.module, "NAMESPACES", ()):
        with suppress(ApiError):  # a test that was skipped made none
            cluster.client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def steady(cluster: Cluster, load: LoadGenerator, operator: OperatorRelease) -> Steady:
    """A pool in Auto mode under traffic that goes on through all that is done to the control plane."""
    return Steady(cluster, load)


def _serves(cluster: Cluster, namespace: str) -> bool:
    pods = cluster.pods(namespace)
    conditions = [one for pod in pods for one in pod["status"].get("conditions", []) if one["type"] == "Ready"]
    return bool(conditions) and all(one["status"] == "True" for one in conditions)
