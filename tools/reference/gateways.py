"""The part of the page on engines that is about gateways, and the pages that all profiles were tested against."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from reference.markdown import code, table
from reference.series import counted_as, keep_list, shown_as
from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.engines import shipped, usable
from servingpool.adapters.prometheus.gateways import GatewayFigure, GatewayProfile, shipped_gateways
from servingpool.adapters.prometheus.gateways.profile import READ_AS

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
VLLM = sorted(FIXTURES.glob("vllm-0.32.0*.txt"))
UNIT_TESTS = "test_check_profile"
ENGINE_TESTS = "test_engine_pages, test_engine_reading"
VLLM_TESTS = "tests/vllm, test_prometheus_reading"
GATEWAY_TESTS = "test_gateway_pages, test_gateway_reading"

GATEWAYS = """\
A gateway or router sees requests first. Where it holds them, the engines see them late, and the client waits longer
than the engines' TTFT says. The operator reads these figures of it:

- `queue`: requests that it holds. They count as demand. Where it is unknown, scale-down is blocked.
- `arrivals`: requests that came. Pools of llama.cpp and Ollama need them.
- `timeToFirstToken`: the client's. The SLO is judged by it with `slo.measuredAt: Gateway`. By default it is judged at
  the engines. `SLOMet` says where it was measured. Time per output token stays the engines'.
