"""The page, from the record alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rivals.record import STEP, FleetRecord, Record
from rivals.scene import FLEETS, HARDWARE, INITIAL, JITTER, LEAST, LOAD, MOST, SLO, STAGES

WORST = 10
"""Minutes."""
FEW = 30
"""Minutes below which a run is a trial."""
FAR = 0.1
"""Share by which run and simulator differ that is explained."""


@dataclass(frozen=True, slots=True)
class Span:
    """Some minutes in a row."""

    begin: int
    end: int
    sent: int
    met: int
    replicas: Sequence[int]
    """Ordered, at each step."""

    @property
    def attainment(self) -> float:
        """Share of the requests that came in it."""
        return self.met / self.sent


def worst(found: FleetRecord, sent: Sequence[int]) -> Span:
    """The ten minutes in a row with the most requests that missed the SLO."""
    length = min(WORST, len(sent))
    begins = range(len(sent) - length + 1)
    begin = max(begins, key=lambda at: sum(sent[at : at + length]) - sum(found.met[at : at + length]))
    return span(found, sent, begin, begin + length)


def span(found: FleetRecord, sent: Sequence[int], begin: int, end: int) -> Span:
    """These minutes."""
    steps = [int(60 * minute / STEP) for minute in (begin, end)]
    # An entry stands at the end of its step.
    replicas = found.replicas[slice(*steps)] or found.replicas[-1:]
    return Span(begin, end, sum(sent[begin:end]), sum(found.met[begin:end]), replicas)


def attainment(found: FleetRecord, sent: Sequence[int]) -> float:
    """Of all requests."""
    return sum(found.met) / sum(sent)


def deviations(found: FleetRecord, sent: Sequence[int]) -> Iterator[str]:
    """In what the run differs from the simulator, as words."""
    if len({one >= SLO.attainment for one in (attainment(found, sent), found.simulated.attainment)}) > 1:
        yield "objective met in one alone"
    pairs = (
        ("attainment", attainment(found, sent), found.simulated.attainment),
        ("replica-hours", found.replica_hours, found.simulated.replica_hours),
    )
    for name, real, simulated in pairs:
        if abs(real - simulated) > FAR * simulated:
            yield f"{name} {100 * (real / simulated - 1):+.0f}%"


def page(record: Record) -> str:
    """Markdown."""
    parts = (_head(record), _results(record), _simulator(record), _worst(record), _stages(record), _set_up(record))
    return "\n".join(line for part in parts for line in part) + "\n"


def _head(record: Record) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield from ("# Rivals that really run", "")
    yield (
        f"Commit {record.commit}, {record.day}: {record.minutes:g} minutes of traffic, {sum(record.sent):,} requests "
        f"for each fleet, in {len(STAGES)} equal stages. `make rivals` repeats "
        "it (RIVALS_MINUTES sets its length) and writes this page and its record, the JSON beside it. "
        "**No GPU ran for this page.**"
    )
    yield ""
    if record.minutes < FEW:
        yield from ("**A trial:** its stages are shorter than the windows of the HPAs.", "")
    yield (
        f"Every autoscaler is the real program, all at once on one control plane: {versions}. "
        "Each has a Deployment of its own with emulated engines of its own, "
        f"{HARDWARE} each, and its own users, who ask the same at the same moments. All begin with {INITIAL} replicas, "
        f"may have {LEAST} to {MOST}, and know nothing of the traffic. A replica loads for {LOAD:g} to "
        f"{LOAD + JITTER:g} s. The objective: {100 * SLO.attainment:g}% of requests with the first token within "
        f"{SLO.time_to_first_token:g} s and {1000 * (SLO.time_per_output_token or 0.0):g} ms per token."
    )
    yield ""


def _results(record: Record) -> Iterator[str]:
    yield from ("## Results", "")
    columns = ("attained", "first token late", "tokens slow", "lost", "unanswered", "replica-hours", "writes")
    yield from _row("", *columns)
    yield from _row("---", *["---:"] * len(columns))
    for slug, found in _ordered(record):
        counts = [sum(one) for one in (found.met, found.late, found.slow, found.lost)]
        held = attainment(found, record.sent) >= SLO.attainment
        told = _percent(attainment(found, record.sent))
        yield from _row(
            FLEETS[slug].title,
            told if held else f"**{told}**",
            *(f"{count:,}" for count in counts[1:]),
            f"{sum(record.sent) - sum(counts):,}",
            f"{found.replica_hours:.2f}",
            str(len(found.writes)),
        )
    yield ""
    yield (
        "Bold: misses the objective. Attainment is of all requests sent, by the clients' own records. What has no full "
        f"answer {record.tail:g} s after the last one was sent is unanswered. Replica-hours count loading and "
        "draining. Writes are those to the Deployment's scale in the API server's audit log."
    )
    yield ""


def _ordered(record: Record) -> list[tuple[str, FleetRecord]]:
    """In the order of the scene."""
    return [(slug, record.fleets[slug]) for slug in FLEETS if slug in record.fleets]


def _simulator(record: Record) -> Iterator[str]:
    yield from ("## Beside the simulator", "")
    yield (
        "The simulator plays the same requests against its own version of each rule. Confirmed: both meet the "
        f"objective or neither, and attainment and replica-hours lie within {100 * FAR:g}% of the simulated ones."
    )
    yield ""
    columns = ("attained", "simulated", "replica-hours", "simulated", "writes", "simulated")
    yield from _row("", *columns, "")
    yield from _row("---", *["---:"] * len(columns), "---")
    for slug, found in _ordered(record):
        far = list(deviations(found, record.sent))
        yield from _row(
            FLEETS[slug].title,
            _percent(attainment(found, record.sent)),
            _percent(found.simulated.attainment),
            f"{found.replica_hours:.2f}",
            f"{found.simulated.replica_hours:.2f}",
            str(len(found.writes)),
            str(found.simulated.changes),
            f"differs: {', '.join(far)}" if far else "confirmed",
        )
    yield ""
    for slug, found in _ordered(record):
        if slug in record.explained or any(deviations(found, record.sent)):
            yield f"- {FLEETS[slug].title}: {record.explained.get(slug, 'not explained.')}"
    yield ""


def _worst(record: Record) -> Iterator[str]:
    yield from (f"## The worst {WORST} minutes of each", "")
    yield "Those with the most requests that missed the objective."
    yield ""
    columns = (
        "minutes",
        "missed",
        "of",
        "attained",
        "replicas ordered",
        "minute by minute",
    )
    yield from _row("", *columns)
    yield from _row("---", *["---:"] * 4, "---", "---")
    for slug, found in _ordered(record):
        one = worst(found, record.sent)
        each_minute = [str(each) for each in one.replicas[int(60 / STEP) - 1 :: int(60 / STEP)]]
        yield from _row(
            FLEETS[slug].title,
            f"{one.begin} to {one.end}",
            f"{one.sent - one.met:,}",
            f"{one.sent:,}",
            _percent(one.attainment),
            f"{min(one.replicas)} to {max(one.replicas)}",
            " ".join(each_minute),
        )
    yield ""


def _stages(record: Record) -> Iterator[str]:
    yield from ("## Stage by stage", "")
    yield "Attained, and the mean of the replicas ordered."
    yield ""
    fleets = _ordered(record)
    yield from _row("", *(FLEETS[slug].title for slug, _ in fleets))
    yield from _row("---", *["---:"] * len(fleets))
    each = record.minutes / len(STAGES)
    for number, stage in enumerate(STAGES):
        begin, end = round(number * each), round((number + 1) * each)
        spans = [span(found, record.sent, begin, end) for _, found in fleets]
        cells = (f"{_percent(one.attainment)}, {sum(one.replicas) / len(one.replicas):.1f}" for one in spans)
        yield from _row(f"{stage}", *cells)
    yield ""


def _set_up(record: Record) -> Iterator[str]:
    yield from ("## What is real, and what is not", "")
    yield from (
        (
            "- Real: etcd, kube-apiserver with its audit log, kube-controller-manager with its HPA controller, "
            "kube-scheduler, Prometheus, this operator. The HPA controller has its default settings."
        ),
        (
            "- The plain HPAs read the custom metrics API, which a stand-in for prometheus-adapter answers with three "
            "queries to Prometheus. `benchmarks/rivals/autoscalers.py` has every HPA and ScaledObject."
        ),
        "- Pods and nodes are kwok's. Engines are emulated with the simulator's engine model, in real time.",
        (
            "- Users are in the emulator's process: a request goes to the replica with the fewest in flight, and its "
            "client's record begins when it is sent. Its times are the engine model's, so a busy machine does not "
            "change them; it makes the emulator late to see a pod or to show a page. That was "
            f"{record.late[0]:.2f} s on average, {record.late[1]:.1f} s at most. The machine has {record.cores} cores; "
            f"its load average was {record.load[0]:.1f}, at most {record.load[1]:.1f}."
        ),
    )
    if "KEDA" in record.versions:
        yield from _of_keda()
    yield ""
    yield from (f"- Not in this run: {FLEETS[slug].title}. {why}" for slug, why in record.absent.items())
    yield "- Never here: AIBrix, Knative, Dynamo and llm-d's router, which need their own data planes."
    yield ""
    yield from ("## What went wrong in the run", "")
    yield from (f"- {fault}" for fault in record.faults) if record.faults else ["Nothing."]


def _of_keda() -> Iterator[str]:
    yield (
        "- KEDA's operator and its metrics adapter are real. production-stack's published query gives a series for "
        "each pod, which KEDA refuses from the second pod on. Here it is the sum."
    )
    yield (
        "- llm-d's slo-aware has its published law, windows and limits. There is no EPP: the latencies are the "
        "engines' own histograms, as its rules fall back to measured ones where no predictor runs; its recording rule "
        "is a subquery; the replicas of kube-state-metrics are a page of the emulator."
    )


def _row(*cells: str) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
