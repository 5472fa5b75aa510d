"""The page: what was typed and printed, in order, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afternoon.evidence import HPA, OPERATOR, Phase, by_minute, by_robots, faults, least_between_writers, phases
from afternoon.record import Command, Record
from recording import percent, row

SHOWN_LINES = 45
"""Of a command's output; the rest is left out, which the page says."""
LEFT_OUT_FROM = 5
"""Lines that a command prints as the one before it did, from which on they are left out."""
PHASES = ("hpa", "recommend", "auto", "released")
PICTURE = "../images/afternoon.svg"


@dataclass(frozen=True)
class Section:
    """Some commands, by how they begin, and what is said before them."""

    title: str
    said: str
    commands: tuple[str, ...]


SECTIONS: Sequence[Section] = (
    Section(
        "Under the HPA",
        "A Deployment serves the trace. The HPA aims at {target:g} running requests for each replica.",
        ("cat hpa.yaml", "kubectl apply -f hpa.yaml", "kubectl get hpa llama"),
    ),
    Section(
        "Suggest",
        "After {hpa:.0f} minutes. Nothing of the operator is installed yet.",
        ("servingpool suggest", "cat pool.yaml"),
    ),
    Section(
        "Choose the SLO",
        "The suggestion is what the HPA's fleet attains. The users need less, so a person writes that into the pool.",
        ("sed",),
    ),
    Section("Backtest", "Still nothing is installed.", ("servingpool record", "servingpool backtest")),
    Section(
        "Recommend",
        "The operator is installed and started. The pool's mode is Recommend, and the HPA goes on scaling.",
        ("kubectl apply -f pool.yaml",),
    ),
    Section(
        "Compare",
        "After {recommend:.0f} minutes.",
        ("servingpool get", "servingpool explain", "servingpool compare"),
    ),
    Section(
        "Adopt",
        "A dry run comes first. A doubt of its check has to be accepted, also with `--yes`.",
        ("servingpool adopt", "kubectl get hpa"),
    ),
    Section(
        "Auto",
        "After {auto:.0f} minutes.",
        ("servingpool get", "servingpool explain", "servingpool history"),
    ),
    Section("Release", "Back to the HPA.", ("servingpool release",)),
    Section("Under the HPA again", "After {released:.0f} minutes.", ("kubectl get hpa", "servingpool get")),
)


def page(record: Record) -> str:
    """Markdown."""
    return "\n".join([*_head(record), *_sections(record), *_results(record)]) + "\n"


def _head(record: Record) -> Iterator[str]:
    slo, marks = record.slo, record.marks
    loads = [one.load for one in record.observations]
    day = time.strftime("%Y-%m-%d", time.gmtime(marks["hpa"]))
    total = (marks["end"] - marks["hpa"]) / 60
    yield "# A recorded afternoon: from an HPA to Auto, and back"
    yield ""
    yield (
        "The steps of [From an HPA or KEDA, and back](../how-to/from-hpa-or-keda.md) on the local control plane, in "
        f"real time: {total:.0f} minutes on {day}. `make afternoon` repeats it with longer phases and writes this "
        "page. With these phases:"
    )
    options = " ".join(f"--{phase} {_waited(record, phase):.0f}" for phase in PHASES)
    yield from ("", "```console", f"$ PYTHONPATH=tools .venv/bin/python -m afternoon {options}", "```", "")
    yield (
        "etcd, kube-apiserver, kube-controller-manager with its HPA controller, kube-scheduler and Prometheus are "
        f"real. Pods are kwok's. The engines are emulated: {record.hardware}. The {record.title} comes at its own "
        "pace, open loop. A stand-in for prometheus-adapter gives the HPA controller the engines' running requests. "
        "`$PROMETHEUS` is the URL of Prometheus. The SLO: "
        f"first token within {slo['time_to_first_token']:g} s and {1000 * (slo['time_per_output_token'] or 0):.0f} ms "
        f"for each later token, for {100 * (slo['attainment'] or 0):.0f}% of requests."
    )
    yield ""
    yield (
        f"The machine has {record.cores} cores. Its load average was {sum(loads) / len(loads):.1f}, at most "
        f"{max(loads):.1f}: other programs ran beside it, so commands took longer than on an idle machine."
    )
    yield ""
    yield f"![Requests, and replicas by who set them]({PICTURE})"
    yield ""