- `inFlight`, `generationTokens`, `promptTokens`, `interTokenLatency`: in place of the engine's own metrics, for
  [Ollama](#ollama-behind-litellm).

Name the gateway of a pool. Its pods are in the pool's namespace; `workload` is its Deployment or StatefulSet:

```yaml
apiVersion: servingpool.dev/v1alpha1
kind: ServingPool
metadata: {name: chat}
spec:
  model: chat
  mode: Recommend
  slo: {timeToFirstToken: 2500ms, measuredAt: Gateway}
  targets: [{name: chat-vllm, max: 8}]
  metrics:
    gateway: {name: llm-d-epp, workload: chat-epp}
```

`name` is a column of the table below. `workload` is needed where the gateway's metrics do not name the model, as with
vllm-router. Elsewhere it selects one of several gateways. A pool of llama.cpp behind vllm-router, which tells no TTFT
and so leaves `measuredAt` at its default:

```yaml
apiVersion: servingpool.dev/v1alpha1
kind: ServingPool
metadata: {name: chat}
spec:
  engine: llamacpp
  model: chat
  mode: Recommend
  slo: {timeToFirstToken: 2500ms}
  targets: [{name: chat-llama, max: 8}]
  metrics:
    gateway: {name: vllm-router, workload: chat-router}
```

Where the gateway names the model, `spec.model` must be the name in that label, such as `requested_model` of LiteLLM.
A gateway that all pools of a Prometheus share is named once, in Helm values, with its namespace:

```yaml
backends:
  - name: default
    url: http://prometheus.monitoring:9090
    gateway: {name: litellm, namespace: gateways}   # without namespace: one in each pool's own
```

`servingpool check deployment/llama -n chat --prometheus URL
--gateway llm-d-epp/chat-epp` shows its figures too. With `measuredAt: Gateway`, a gateway that does not tell TTFT makes
`SLOMet` Unknown (ClientLatencyUnknown) and blocks scale-down; the engines' TTFT is never used instead.
"""
METERED = """\
Ollama exports no metrics. A gateway that has all figures of the table but `queue` meters it: the pool is scaled by the
gateway's figures alone. Without such a gateway it is refused (UnknownEngine).

```yaml
apiVersion: servingpool.dev/v1alpha1
kind: ServingPool
metadata: {name: chat}
spec:
  engine: ollama
  model: chat                       # model_name in LiteLLM's model_list
  mode: Recommend
  slo: {timeToFirstToken: 2500ms, timePerOutputToken: 200ms}
  targets: [{name: chat-ollama, max: 8}]
  metrics:
    gateway: {name: litellm, workload: chat-litellm}
```

- The gateway counts what all replicas do together. Each ready replica is taken to do an even share, as
  `MetricsAvailable` says (MeteredAtGateway).
- Requests in flight beyond those that the ready replicas run at once are the queue, an estimate. How many one runs is
  `OLLAMA_NUM_PARALLEL` in the pod template, 1 where it is not set, and unknown where `envFrom` or
  `valueFrom` may set it.
- While a figure is missing, nothing is removed. LiteLLM counts requests in flight of all its models together: give each
  pool a LiteLLM of its own, or its queue is unknown and scale-down is blocked.
- TTFT is measured at the gateway, whatever `measuredAt` says, and of streaming requests only: clients must stream. The
  time per output token is judged by its mean.
- Nothing is learned from history. Which pod is least busy is not known, so the youngest goes first.
- LiteLLM keeps connections to the Service's pods for 2 minutes, so a new replica gets few requests at first. Set
  `AIOHTTP_KEEPALIVE_TIMEOUT: "1"` in its environment.

`servingpool check deployment/chat-ollama -n chat --prometheus URL --engine ollama --model chat
--gateway litellm/chat-litellm` shows the figures. `make test-ollama` tests this
with real Ollama processes behind a real LiteLLM.
"""
SCRAPING = """\
Prometheus must scrape the gateway's pods. Its series need `namespace` and `pod`, as the engines' do.

**LiteLLM** exports metrics with the callback in its configuration, at its own port under `/metrics/`:

```yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: chat-litellm}
data:
  config.yaml: |
    model_list:
      - model_name: chat
        litellm_params: {model: ollama_chat/llama3.2, api_base: "http://chat-ollama:11434"}
    litellm_settings:
      callbacks: [prometheus]
      require_auth_for_metrics_endpoint: false   # else the scrape needs a key of LiteLLM
```

With `--num_workers` above 1 its workers share their counts through the folder `PROMETHEUS_MULTIPROC_DIR`, in `/tmp` by
default, which is emptied at the start. Where that is read-only, name an emptyDir volume. The page of
`--prometheus_metrics_port` lacks the scrape itself, which the profile subtracts from `inFlight`: scrape the port of the
proxy.

**vllm-router** exports metrics at a port of its own: `--prometheus-host=0.0.0.0 --prometheus-port=29000`. Name that
port in the pod template, and in a PodMonitor:

```yaml
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: gateways}
spec:
  selector: {matchExpressions: [{key: app, operator: In, values: [chat-router, chat-litellm]}]}
  podMetricsEndpoints:
    - {port: metrics, path: /metrics, interval: 15s}    # vllm-router; for LiteLLM its port, and path /metrics/
```
"""
AT_ZERO = """\
What a gateway does and shows while there is no engine, for pools with [min 0](../how-to/scale-to-zero.md):
"""
OWN = """\
The Helm value `gateways` adds profiles, in the form of [engines](#an-engine-of-your-own):

```yaml
gateways:
  acme-gateway:
    modelLabel: model
    sumOver: [tenant]
    atZero: {firstRequest: Holds, holdsFor: 120, shows: [queue]}   # seconds; shows: arrivals, queue or unserved
    figures:
      queue: [acme_gateway_held]
      arrivals: [acme_gateway_requests_total]
      timeToFirstToken: [{name: acme_gateway_ttft_seconds, excluded: {stream: "false"}}]
```
"""
TESTED = """\
Each profile is read from these pages, figure by figure. `real process`: the
program itself printed it. `own collectors`: the metrics code of its wheel printed it. `from its source`: nobody here
has run it; names, labels and what is counted when were read there. Tests `..._pages` read the page alone, `..._reading`
through a real Prometheus, with label collisions, double scrapes and restarts.
[Facts of engines and gateways](../records/upstream-facts.md) says which release was compared with its source or
package, tag by tag.
"""


def _at_zero(name: str, profile: GatewayProfile) -> tuple[str, ...]:
    one = profile.at_zero
    if one is None:
        return name, "not known", "", "not known", ""
    time = "not known" if one.holds_for is None else f"{one.holds_for:g} s"
    return name, one.first_request.value, time, ", ".join(map(code, one.shows)), one.note


def sections() -> Iterator[str]:
    """Paragraphs, headings and tables."""
    known = shipped_gateways()
    yield "## Gateways"
    yield GATEWAYS
    rows = [(code(figure.value), *(_counted(known[name], figure) for name in known)) for figure in GatewayFigure]
    model = ("names the model", *(code(known[name].model_label) or "no: needs `workload`" for name in known))
    yield table(("figure", *known), [model, *rows])
    yield AT_ZERO
    heading = ("gateway", "a request at 0 replicas", "for", "shown by", "note")
    yield table(heading, [_at_zero(name, profile) for name, profile in known.items()])
    series = [row for name, profile in known.items() for row in _rows(name, profile)]
    yield table(("gateway", "figure", "series", "counted", "versions", "note"), series)
    yield "\n".join(f"- {name} ({profile.versions}): {profile.doc}" for name, profile in known.items())
    yield "### How Prometheus scrapes them"
    yield SCRAPING
    yield table(
        ("gateway", "what to keep of it"), [(name, code(keep_list(one.metrics))) for name, one in known.items()]
    )
    yield "### Ollama behind LiteLLM"
    yield METERED
    yield "### A gateway of your own"
    yield OWN
    yield "## What the profiles were tested against"
    yield TESTED
    head = ("engine or gateway", "version", "origin", "figures on its pages", "pages", "tests")
    yield table(head, _tested())


def _counted(profile: GatewayProfile, figure: GatewayFigure) -> str:
    return counted_as(profile.figures.get(figure, ()))


def _rows(name: str, profile: GatewayProfile) -> Iterator[tuple[str, ...]]:
    for figure, series in profile.figures.items():
        for one in series:
            yield name, code(figure.value), shown_as(one), counted_as([one]), one.versions, one.note


def _tested() -> Iterator[tuple[str, ...]]:
    engines, gateways = shipped(), shipped_gateways()
    of: dict[tuple[str, str, str, str], list[Path]] = {("vllm", "0.32.0", "real process", VLLM_TESTS): VLLM}
    for file in sorted((FIXTURES / "engines").glob("*.txt")):
        stem = file.stem.removeprefix("gateway-")
        known: Collection[str] = engines if stem == file.stem else gateways
        name = max((one for one in known if stem.startswith(one)), key=len)
        tests = GATEWAY_TESTS if known is gateways else ENGINE_TESTS if name in usable(engines) else UNIT_TESTS
        key = (name, stem.removeprefix(f"{name}-").split("-")[0], _origin(file), tests)
        of.setdefault(key, []).append(file)
    for (name, version, origin, tests), files in sorted(of.items()):
        figures = sorted({figure for file in files for figure in _found(name, file)})
        yield name, version, origin, ", ".join(figures), ", ".join(code(file.stem) for file in files), tests


def _found(name: str, file: Path) -> list[str]:
    """Figures that the profile finds on a page."""
    gateway = shipped_gateways().get(name)
    profile = shipped()[name] if gateway is None else gateway.metrics
    called = {} if gateway is None else {figure: own.value for own, figure in READ_AS.items()}
    found = pages.find(profile, pages.parse(file.read_text(encoding="utf-8")))
    return [code(called.get(one.figure, one.figure.value)) for one in found if one.series is not None]


def _origin(file: Path) -> str:
    header = file.read_text(encoding="utf-8").split("\n", 1)[0]
    if " by a real " in header:
        return "real process"
    if "collector classes" in header:
        return "own collectors"
    source = re.search(r"by hand from (.*)", header)
    assert source is not None, file
    return f"from its source: {source[1]}"
