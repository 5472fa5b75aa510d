"""What the operator's own configuration check refuses, Helm refuses at template time, by the schema or in the same words."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.adapters import prometheus as profiles
from servingpool.adapters.prometheus.gateways import shipped_gateways
from servingpool.api.serving_pool import ServingPool
from servingpool.reconcile.config import ConfigError, load

from .conftest import CHART, OPERATOR, Helm, documents

URL = "http://prometheus:9090"
HEADER = {"headers": {"Authorization": "Bearer x"}}
TOKEN = {"bearerToken": {"secret": {"name": "s", "key": "k"}}}
LOGIN = {"basicAuth": {"username": "ann", "passwordSecret": {"name": "s", "key": "k"}}}


def backend(**changes: Any) -> dict[str, Any]:
    return {"backends": [{"name": "default", "url": URL, **changes}]}


def price(name: str = "acme", **changes: Any) -> dict[str, Any]:
    return {"prices": {name: {"input": 1, "output": 2, "noted": "2026-11-01", **changes}}}


def election(**changes: Any) -> dict[str, Any]:
    return {"leaderElection": changes}


FIGURES = {name: [f"acme:{name}"] for name in ("running", "waiting", "generationTokens", "promptTokens")} | {
    name: [f"acme:{name}"] for name in ("timeToFirstToken", "interTokenLatency")
}


def engine(**figures: Any) -> dict[str, Any]:
    return {"engines": {"acme": {"figures": {**FIGURES, **figures}}}}


def gateway(figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"gateways": {"acme": {"figures": figures, **more}}}


def each(*given: Any) -> tuple[Any, ...]:
    return given


WITHOUT_MANY = {name: given for name, given in FIGURES.items() if name not in {"running", "timeToFirstToken"}}
PROFILES: list[dict[str, Any]] = [
    *(
        engine(running=given)
        for given in each([], "a", ["5x"], [{}], [{"name": "a", "sum": ["b"]}], [{"sum": ["a"], "count": ["b"]}])
    ),
    *(
        engine(running=[{"name": "a", "labels": labels}])
        for labels in each({"b": []}, {"5x": "c"}, {"b": "c", "d": "e"})
    ),
    *(engine(running=[{"name": "a", **more}]) for more in ({"less": -1}, {"nmae": "b"}, {"counted": "late"})),
    engine(running=[{"sum": ["a"], "labels": {"b": "c"}}]),
    engine(running=[{"sum": ["-a", "-b"]}]),
    engine(running=[{"sum": ["a"], "less": 1}]),
    engine(runing=["a"]),
    *(
        engine(timeToFirstToken=[given])
        for given in ({"sum": ["a"], "count": ["b"]}, {"name": "a", "labels": {"b": "c"}})
    ),
    engine(timeToFirstToken=[{"name": "a", "excluded": {"b": "c"}}]),
    *(engine(interTokenLatency=[given]) for given in ({"sum": ["a"]}, {"name": "a", "labels": {"b": "c"}})),
    engine(queueTime=[{"sum": ["a"], "count": ["b"]}]),
    {"engines": {"acme": {"figures": WITHOUT_MANY}}},
    {"engines": {"acme": {"figures": {"running": ["a"]}}}},
    {"engines": {"acme": {"figures": {}, "modelLable": "m"}}},
    *(
        {"engines": {"acme": {"figures": FIGURES, **more}}}
        for more in ({"modelLabel": "5x"}, {"sumOver": "a"}, {"silent": ""})
    ),
    *(
        {"engines": {"acme": {"figures": FIGURES, "excluded": given}}}
        for given in ({"b": ""}, {"b": [False]}, {"b-c": "d"})
    ),
    *(
        gateway(given)
        for given in each({}, {"arrivals": []}, {"running": ["a"]}, {"timeToFirstToken": [{"sum": ["a"]}]})
    ),
    gateway({"timeToFirstToken": [{"name": "a", "excluded": {"b": "c"}}]}),
    gateway({"interTokenLatency": [{"sum": ["a"]}]}),
    gateway({"arrivals": ["a"]}, atZero={"firstRequest": "Holds", "shows": ["queue"]}),
    gateway({"inFlight": ["a"]}, atZero={"firstRequest": "Holds", "shows": ["inFlight"]}),
    gateway({"arrivals": ["a"]}, atZero={"firstRequest": "Waits"}),
    gateway({"arrivals": ["a"]}, atZero={"firstRequest": "Holds", "holdsFor": 3601}),
    {"gateways": {"acme": {}}},
]
ODD: list[dict[str, Any]] = [
    *(
        {"interval": text}
        for text in ("0s", "999ms", "61s", "1m1s", "15", "15 s", "-5s", "", "1h", "1.5s", "1d", "0000001s")
    ),
    *({"interval": given} for given in (15, True, ["15s"])),
    *({"history": text} for text in ("6h1s", "7h", "1d", "2", "-1s", "999999999h", "100000000000000ms")),
    *(election(duration=text) for text in ("2s", "2999ms", "5m1s", "10s", "10h", "15")),
    *(election(deadline=text) for text in ("1s", "1999ms", "2s", "15s", "20s", "6m")),
    *(election(retry=text) for text in ("499ms", "0s", "10s", "12s", "61s", "2h")),
    election(duration="4s", deadline="4s", retry="1s"),
    election(duration="5s", deadline="3s", retry="3s"),
    election(lease="x"),
    *(
        backend(url=url)
        for url in ("", "prometheus:9090", "ftp://x", "http://", "http://:9090", "https:///path", "//x")
    ),
    *(backend(url=f"http://h:{port}") for port in ("abc", "99999", "0", "65536/prefix", "80:90")),
    *(backend(url=url) for url in ("http://ann:pw@x", "http://x?a=b", "http://x#part", 9090, None)),
    *(backend(timeout=text) for text in ("0s", "999ms", "16s", "61s", "1h", "10", 10)),
    *(backend(timeout="6s") | {"interval": text} for text in ("5s", "5900ms")),
    *(backend(staleness=text) for text in ("9s", "5s", "9999ms", "10m1s", "1h", "60", 60)),
    *(backend(concurrency=number) for number in (0, -1, 9, 2.5, "two")),
    *(backend(name=name) for name in ("", "Default", "a_b", "-a", "a-", "a" * 64, "ö", 5)),
    *(backend(namespaces=names) for names in ([], "chat", [5])),
    *(backend(headers=headers) for headers in ({"X": 5}, "X: y", ["X"])),
    backend(**TOKEN, **LOGIN),
    backend(**TOKEN, **HEADER),
    backend(**LOGIN, headers={"authorization": "Basic x"}),
    *(
        backend(labels=labels)
        for labels in ({"namespace": "5x"}, {"pod": "a-b"}, {"exported": "perhaps"}, {"node": "n"})
    ),
    *(backend(gateway=gateway) for gateway in ("nginx", "vllm-router", "", "A", "a" * 64, 5, {}, {"name": "nginx"})),
    *(backend(gateway={"name": "litellm", "workload": name}) for name in ("", "A", "a b", "a..b", "x" * 254)),
    *(backend(gateway={"name": "litellm", "namespace": name}) for name in ("", "a.b", "N", "x" * 64)),
    backend(gateway={"name": "litellm", "models": {"m": []}}),
    backend(gateway={"name": "litellm", "models": ["m"]}),
    backend(gateway={"name": "litellm", "ports": 5}),
    backend(tenant="x"),
    {"backends": []},
    {"backends": {}},
    {"backends": [{"name": "a"}]},
    {"backends": [{"name": f"b{number}", "url": URL} for number in range(65)]},
    {"backends": [{"name": "a", "url": URL}, {"name": "b", "url": URL}, {"name": "a", "url": URL}]},
    {"backends": [{"name": "b", "url": URL}, {"name": "a", "url": URL}] * 2},
    *(price(input=dollars) for dollars in (0, -1, 0.00001, 10_001, "free", None)),
    *(price(output=dollars) for dollars in (0, 10_000.5, "two")),
    *(price(noted=day) for day in ("2026-13-01", "2026-02-30", "yesterday", "26-11-01", "2026-11-1", "", None)),
    *(price(name) for name in ("Acme", "a/b", "-a", "a-", "a..b", "a" * 64, "")),
    price(note="x" * 257),
    price(currency="EUR"),
    {"prices": {"acme": {"input": 1, "output": 2}}},
    {"prices": {f"p{number}": price()["prices"]["acme"] for number in range(257)}},
    *({kind: {name: {}}} for kind in ("engines", "gateways") for name in ("Acme", "a.b", "a" * 64, "a_b", "")),
    *({kind: {"acme": given}} for kind in ("engines", "gateways") for given in ("x", ["x"], None, 5)),
    *({kind: given} for kind in ("engines", "gateways") for given in (["acme"], "acme")),
    {"watchNamespaces": "chat"},
    {"watchNamespaces": [5]},
    {"podDeletionCost": {"enabled": "maybe"}},
    {"podDeletionCost": {"costs": True}},
]
GOOD: list[dict[str, Any]] = [
    {"interval": "1m", "history": "0s"},
    {"interval": "1s"} | backend(timeout="1s"),
    election(duration="5m", deadline="4m59s", retry="500ms"),
    election(duration="3s", deadline="2s", retry="1s500ms"),
    backend(timeout="15s", staleness="10m", concurrency=8),
    backend(staleness="10s", url="https://[::1]:9090/prefix/"),
    backend(url="http://thanos", **TOKEN),
    *(backend(url=f"http://h{rest}") for rest in (":65535", ":1/prefix:x/", ":")),
    backend(gateway="litellm"),
    backend(gateway={"name": "sglang-router", "workload": "router.v1", "models": {"m": ["chat-*"]}}),
    price("b-3.3", noted="2028-02-29", note="from the list"),
]


@cache
def defaults() -> dict[str, Any]:
    """Of the chart; nobody changes them."""
    read: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return read


def config_of(values: dict[str, Any]) -> dict[str, Any]:
    """The configuration as the chart's template has it of these values over the defaults."""
    config = {name: values.get(name, defaults()[name]) for name in ("interval", "history", "backends", "prices")}
    for name in ("leaderElection", "podDeletionCost", "shards"):
        config[name] = {**defaults()[name], **values.get(name, {})}
    config["podDeletionCost"].pop("admissionPolicy")
    config |= {name: values[name] for name in ("engines", "gateways") if name in values}
    config |= {"namespaces": values["watchNamespaces"]} if "watchNamespaces" in values else {}
    if isinstance(config["backends"], list):
        config["backends"] = [_files(one) for one in config["backends"]]
    return config


