"""A ServingPool for a workload that serves already: each line with where it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from string import Template
from textwrap import wrap
from typing import Any

import numpy as np
import yaml

from servingpool.adapters.cluster.autoscaling import bounds_of
from servingpool.api.duration import parse, write
from servingpool.api.group import API_VERSION, KIND
from servingpool.recording.format import Buckets, Chunk, Scrapes
from servingpool.recording.verdict import MOST_OVERLOADED, History

EACH_BOUND = 0.975
"""Share of requests within each of the two bounds: both then hold for 95% at least."""
LEAST_REQUESTS = 200.0
"""Requests from which on their times tell an attainment."""
RANGE = {"ttft": ("1ms", "10m"), "tpot": ("1ms", "10s")}
"""Range that the CRD allows."""
HISTOGRAM = {"ttft": "time_to_first_token", "tpot": "time_per_output_token"}
USUAL = {"ttft": 2.5, "tpot": 0.1}
"""Seconds where nothing was measured; both are buckets of vLLM."""
STALE = 60.0
"""Seconds within which a replica is scraped at least once."""
QUEUED = 0.1
"""Requests that wait, over those that run, above which a replica counts as overloaded."""
GROWTH = 2
"""Ratio of the suggested max to the present replicas where no autoscaler sets a max."""
WIDTH = 100
"""Characters of a comment's line."""
BROKERS = yaml.safe_load(resources.files(__package__).joinpath("brokers.yaml").read_text())
"""Query for a broker's backlog by the type of KEDA's trigger."""
BACKLOG = re.compile(r"(?s)(?!.*(vllm|rate\(|tile\()).*\b(\w*backlog|redis_\w+|kafka\w+lag|rabbitmq_queue_messages)\b")
"""Query of a prometheus trigger on what waits in a broker, by the exporters' own names."""


@dataclass(frozen=True, slots=True)
class Attained:
    """Attainment of one latency over the history."""

    bound: float
    """Seconds: the lowest of the engine's buckets that enough requests were within."""
    share: float
    """Share of the requests within the bound."""
    requests: float
    looser: float | None
    """The next bucket; None for the last."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts on a workload that a suggestion rests on."""

    namespace: str
    name: str
    replicas: int
    """spec.replicas now."""
    gpus: int
    """Per replica, from the pod template; 0 where it names none."""
    engine: str
    model: str
    origin: str
    """Origin of engine and model."""
    backend: str
    past: Past
    span: str
    """Length of the history, such as 7d."""
    autoscalers: Sequence[Mapping[str, Any]] = ()
    """HPAs and ScaledObjects, as the API server has them."""
    starts: Sequence[float] = ()
    """Seconds from creation to Ready of the pods that stand."""
    price: tuple[float, str] | None = None
    """Dollars of a replica's hour, and where they come from."""
    drain: str = ""
    """Sentence on the end of the template's pods."""
    missing: Sequence[str] = ()
    """Figures that Prometheus lacks."""
    kind: str = "Deployment"
    api_version: str = "apps/v1"


@dataclass(frozen=True, slots=True)
class Past:
    """What a workload's history shows."""

    attained: Mapping[str, Attained | None]
    """Attainment by `ttft` and `tpot`, in the times when the fleet was not overloaded."""
    overloaded: float = 0.0
    """Share of the scrapes with a queue."""
    doubts: tuple[str, ...] = ()
    """Why it is too little to take an SLO from, each with when to ask again."""


def overloaded(scrapes: Scrapes) -> Any:
    """At which scrapes of a pod requests queued, beyond what a burst makes."""
    running, waiting = (scrapes.figures.get(name) for name in ("running", "waiting"))
    if running is None or waiting is None:
        return np.zeros(len(scrapes.at), dtype=bool)
    return (waiting >= 1.0) & (waiting > QUEUED * running)  # NaN is neither


