"""`servingpool record`: a workload's history from Prometheus into a file, for `servingpool backtest`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from servingpool.adapters.cluster.autoscaling import bounds_of
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.kinds import DEPLOYMENT, STATEFUL_SET
from servingpool.adapters.cluster.scale import known_sort
from servingpool.adapters.cluster.survey import Named, Survey, scalables, survey, surveyed
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.cli.figures import ANY_ENGINE, Target
from servingpool.cli.kubectl import Namespace, namespace_of, sentence, told
from servingpool.cli.logs import quiet
from servingpool.cli.output import echo, terminal
from servingpool.cli.source import Options, Where, asks, now, unavailable
from servingpool.cli.usage import HISTORY, span, workload
from servingpool.decision.observation import Unknown
from servingpool.recording.format import (
    Chunk,
    Header,
    Reader,
    RecordingError,
    decode,
    decode_header,
    encode,
    encode_header,
    kept,
)
from servingpool.recording.recorder import Pace
from servingpool.recording.recorder import record as recorded

PIECE = 2**20
"""Bytes of a file read at once."""
SETTLED = 60.0
"""Seconds before now at which a recording ends: younger scrapes may be under way."""
STEP = 15.0
"""Seconds between two samples of a target that is recorded for a backtest."""
NOT_ANSWERED = 1
"""Exit code."""


@asks
def record(  # noqa: PLR0913, a command line's options are its parameters
    target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="The workload whose engines serve.")],
    *,
    file: Annotated[Path, typer.Option("--file", "-f", help="File to write; the same file is continued.")],
    since: Annotated[str, typer.Option(help="How far back, 10m to 90d.")] = "7d",
    namespace: Namespace = None,
    options: Options,
    engine: Annotated[str | None, typer.Option(help="Default: as the pods' metrics tell.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: as the pods' metrics tell.")] = None,
    step: Annotated[int, typer.Option(min=5, max=60, help="Seconds between two samples.")] = 15,
    max_samples: Annotated[
        int, typer.Option(min=10_000, max=2_000_000, help="Samples in the answer of one query, at most.")
    ] = 200_000,
    pause: Annotated[float, typer.Option(min=0, max=60, help="Seconds after each query, at least.")] = 0.2,
    backlog: Annotated[str | None, typer.Option(metavar="QUERY", help="Record spec.batch.backlog.query too.")] = None,
) -> None:
    """Record a workload's metrics and replicas from Prometheus into one file.

    It sends one range query at a time and rests after each for at least as long as it took. If it is interrupted, the
    same command goes on where it stopped. The file holds counters, gauges and pod names; no prompt and no address.
    With --engine and --model it needs no cluster.

    Example: `servingpool record deployment/llama -n chat --since 7d -f llama.rec`

    Exit codes: 0 recorded, 1 no such target, no history of it, or Prometheus did not answer, 2 wrong usage, 4 the
    cluster refused or did not answer.
    """
    quiet()
    (kind, name), seconds = workload(target), span("--since", since, HISTORY)
    blind = engine is not None and model is not None
    within = namespace_of(namespace, options.kubeconfig, options.context, asks=not blind)
    order = Order(file, seconds, float(step), Pace(max_samples, pause), backlog)
    raise typer.Exit(run(Target(within, kind, name, engine, model), order, options.found()))


class Failed(Exception):
    """The recording cannot go on. The message says why; `code` is the process's exit code."""

    def __init__(self, said: str, code: int = NOT_ANSWERED) -> None:
        super().__init__(said)
        self.code = code


@dataclass(frozen=True, slots=True)
class Order:
    """Content of a recording."""

    output: Path
    seconds: float
    """How far back."""
    step: float
    pace: Pace = field(default_factory=Pace)
    backlog: str | None = None
    """Query for what waits in a broker; None for none."""


def run(target: Target, order: Order, where: Where) -> int:
    """The exit code."""
    try:
        with told():
            attempt(target, order, where)
    except Failed as error:
        echo(str(error), err=True)
        return error.code
    return 0


