"""The page: what ran, what came of it, and what the operator said at the moments that tell most."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from fleet_run.evidence import FEW, PIECE, Span, at_zero, bound, faults, misses, results, without_node
from fleet_run.record import Record, Said
from fleet_run.scale_writes import over
from fleet_run.scene import GPUS, HOUR, NODES, POOLS, ROUTER, Pace, Pool, idle_after, shorter
from recording import percent, row
from servingpool_simulation.prices import price

REMARKS = "## Remarks, by hand"
"""Heading of what a person adds to the page. `--page-only` keeps that part."""
SHOWN = ("TargetsAvailable", "ScalingLimited", "ZeroReady", "SLOMet", "Ready", "MetricsAvailable")
"""Conditions whose turns are shown, where they are not as they should be or come back."""
FIRST_SCRAPES = 0.5
"""Minutes in which MetricsAvailable is no news: the replicas have only just become Ready."""
LONGEST = 420
"""Characters of a sentence; the rest is left out, which dots say."""


def page(record: Record, remarks: str = "") -> str:
    """Markdown. `remarks` are a person's, see `remarks_of`."""
    parts = (_head(record), _scene(record), _results(record), _budget(record), _badly(record))
    by_hand = [remarks] if remarks else []
    return "\n".join(line for part in (*parts, by_hand, _moments(record), _writes(record)) for line in part) + "\n"


def remarks_of(written: str) -> str:
    """What a person has added to the page of a run, with its heading; empty if nothing."""
    found = re.search(rf"^{re.escape(REMARKS)}\n.*?(?=^## )", written, re.MULTILINE | re.DOTALL)
    return found[0].rstrip("\n") + "\n" if found else ""


def _head(record: Record) -> Iterator[str]:
    loads = [one.load for one in record.observations]
    day = time.strftime("%Y-%m-%d", time.gmtime(record.begin))
    yield from ("# A recorded hour: three pools, two GPU types, 16 GPUs", "")
    yield (
        f"{record.minute(record.end):.0f} minutes in real time on {day}, on the local control plane. `make fleet` "
        "repeats it, writes this page and draws the run as `build/fleet-run/run.svg`."
    )
    if record.minutes < HOUR:
        yield (
            f"**A trial:** the hour went by in {record.minutes:g} minutes, with as many requests per second and fewer "
            "in all."
        )
    yield ""
    yield (
        "etcd, kube-apiserver with its audit log, kube-controller-manager, kube-scheduler, Prometheus and the operator "
        "are real programs. Nodes and pods are kwok's: the scheduler places pods by their GPUs, and no container runs. "
        "Engines are emulated, with the step times of an 8B model measured on each GPU type; each pool's requests go "
        "to the replica with the fewest in flight. The gateway of `batch` is emulated too, no router ran: it prints "
        "the page of a [vllm-router](../how-to/scale-to-zero.md), counts a try every two seconds for each request that "
        "it holds at 0 replicas, and holds it for as long as it takes."
    )
    yield ""
    yield (
        f"The machine has {record.cores} cores. Its load average was {sum(loads) / len(loads):.1f}, at most "
        f"{max(loads):.1f}."
    )
    yield ""


def _scene(record: Record) -> Iterator[str]:
    yield from ("## What ran", "")
    kinds = "; ".join(f"{' + '.join(str(size) for size in sizes)} {product}" for product, sizes in NODES.values())
    yield (
        f"Nodes, by their GPUs: {kinds}. One GPUBudget of {GPUS} GPUs selects all three pools. A replica has one GPU. "
        "The H100 are too few for the peak of `chat`, and the pool does not know that: its target may grow to 8."
    )
    yield ""
    yield from row("pool", "priority", "SLO", "targets: min to max, dollars an hour", "traffic")
    yield from row(*["---"] * 5)
    for pool in POOLS:
        yield from row(f"`{pool.name}`", str(pool.priority), _slo(pool), _targets(pool), _traffic(pool))
    pace = Pace(record.minutes)
    idle = idle_after(POOLS[-1], pace)["idleAfter"]
    yield ""
    yield (
        "Traffic is open loop. Copies of a request come up to a minute later than the recorded one. All fields of the "
        f"pools are as by default, but for `idleAfter` of `batch`, {idle}, and what its gateway `{ROUTER}` needs."
    )
    if times := shorter(pace):
        fields = ", ".join(f"`{name}` {text}" for name, text in times.items())
        yield f"Times are shorter too in this trial: {fields}."
    yield ""


def _slo(pool: Pool) -> str:
    slo = pool.slo
    bounds = f"{slo.time_to_first_token:g} s, {1000 * (slo.time_per_output_token or 0):.0f} ms per token"
    return f"{bounds}, {100 * slo.attainment:g}%"


def _targets(pool: Pool) -> str:
    return "<br>".join(f"`{one.name}`: {one.least} to {one.most}, {price(one.profile):g}" for one in pool.targets)


def _traffic(pool: Pool) -> str:
    traffic = pool.traffic
    said = f"{traffic.trace().name} trace, {traffic.times} times over"
    if traffic.offset:
        said += f", from {traffic.offset / 60.0:.0f} minutes into it"
    if len(traffic.windows) > 1:
        said += ", in minutes " + " and ".join(f"{begin:.0f} to {end:.0f}" for begin, end in traffic.windows)
    return said