def _files(given: dict[str, Any]) -> dict[str, Any]:
    one = dict(given)
    if one.pop("bearerToken", None):
        one["bearerTokenFile"] = "token"
    if login := one.pop("basicAuth", None):
        one["basicAuth"] = {"username": login["username"], "passwordFile": "password"}
    return one


def refused(values: dict[str, Any], folder: Path) -> str:
    """What the operator says of them; empty where it takes them."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config_of(values)))
    try:
        load(path)
    except ConfigError as error:
        return str(error).partition(" is not valid: ")[2]
    return ""


def template(helm: Helm, values: dict[str, Any], folder: Path) -> str:
    """What Helm says of them; empty where it takes them."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    done = helm("template", "servingpool-operator", CHART, f"--values={path}")
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("values", [*ODD, *PROFILES], ids=lambda values: repr(values)[:60])
def test_what_the_operator_would_refuse_is_refused_by_helm(helm: Helm, tmp_path: Path, values: dict[str, Any]) -> None:
    said, told = refused(values, tmp_path), template(helm, values, tmp_path)
    assert said, "the operator takes it: it is no odd value"
    assert told, f"Helm takes what the operator refuses: {said}"
    if "values don't meet the specifications of the schema" not in told:
        assert any(line.strip() in told for line in said.splitlines() if line.strip()), (said, told)