def attempt(target: Target, order: Order, where: Where) -> None:
    """Record it, or raise Failed or ClusterError."""
    try:
        asyncio.run(_run(target, order, where, now(where.source)))
    except MetricsUnavailable as error:
        raise Failed(unavailable(str(error), where.source)) from error
    except RecordingError as error:
        raise Failed(f"{order.output} {error}") from error


def file_of(target: Named, *, with_namespace: bool) -> Path:
    """The file that a target is recorded into. Deployments are named without their kind."""
    sort = known_sort(target.kind)
    kind = "" if sort == DEPLOYMENT else sort[1].partition(".")[0].lower()
    parts = (target.namespace if with_namespace else "", kind, target.name)
    return Path(f"{'.'.join(filter(None, parts))}.rec")


def record_each(targets: Iterable[Named], seconds: float, where: Where, *, with_namespace: bool) -> dict[Path, str]:
    """Record each target into a file, in turn, as the server bears one. Returns failures by file, empty where none."""
    files = {}
    for target in targets:
        file = file_of(target, with_namespace=with_namespace)
        try:
            attempt(Target(*target), Order(file, seconds, STEP), where)
            files[file] = ""
        except ClusterError as error:
            files[file] = sentence(error)
        except Failed as error:
            files[file] = str(error).rstrip(".")
    return files


def serving(where: Where) -> list[Named]:
    """Objects that can be scaled and whose pods export an engine's metrics. Raises typer.Exit."""
    try:
        with told():
            return asyncio.run(_serving(where))
    except Failed as error:
        echo(str(error), err=True)
        raise typer.Exit(error.code) from None


async def _serving(where: Where) -> list[Named]:
    engines, say, found = where.config.known_engines, partial(echo, err=True), []
    async with (
        aclosing(PrometheusBackend(where.source, engines)) as prometheus,
        aclosing(await Cluster.connect(where.kubeconfig, where.context)) as cluster,
    ):
        async for named, around in surveyed(cluster, await scalables(cluster, say), say):
            ready = around.ready
            if ready and (await identify(Target(*named), ready, prometheus, engines))[0] is not None:
                found.append(named)
    if not found:
        raise Failed("Nothing that can be scaled exports metrics of an engine that is known.")
    return found


async def _run(target: Target, order: Order, where: Where, now: float) -> None:
    async with aclosing(PrometheusBackend(where.source, where.config.known_engines)) as prometheus:
        begun = resumed(order.output)
        if begun is None:
            header = await _header(target, order, where, prometheus, now)
            since = header.begin
            order.output.parent.mkdir(parents=True, exist_ok=True)
            order.output.write_bytes(encode_header(header))
        else:
            header, since = begun
            if not _is_of(header, target):
                held = f"{header.sort[1]} {header.namespace}/{header.target}"
                raise Failed(f"{order.output} holds {held}: choose another file", 2)
            echo(f"{order.output} was begun: going on.", err=True)
        scrapes = await _fill(order, header, since, prometheus)
    if begun is None and not scrapes:
        raise Failed(
            f"Prometheus has no sample of {header.sort[1]} {target.namespace}/{target.name} in this time. "
            f"`servingpool check {target.kind}/{target.name} -n {target.namespace}` says why."
        )
    echo(f"{order.output}: {decimal(order.output.stat().st_size)}, {scrapes:,} scrapes recorded.", err=True)


def _is_of(header: Header, target: Target) -> bool:
    """Whether a recording is the target's. Without the cluster only some kinds can be told apart."""
    sort = known_sort(target.kind)
    alike = sort == header.sort or not {sort, header.sort} & {DEPLOYMENT, STATEFUL_SET}
    return alike and (header.namespace, header.target) == (target.namespace, target.name)


async def _fill(order: Order, header: Header, since: float, prometheus: PrometheusBackend) -> int:
    """Write what is left, chunk by chunk. How many scrapes."""
    columns = (TextColumn("recording"), BarColumn(bar_width=28), TaskProgressColumn(), TimeRemainingColumn())
    scrapes = 0
    with Progress(*columns, console=terminal(stderr=True), transient=True) as bar, order.output.open("ab") as file:
        task = bar.add_task("", total=header.end - header.begin, completed=int(since - header.begin))
        async for chunk in recorded(prometheus, header, since, order.pace):
            file.write(encode(chunk))
            file.flush()
            scrapes += sum(len(one.at) for one in chunk.scrapes)
            bar.update(task, completed=chunk.end - header.begin)
    return scrapes


