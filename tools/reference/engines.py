"""The page on engines and gateways, from the profiles that are shipped."""

from __future__ import annotations

from collections.abc import Iterator

from reference import gateways
from reference.markdown import code, table
from reference.markdown import page as whole
from reference.series import counted_as, keep_list, shown_as
from servingpool.adapters.prometheus.engines import shipped, usable
from servingpool.adapters.prometheus.engines.profile import EngineMetrics, Figure

INTRODUCTION = """\
`spec.engine` names the engine of a pool's replicas. A profile, which is data, says which of the engine's metrics hold
the figures that decisions need. The buckets of histograms are read from Prometheus.
[An engine of your own](#an-engine-of-your-own) is described in the same form.
"""
WHICH = """\
```console
$ servingpool check deployment/llama -n chat
```

For each figure it shows the series, their labels and the newest sample; for each pod without a usable sample it says
why. It suggests `spec.engine` and `spec.model`. It needs the rights to get the workload and its scale, and to list
pods.

The operator asks the same of Prometheus. A pool whose pods all lack a sample has the cause as reason of
[MetricsAvailable](conditions.md): NotScraped, ScrapeFailed, NoEngineSeries, WrongEngine, RouterSeries,
MissingFigures, WrongLabels, NoSeriesForModel. [Eleven wrong set-ups](../records/wrong-setups.md) shows each.
"""
OWN = """\
Save its metrics page after some requests, and describe it in Helm values:

```yaml
# acme.yaml
engines:
  acme:
    silent: acme runs without --metrics     # why a scraped pod may have no series
    modelLabel: model                       # leave it out if the series name no model
    sumOver: [rank]                         # labels of one pod whose series are added up
    copiesBy: [process]                     # labels of copies of one figure: the greatest counts
    timeToFirstTokenFrom: arrival
    figures:
      running: [acme_running]
      waiting: [acme_queue]
      generationTokens: [{name: acme_tokens_total, labels: {kind: output}}]
      promptTokens: [{name: acme_tokens_total, labels: {kind: [input, cached]}}]
      timeToFirstToken:
        - {name: acme_ttft_seconds, versions: since 2.0}
        - acme_first_token_seconds          # the name before
      interTokenLatency:                    # no histogram: seconds and number of steps from counters
        - {sum: [acme_decode_seconds_total], count: [acme_decode_steps_total]}
```

```console
$ servingpool check-profile acme.yaml --page page.txt
```

It fails where a figure that decisions need is missing. Then give the file to Helm with `--values`: a pool uses it with
`engine: acme`. A profile named like a known engine replaces that one. The operator refuses a wrong profile at its
start, by field, with what is allowed and what was given. All keys are in
[Configuration file](configuration.md#configuration-file).
"""
OVERVIEW = """\
`smooth`: counted while a request runs. `at finish`: counted all at once when it ends, so the figure lags. A dash: the
engine does not export it. Without `running`, `waiting`, `generationTokens`, `promptTokens`, `timeToFirstToken` and
`interTokenLatency` a pool is refused with the reason UnknownEngine; `timePerOutputToken` is needed where the SLO bounds
it. `queueTime` serves recorded histories alone and does not affect scaling. An engine without any figure, such as
Ollama, needs a [gateway that meters it](#ollama-behind-litellm).

For llama.cpp, `prefillSeconds` replaces both `timeToFirstToken` and `timePerOutputToken` if a gateway counts the
requests. Time to first token is then an estimate: the wait in the queue, and the mean prefill. Time per output token is
judged by the mean time between tokens. [Gateways](#gateways) shows such a pool.
"""
KEEP = '```text\nmetricRelabelings:\n  - {{action: keep, sourceLabels: [__name__], regex: "{}"}}\n```'
ORDER = """\
The first series that a pod exposes counts. Histograms are named without `_bucket`, `_sum`, `_count`. The rule below an
engine's table is its keep-list: [what Prometheus must keep](../how-to/prometheus.md#what-prometheus-must-keep).
"""


def page() -> str:
    """The page."""
    names = sorted(shipped(), key=lambda name: (name not in usable(shipped()), name != "vllm", name))
    head = ("figure", *names)
    rows = [
        (code(figure.value), *(counted_as(shipped()[name].figures.get(figure, ())) for name in names))
        for figure in Figure
    ]
    can = ("usable", *map(_can, names))
    sections = [part for name in names for part in _section(name, shipped()[name])]
    texts = ("## Which engine, which model", WHICH, "## An engine of your own", OWN)
    parts = (INTRODUCTION, OVERVIEW, table(head, [can, *rows]), ORDER, *texts, *gateways.sections(), *sections)
    return whole("Engines and gateways", *parts)


def _can(name: str) -> str:
    if name not in usable(shipped()):
        return "no"
    return "behind a gateway" if shipped()[name].needs_gateway else "yes"


def _section(name: str, profile: EngineMetrics) -> Iterator[str]:
    yield f"## {name}"
    yield profile.doc
    if profile.metered:
        yield f"Compared with version {profile.versions}. [How to set it up](#ollama-behind-litellm)."
        return
    facts = {
        "Compared with versions": profile.versions,
        "Label of the model": code(profile.model_label)
        if profile.model_label
        else "none, so all series of a pod count",
        "Labels that are added up": ", ".join(map(code, profile.sum_over)),
        "Labels of copies, of which the greatest counts": ", ".join(map(code, profile.copies_by)),
        "Series left out": ", ".join(code(f"{label}={'|'.join(them)}") for label, them in profile.excluded.items()),
        "Time to first token counts from": profile.time_to_first_token_from.value,
        "No series, though scraped": f"{profile.silent}",
    }
    yield "\n".join(f"- {fact}: {said}" for fact, said in facts.items() if said)
    if profile.figures:
        yield table(("figure", "series", "counted", "versions", "note"), _rows(profile))
        yield KEEP.format(keep_list(profile))


def _rows(profile: EngineMetrics) -> Iterator[tuple[str, str, str, str, str]]:
    for figure in Figure:
        for one in profile.figures.get(figure, ()):
            yield code(figure.value), shown_as(one), counted_as([one]), one.versions, one.note