@pytest.mark.parametrize("values", GOOD)
def test_what_the_operator_takes_is_taken(helm: Helm, tmp_path: Path, values: dict[str, Any]) -> None:
    assert refused(values, tmp_path) == template(helm, values, tmp_path) == ""


def test_profiles_as_the_release_has_them_are_taken(helm: Helm, tmp_path: Path) -> None:
    folder = Path(profiles.__file__).parent
    shipped = {
        kind: {path.stem: yaml.safe_load(path.read_text()) for path in (folder / kind).glob("*.yaml")}
        for kind in ("engines", "gateways")
    }
    assert len(shipped["engines"]) > 5
    assert template(helm, shipped, tmp_path) == ""
    estimated = {**WITHOUT_MANY, "running": ["a"], "prefillSeconds": ["b"]}
    for figures in each(FIGURES, estimated, {}):
        values = {"engines": {"acme": {"figures": figures}}}
        assert refused(values, tmp_path) == template(helm, values, tmp_path) == ""


def test_the_chart_knows_the_gateways_of_this_release(helm: Helm, tmp_path: Path) -> None:
    for name, profile in shipped_gateways().items():
        assert (template(helm, backend(gateway=name), tmp_path) == "") == (profile.model_label is not None), name


@pytest.mark.parametrize(
    ("replicas", "enabled", "taken"), [(2, False, False), (1, False, True), (0, False, True), (2, True, True)]
)
def test_two_operators_without_election_are_refused(
    helm: Helm, tmp_path: Path, replicas: int, enabled: bool, taken: bool
) -> None:
    values = {"replicas": replicas, "deploymentStrategy": {"type": "Recreate"}, **election(enabled=enabled)}
    told = template(helm, values, tmp_path)
    assert (told == "") == taken
    assert taken or "replicas: must be 0 or 1 without leaderElection.enabled, got 2: every operator would write" in told
    assert template(helm, values | {"shards": {"enabled": True}}, tmp_path) == ""