async def _header(target: Target, order: Order, where: Where, prometheus: PrometheusBackend, now: float) -> Header:
    engines = where.config.known_engines
    if target.engine is not None and target.engine not in engines:
        raise Failed(f"--engine must be one of {', '.join(engines)}, got '{target.engine}'", 2)
    engine, model, around = target.engine, target.model, await _survey(target, where)
    sort = around.workload.key.sort if around is not None else known_sort(target.kind)
    if around is not None and (engine is None or model is None):
        engine, model = await identify(target, around.ready, prometheus, engines)
    if engine is None or model is None:
        raise Failed(
            f"Prometheus has no metrics of a known engine from the pods of {sort[1]} "
            f"{target.namespace}/{target.name}. Give --engine and --model if it had them before."
        )
    scaler = around.autoscalers[0] if around is not None and around.autoscalers else None
    end = (now - SETTLED) // order.step * order.step
    return Header(
        namespace=target.namespace,
        target=target.name,
        sort=sort,
        engine=engine,
        model=model,
        begin=end - order.seconds // order.step * order.step,
        end=end,
        step=order.step,
        gpus=max(1, around.workload.gpus) if around is not None else 1,
        starts=around.starts if around is not None else (),
        bounds=None if scaler is None else bounds_of(scaler),
        autoscaler=None if scaler is None else kept(scaler),
        backlog=order.backlog,
    )


async def _survey(target: Target, where: Where) -> Survey | None:
    """Survey of the workload; None where the cluster does not answer and is not needed."""
    try:
        async with aclosing(await Cluster.connect(where.kubeconfig, where.context)) as cluster:
            return await survey(cluster, target.namespace, target.kind, target.name)
    except ClusterError as error:
        if target.engine is None or target.model is None:
            raise
        echo(f"Without the cluster: GPUs, cold starts and bounds are not recorded ({error}).", err=True)
        return None


async def identify(
    target: Target, pods: list[str], prometheus: PrometheusBackend, engines: Mapping[str, EngineMetrics]
) -> tuple[str | None, str | None]:
    """Engine and model, as asked for or as the pods' series tell; None where they tell none. Raises Failed."""
    keys = [(target.namespace, pod) for pod in pods]
    seen = await prometheus.inspect(target.engine or ANY_ENGINE, keys)
    if isinstance(seen, Unknown):
        raise Failed(unavailable(seen.reason, prometheus.config))
    exported = seen.engines(engines)
    engine = target.engine or (exported[0] if exported else None)
    if engine is None:
        return None, target.model
    models = seen.models(engines[engine])
    return engine, target.model or (models[0] if models else None)


def read(path: Path) -> tuple[Header, Iterator[Chunk]]:
    """A recording's header, and its chunks as they are read. Raises RecordingError."""

    def documents() -> Iterator[object]:
        reader = Reader()
        try:
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield from reader.feed(piece)
        except OSError as error:
            raise RecordingError(f"cannot be read: {error.strerror}") from error

    found = documents()
    first = next(found, None)
    if first is None:
        raise RecordingError("is no recording: it is empty, or cut off at the first line")
    return decode_header(first), map(decode, found)


def resumed(path: Path) -> tuple[Header, float] | None:
    """Header of a recording that was begun, and the time that it reaches; a torn end is removed.

    None where there is no such file. Raises RecordingError.
    """
    if not path.is_file() or path.stat().st_size == 0:
        return None
    reader, first, last = Reader(), None, None
    with path.open("r+b") as file:
        while piece := file.read(PIECE):
            for document in reader.feed(piece):
                first, last = (document, None) if first is None else (first, document)
        if first is None:
            raise RecordingError("is no recording: it is cut off at the first line")
        header = decode_header(first)
        end = header.begin if last is None else decode(last).end
        file.truncate(reader.whole)  # only now: a file that is no recording is somebody's
    return header, end