def _results(record: Record) -> Iterator[str]:
    found = results(record)
    yield from ("## What came of it", "")
    yield from row("", *(f"`{one.pool.name}`" for one in found))
    yield from row(*["---"] * (1 + len(found)))
    yield from row("priority", *(str(one.pool.priority) for one in found))
    yield from row("requests sent", *(f"{one.sent:,}" for one in found))
    yield from row("lost", *(str(one.lost) for one in found))
    yield from row("rejected", *(str(one.rejected) for one in found))
    yield from row("objective", *(f"{100 * one.pool.slo.attainment:g}%" for one in found))
    yield from row("attainment", *(percent(one.attainment) for one in found))
    yield from row("attainment while the budget bound", *(percent(one.bound_attainment) for one in found))
    yield from row("requests that ended then", *(f"{one.bound_ended:,}" for one in found))
    yield from row("minutes in which the budget limited it", *(f"{one.limited_minutes:.1f}" for one in found))
    worst = (f"{percent(one.worst[1])} from minute {one.worst[0]:.0f}" if one.worst else "-" for one in found)
    yield from row(f"lowest attainment of {PIECE / 60.0:.0f} minutes", *worst)
    yield from row("GPUs, most", *(str(one.most_gpus) for one in found))
    yield from row("GPU-hours", *(f"{one.gpu_hours:.2f}" for one in found))
    yield ""
    yield (
        "Attainment is that of the emulated engines' users: a request counts when it ends, and one that waited at the "
        "gateway counts from its arrival there. GPUs are those that the budget counts: loading and draining pods, and "
        "pods that wait for a node, too. The budget binds while the condition `ScalingLimited` of a pool has the "
        f"reason `GPUBudget`: {_spans(record, bound(record))}. "
        f"Five minutes with fewer than {FEW} requests are left out."
    )
    yield ""
    yield f"- `batch` had 0 replicas ordered {_spans(record, at_zero(record))}."
    for name, when in without_node(record).items():
        yield f"- There was no node for a pod of `{name}` {_spans(record, when)}."
    wanted = max(record.observations, key=lambda observation: observation.wanted)
    yield (
        f"- At most the pools wanted {wanted.wanted} GPUs together, by the budget's status in minute "
        f"{record.minute(wanted.at):.1f}."
    )
    yield ""


def _spans(record: Record, found: Sequence[Span]) -> str:
    if not found:
        return "never"
    said = [f"{record.minute(begin):.1f} to {record.minute(end):.1f}" for begin, end in found]
    return f"in minutes {', '.join(said)}"


def _budget(record: Record) -> Iterator[str]:
    writes, above = record.writes, over(record.writes, GPUS)
    most = max((one.gpus for one in writes), default=0)
    held = max(observation.gpus for observation in record.observations)
    users = sorted({one.user.rpartition(":")[2] for one in writes})
    yield from ("## No write over the budget" if not above else "## Writes over the budget", "")
    yield (
        f"The API server's audit log has {len(writes)} writes to a scale, by {', '.join(users)}. After each of them "
        "the GPUs that were ordered are counted from the same log: replicas, and pods that load, wait for a node or "
        f"drain, until the log shows them gone. The most is {most} of {GPUS}; {len(above)} writes went over. "
        f"In the observations of the pods, one every five seconds, at most {held} GPUs were held."
    )
    yield ""


def _badly(record: Record) -> Iterator[str]:
    bad = [*misses(record), *faults(record)]
    yield from ("## What went badly", "")
    yield from (f"- {one}" for one in bad) if bad else ["Every pool held its objective, and nothing failed."]
    yield ""


def _moments(record: Record) -> Iterator[str]:
    yield from ("## What the operator said", "")
    yield "From the pools' status, in the minute when it was first there. The last table has all changes."
    yield ""
    yield from row("minute", "pool", "what", "in the operator's words")
    yield from row(*["---"] * 4)
    for one in _turns(record):
        yield from row(f"{record.minute(one.at):.1f}", f"`{one.pool}`", one.about, _words(one.words))
    yield ""


def _turns(record: Record) -> Iterator[Said]:
    """Turns of conditions to what should not be, and back; and each way to zero and from it."""
    bad: set[tuple[str, str]] = set()
    for one in record.said:
        kind, _, state = one.about.partition(" ")
        if "->" in one.about:
            if one.about.startswith("0 ->") or one.about.endswith("-> 0"):
                yield one
        elif kind in SHOWN and (kind != "MetricsAvailable" or record.minute(one.at) > FIRST_SCRAPES):
            worse = state.startswith("True, GPUBudget") if kind == "ScalingLimited" else state.startswith("False")
            if worse or (one.pool, kind) in bad:
                yield one
            (bad.add if worse else bad.discard)((one.pool, kind))


def _words(text: str) -> str:
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return short.replace("|", "\\|")


def _writes(record: Record) -> Iterator[str]:
    yield from ("## Every write to a scale", "")
    yield (
        "`GPUs` are those ordered after it, of all pools; `leaving` those among them whose pods were still to be gone. "
        "The sentence is the pool's, from its status."
    )
    yield ""
    yield from row("minute", "target", "replicas", "GPUs", "leaving", "why")
    yield from row(*["---"] * 6)
    pools = {one.name: pool.name for pool in POOLS for one in pool.targets}
    for write in record.writes:
        yield from row(
            f"{record.minute(write.at):.2f}",
            f"`{write.target}`",
            f"{write.before} -> {write.after}",
            str(write.gpus),
            str(write.draining),
            _why(record, pools[write.target], write.at),
        )


def _why(record: Record, pool: str, at: float) -> str:
    """The sentence of the change of replicas that this write belongs to: the nearest one within a few seconds."""
    found = [one for one in record.said if one.pool == pool and "->" in one.about and abs(one.at - at) < 5.0]
    return _words(min(found, key=lambda one: abs(one.at - at)).words) if found else ""