@pytest.mark.parametrize("strategy", [{}, None, {"type": "RollingUpdate"}])
def test_a_rolling_update_without_election_is_refused(
    helm: Helm, tmp_path: Path, strategy: dict[str, str] | None
) -> None:
    """Its second operator writes beside the first."""
    values = {"replicas": 1, "deploymentStrategy": strategy}
    assert template(helm, values, tmp_path) == ""
    told = template(helm, values | election(enabled=False), tmp_path)
    assert "deploymentStrategy: must be {type: Recreate} without leaderElection.enabled" in told


@pytest.mark.parametrize("monitor", ["podMonitor", "serviceMonitor"])
def test_a_scrape_that_may_take_longer_than_its_interval_is_refused(helm: Helm, tmp_path: Path, monitor: str) -> None:
    for timeout, taken in (("15s", True), ("15001ms", False), ("1m", False)):
        told = template(helm, {monitor: {"enabled": True, "scrapeTimeout": timeout}}, tmp_path)
        assert (told == "") == taken
        assert taken or f"{monitor}.scrapeTimeout: must be at most the interval, 15s, got {timeout}" in told


@pytest.mark.parametrize("name", ["livenessProbe", "readinessProbe", "startupProbe"])
@pytest.mark.parametrize("way", [{"exec": {"command": ["true"]}}, {"httpGet": {"path": "/", "port": 1}}, None])
def test_a_probe_has_one_way_to_ask(helm: Helm, tmp_path: Path, name: str, way: dict[str, Any] | None) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump({name: way}))
    done = helm("template", "servingpool-operator", CHART, f"--values={path}", "--show-only=templates/deployment.yaml")
    (container,) = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]["containers"]
    ways = {key: given for key, given in container[name].items() if isinstance(given, dict)}
    assert ways == (way or {"httpGet": {"path": "/healthz", "port": "health"}})
    assert done.stdout.count("httpGet:") == 3 - (way is not None and "exec" in way)