def past(chunk: Chunk, step: float) -> Past:
    """From coarse scrapes of whole histograms, each the newest of a time; `step`: seconds between these times."""
    if not chunk.scrapes:
        return Past({})
    queued = np.concatenate([overloaded(one) for one in chunk.scrapes])
    times = np.concatenate([one.at for one in chunk.scrapes])
    apart = max(step, STALE)  # in between, a scrape may be of the time before
    seconds = float(times.max() - times.min())
    missing = max(0.0, seconds - apart * len(np.unique((chunk.end - times) // apart)))
    return Past(attained([chunk]), float(queued.mean()), tuple(History(seconds, missing).doubts()))


def attained(chunks: Iterable[Chunk]) -> dict[str, Attained | None]:
    """Attainment while no request queued; pods that lived for less than a step are left out."""
    counts: dict[str, dict[float, float]] = {short: {} for short in HISTOGRAM}
    totals = dict.fromkeys(HISTOGRAM, 0.0)
    by_pod: dict[tuple[str, str, tuple[float, ...]], list[tuple[Buckets, Any]]] = {}
    for chunk in chunks:
        for scrapes in chunk.scrapes:
            for short, name in HISTOGRAM.items():
                one = scrapes.histograms.get(name)
                if one is not None:
                    by_pod.setdefault((short, scrapes.pod, one.bounds), []).append((one, overloaded(scrapes)))
    for (short, _, bounds), parts in by_pod.items():
        count = np.concatenate([one.count for one, _ in parts])
        each = np.concatenate([one.counts for one, _ in parts])
        queued = np.concatenate([queue for _, queue in parts])
        calm = ~(queued[1:] | queued[:-1])
        restarted = np.diff(count) < 0
        totals[short] += float(np.where(restarted, count[1:], np.diff(count))[calm].sum())
        rise = np.where(restarted[:, None], each[1:], np.diff(each, axis=0))[calm].sum(axis=0)
        for bound, more in zip(bounds, rise.tolist(), strict=True):
            counts[short][bound] = counts[short].get(bound, 0.0) + more
    return {short: _lowest(counts[short], totals[short], *map(parse, RANGE[short])) for short in HISTOGRAM}


def _lowest(counts: Mapping[float, float], total: float, low: float, high: float) -> Attained | None:
    if total < LEAST_REQUESTS:
        return None
    bounds = [bound for bound in sorted(counts) if low <= bound <= high]
    for place, bound in enumerate(bounds):
        share = min(1.0, counts[bound] / total)
        if share >= EACH_BOUND:
            return Attained(bound, share, total, bounds[place + 1] if place + 1 < len(bounds) else None)
    return None


def _scalar(name: str) -> str:
    """A Kubernetes name in YAML, quoted where YAML reads a number, a date or a truth in it, as in 123 or on."""
    return name if yaml.safe_load(name) == name else json.dumps(name)


def manifest(facts: Facts) -> str:
    """YAML of a ServingPool in Recommend mode, with comments."""
    low, high, bounds_from = _bounds(facts)
    waits = next(filter(None, map(backlog_of, facts.autoscalers)), None)
    lines = [
        *_comment(_head(facts), 0),
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
        "metadata:",
        f"  name: {_scalar(facts.name)}",
        f"  namespace: {_scalar(facts.namespace)}",
        "spec:",
        *_line(f"model: {json.dumps(facts.model, ensure_ascii=False)}", facts.origin, 2),
        *_line(f"engine: {facts.engine}", facts.origin, 2),
        *_line("mode: Recommend", "It computes a replica count and does not apply it. Set Auto to scale.", 2),
        *(["  slo:", *_slo(facts)] if waits is None else _batch(*waits)),
        "  targets:",
        f"    - name: {_scalar(facts.name)}",
        *[f"      apiVersion: {facts.api_version}", f"      kind: {facts.kind}"] * (facts.kind != "Deployment"),
        *_line(f"min: {low}", bounds_from, 6),
        *_line(f"max: {high}", bounds_from, 6),
    ]
    if facts.gpus:
        lines += _line(f"gpusPerReplica: {facts.gpus}", "From the resource limits of its pods.", 6)
    else:
        lines += _comment(["The pod template has no GPU limits: set gpusPerReplica if a replica has GPUs."], 6)
    if facts.price is not None:
        lines += _line(f"costPerReplicaHour: {facts.price[0]:g}", facts.price[1], 6)
    else:
        said = "No price is known: set costPerReplicaHour in dollars, or call suggest with --gpu-price."
        lines += _comment([said], 6)
    if facts.backend != "default":
        lines += ["  metrics:", f"    backend: {facts.backend}"]
    if facts.starts:
        ordered = sorted(facts.starts)
        start = max(1.0, min(3600.0, ordered[2 * len(ordered) // 3]))
        said = f"67th percentile of the start-up times of {len(ordered)} pods."
        lines += ["  behavior:", *_line(f"coldStart: {write(round(start))}", said, 4)]
    return "\n".join([*lines, ""])


def _head(facts: Facts) -> Iterator[str]:
    yield f"Suggested by `servingpool suggest` for {facts.kind} {facts.namespace}/{facts.name}."
    for scaler in facts.autoscalers:
        yield from _lost(scaler)
    if facts.drain:
        yield f"Before a scale-down: {facts.drain}"
    if facts.missing:
        yield f"Prometheus lacks, and decisions need: {', '.join(facts.missing)}. See `servingpool check`."


def backlog_of(scaler: Mapping[str, Any], *, alone: bool = True) -> tuple[str, str] | None:
    """Query for the backlog that the triggers of an autoscaler look at, and their types; None without one.

    `alone`: none either where another trigger, but cron, may tell that people wait.
    """
    triggers = [one for one in scaler.get("spec", {}).get("triggers") or () if one.get("type") != "cron"]
    found = [(query, str(one.get("type"))) for one in triggers if (query := _asked(one)) is not None]
    if not found or (alone and len(found) < len(triggers)):
        return None
    queries, kinds = zip(*found, strict=True)
    return (queries[0] if len(queries) == 1 else " + ".join(f"({one})" for one in queries)), ", ".join(kinds)


def _asked(trigger: Mapping[str, Any]) -> str | None:
    """Query for the backlog that a trigger looks at; None where it looks at none."""
    kind, given = str(trigger.get("type")), trigger.get("metadata") or {}
    with suppress(KeyError):
        if kind != "prometheus" or BACKLOG.match(str(given.get("query"))):
            return Template(BROKERS[kind]).substitute(given)
    return None


def _batch(query: str, kind: str) -> Iterator[str]:
    yield "  batch:"
    said = "Assumed: how long after a request came must it be done? 5m to 168h; or write finishBy, a time of day."
    yield from _line("finishWithin: 4h", said, 4)
    yield "    backlog:"
    told = f"What waits, by {kind}. `servingpool check KIND/NAME --backlog QUERY` asks it."
    yield from _line(f"query: {json.dumps(query)}", told, 6)
    yield from _line("unit: requests", "Or tokens, if it counts those.", 6)


def _slo(facts: Facts) -> Iterator[str]:
    for short, name in (("ttft", "timeToFirstToken"), ("tpot", "timePerOutputToken")):
        found, queued = facts.past.attained.get(short), facts.past.overloaded
        left_out = f" Requests queued at {queued:.0%} of the scrapes, which are left out." if queued > 0.005 else ""
        if found is None or facts.past.doubts or queued > MOST_OVERLOADED:
            text = f"{name}: {_written(USUAL[short])}"
            said = f"Assumed. {_why(facts, found)}"
        else:
            text = f"{name}: {_written(found.bound)}"
            said = (
                f"{100 * found.share:.1f}% of {found.requests:,.0f} requests in the last {facts.span} were within this "
                f"bucket of the engine, so it is counted exactly.{left_out}"
            )
            if found.looser is not None:
                said += f" The next bucket is {_written(found.looser)}: a looser bound needs fewer replicas."
        yield from _line(text, said, 4)
    yield from _line("attainment: 95", "Percent of requests within every bound; the default.", 4)


def _why(facts: Facts, found: Attained | None) -> str:
    """Why the history gives no bound, when to ask again, and the band in which the bound seems to lie."""
    past = facts.past
    if past.overloaded > MOST_OVERLOADED:
        why = (
            f"Requests queued at {past.overloaded:.0%} of the scrapes: the history shows what an overloaded fleet "
            "attains. Ask again after a day in which hardly a request queued."
        )
    elif past.doubts:
        why = " ".join(past.doubts)
    else:
        return f"Prometheus shows too few requests in {facts.span}, or no bucket that holds 97.5% of them."
    if found is None or found.looser is None:
        return why
    return f"{why} So far the bound seems to lie between {_written(found.bound)} and {_written(found.looser)}."


def _written(seconds: float) -> str:
    """A bound as people write it: 2500ms, not 2s500ms."""
    return f"{round(1000 * seconds)}ms" if seconds % 1.0 else write(seconds)


def _bounds(facts: Facts) -> tuple[int, int, str]:
    """The min, the max, and where they come from."""
    for raw in facts.autoscalers:
        low, high = bounds_of(raw)
        low = max(1 if backlog_of(raw) is None else 0, low)
        return low, max(1, low, high), f"From {raw['kind']} {raw['metadata']['name']}."
    high = max(1, GROWTH * facts.replicas)
    return 1, high, f"No autoscaler sets it: from 1 to {GROWTH} times the present {facts.replicas} replicas."


def _lost(raw: Mapping[str, Any]) -> Iterator[str]:
    """Fields of an autoscaler that have no place in a ServingPool."""
    spec, name = raw.get("spec", {}), f"{raw['kind']} {raw['metadata']['name']}"
    if raw["kind"] == "ScaledObject":
        triggers = spec.get("triggers") or ()
        kinds = sorted({str(one.get("type")) for one in triggers})
        batch, waits = backlog_of(raw) is not None, backlog_of(raw, alone=False)
        yield f"{name}: its triggers ({', '.join(kinds)}) are replaced by {'batch' if batch else 'the SLO'}."
        if waits is not None and not batch:
            yield (
                f"{name}: beside {waits[1]}, a trigger may tell that people wait, so it is an SLO. If nobody waits, "
                f"write batch in place of slo, with the backlog's query {waits[0]}"
            )
        if "cron" in kinds:
            yield f"{name}: its schedule (cron) is not taken over; write it as spec.schedules."
        if int(spec.get("minReplicaCount", 0)) == 0 and not batch:
            yield f"{name}: scale to zero is lost; min is 1. min 0 needs metrics.gateway."
        if spec.get("fallback"):
            yield f"{name}: its fallback is lost; without metrics a ServingPool keeps the replicas."
    else:
        metrics = sorted({_metric(one) for one in spec.get("metrics") or ()})
        yield f"{name}: its metrics ({', '.join(metrics) or 'CPU'}) are replaced by the SLO."
    behavior = spec.get("behavior") or spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior")
    if behavior:
        yield (
            f"{name}: its behavior ({', '.join(sorted(behavior))}) is lost; behavior.scaleDownWindow takes the place "
            "of the stabilization window."
        )
    ends = "pauses" if raw["kind"] == "ScaledObject" else "deletes"
    yield f"{name}: `servingpool adopt` {ends} it, and `servingpool release` gives it back."


def _metric(raw: Mapping[str, Any]) -> str:
    kind = str(raw.get("type", ""))
    inner = raw.get(kind[:1].lower() + kind[1:], {})
    return str(inner.get("metric", {}).get("name") or inner.get("name") or kind)


def _line(text: str, said: str, indent: int) -> list[str]:
    """A field below the comment on where it comes from."""
    return [*_comment([said], indent), f"{' ' * indent}{text}"]


def _comment(sentences: Iterable[str], indent: int) -> list[str]:
    # A name may hold no line break, but a label's value is anybody's.
    wrapped = [wrap(" ".join(one.split()), WIDTH, break_long_words=False, break_on_hyphens=False) for one in sentences]
    return [f"{' ' * indent}# {line}" for lines in wrapped for line in lines]