def _sections(record: Record) -> Iterator[str]:
    waited = {phase: _waited(record, phase) for phase in PHASES}
    left = list(record.commands)
    for section in SECTIONS:
        mine: list[Command] = []
        while left and left[0].typed.startswith(section.commands):
            mine.append(left.pop(0))
        yield f"## {section.title}"
        yield ""
        yield section.said.format(target=record.target, **waited)
        yield ""
        before: list[str] = []
        for one in mine:
            lines = [line.rstrip() for line in one.printed.strip("\n").splitlines()]
            yield from _command(one.typed, lines, _alike(before, lines))
            before = lines
    assert not left, f"no section shows {left[0].typed!r}"


def _command(typed: str, lines: Sequence[str], alike: int) -> Iterator[str]:
    """`alike` lines at the beginning are those of the command before."""
    yield "```console"
    yield f"$ {typed}"
    if alike >= LEFT_OUT_FROM:
        yield f"... {alike} lines as above"
        lines = lines[alike:]
    yield from lines[:SHOWN_LINES]
    if len(lines) > SHOWN_LINES:
        yield f"... {len(lines) - SHOWN_LINES} lines more"
    yield "```"
    yield ""


def _alike(before: Sequence[str], lines: Sequence[str]) -> int:
    """How many lines both begin with."""
    return next((at for at, pair in enumerate(zip(before, lines, strict=False)) if pair[0] != pair[1]), 0)


def _waited(record: Record, phase: str) -> float:
    """Minutes from a phase's begin to the next command."""
    begin = record.marks[phase]
    return (min(one.at for one in record.commands if one.at > begin) - begin) / 60


def _results(record: Record) -> Iterator[str]:
    last, found = record.observations[-1], phases(record)
    yield "## What came of it"
    yield ""
    yield from row("", *(phase.name for phase in found))
    yield from row("---", *("---" for _ in found))
    yield from row("minutes", *(f"{(phase.end - phase.begin) / 60:.1f}" for phase in found))
    yield from row("requests sent", *(f"{phase.sent:,}" for phase in found))
    yield from row("lost", *(str(phase.lost) for phase in found))
    yield from row("rejected", *(str(phase.rejected) for phase in found))
    yield from row("attainment", *(percent(phase.attainment) for phase in found))
    yield from row("replicas, mean", *(f"{phase.replicas:.2f}" for phase in found))
    yield from row("replica-hours", *(f"{phase.replica_hours:.2f}" for phase in found))
    yield from row("GPU-hours", *(f"{phase.replica_hours * record.gpus:.2f}" for phase in found))
    yield ""
    yield (
        f"In all {last.arrived:,} requests were sent: {last.finished:,} were answered in full, {last.lost} were lost, "
        f"{last.rejected} were rejected, and {last.in_flight} were being answered when the run ended. Attainment is "
        "that of the emulated engines' users; a request counts in the phase in which it ended. Replicas that load or "
        "drain count too. In Recommend the HPA goes on scaling."
    )
    yield ""
    bad = list(faults(record))
    if bad:
        yield f"**What should not have happened:** {' '.join(bad)}"
        yield ""
    yield from _writers(record, found)
    yield from _times(record)


def _writers(record: Record, found: list[Phase]) -> Iterator[str]:
    robots, least = by_robots(record), least_between_writers(record)
    counts = {writer: sum(who == writer for who, _ in robots) for writer in (HPA, OPERATOR)}
    yield "## Who wrote"
    yield ""
    said = (
        f"Writes of the Deployment's replicas by the API server's audit log: {counts[HPA]} of the HPA controller and "
        f"{counts[OPERATOR]} of the operator."
    )
    if least is not None:
        said += f" Between a write of one and the next write of the other at least {least:.0f} s passed."
    yield f"{said} Minutes without a row: nobody wrote."
    yield ""
    yield from row("minute", "phase", f"{HPA} set", f"{OPERATOR} set")
    yield from row("---", "---", "---", "---")
    for minute, each in sorted(by_minute(record).items()):
        begin = record.marks["hpa"] + 60 * minute
        phase = next(one for one in reversed(found) if one.begin < begin + 60)
        sets = (", ".join(map(str, each.get(writer, ()))) for writer in (HPA, OPERATOR))
        yield from row(str(minute), phase.name, *sets)
    yield ""


def _times(record: Record) -> Iterator[str]:
    yield "## How long each command took"
    yield ""
    yield from row("minute", "command", "seconds")
    yield from row("---", "---", "---")
    for one in record.commands:
        minute = max(0.0, (one.at - record.marks["hpa"]) / 60)
        yield from row(f"{minute:.0f}", f"`{one.typed}`", f"{one.seconds:.1f}")