@pytest.mark.parametrize(("kind", "part"), [("podMonitor", "podMetricsEndpoints"), ("serviceMonitor", "endpoints")])
def test_further_parts_of_the_release_stand_where_they_belong(helm: Helm, tmp_path: Path, kind: str, part: str) -> None:
    monitor = {
        "enabled": True,
        "scrapeTimeout": "10s",
        "relabelings": [{"targetLabel": "cluster", "replacement": "eu"}],
        "metricRelabelings": [{"action": "labeldrop", "regex": "instance"}],
    }
    more = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-more"},
        "data": {"a": "b"},
    }
    values = {
        kind: monitor,
        "envFrom": [{"secretRef": {"name": "proxy"}}],
        "automountServiceAccountToken": False,
        "extraObjects": [more],
    }
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    done = helm("template", "servingpool-operator", CHART, f"--values={path}")
    assert done.returncode == 0, done.stderr
    objects = {(one["kind"], one["metadata"]["name"]): one for one in documents(done.stdout)}
    (endpoint,) = objects[f"{kind[0].upper()}{kind[1:]}", "servingpool-operator"]["spec"][part]
    assert {key: endpoint[key] for key in monitor.keys() - {"enabled"}} == {
        key: given for key, given in monitor.items() if key != "enabled"
    }
    pod = objects["Deployment", "servingpool-operator"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["envFrom"] == values["envFrom"]
    assert pod["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert objects["ConfigMap", "servingpool-operator-more"]["data"] == {"a": "b"}


def test_a_slip_is_told_before_anything_is_installed(helm: Helm) -> None:
    both = helm("template", OPERATOR, CHART, "--set=podMonitor.enabled=true,serviceMonitor.enabled=true")
    assert "podMonitor.enabled and serviceMonitor.enabled: enable one of the two" in both.stderr
    unset = helm("template", OPERATOR, CHART, "--set=image.repository=")
    assert "image.repository: needed, such as --set image.repository=your-registry/servingpool-operator" in unset.stderr


def test_a_url_alone_is_the_default_backend_and_the_notes_say_what_is_odd(helm: Helm, tmp_path: Path) -> None:
    """Helm shows its notes to a cluster alone, so they are rendered as an object here."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    (chart / "templates/NOTES.txt").rename(chart / "notes.txt")
    (chart / "templates/notes.yaml").write_text('notes: {{ tpl (.Files.Get "notes.txt") . | toJson }}\n')
    given = ("--set=backends[0].url=http://x:9090", "--set=podMonitor.enabled=true,podMonitor.interval=1m")
    (notes,) = [one["notes"] for one in documents(helm("template", "a", chart, *given).stdout) if "notes" in one]
    assert "\n  default: http://x:9090, for pools in *\n" in notes
    assert "podMonitor.interval is 1m, and decisions are made every 15s" in notes
    pool = yaml.safe_load(notes.partition("<<EOF\n")[2].partition("  EOF\n")[0])
    assert ServingPool.read(pool).spec.metrics.backend == "default"


def test_links_of_a_chart_in_a_registry_lead_to_its_source_and_it_names_its_image() -> None:
    root, source = CHART.parents[1], "https://code.example.com/team/servingpool/blob/v1"
    subprocess.run(["make", "chart-source", "REGISTRY=oci.example.com/a", f"SOURCE={source}"], cwd=root, check=True)
    chart = root / "build/chart/servingpool-operator"
    readme, about, values = ((chart / name).read_text() for name in ("README.md", "Chart.yaml", "values.yaml"))
    assert f"]({source}/docs/how-to/install.md)" in readme
    assert "](.." not in readme
    assert yaml.safe_load(about)["sources"] == [source]
    assert "image: oci.example.com/a/servingpool-operator:" in about
    assert "repository: oci.example.com/a/servingpool-operator\n" in values
