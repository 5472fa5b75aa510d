"""The work of `servingpool backtest`: a history or several at once, into pages, a summary, JSON or lines."""

from __future__ import annotations

import base64
import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import typer
from pydantic import TypeAdapter

from servingpool.api.serving_pool import ServingPool
from servingpool.api.yaml_text import NotYaml, read_yaml
from servingpool.cli.demo import bound, command_line, duration, write
from servingpool.cli.output import echo, echo_json, table, terminal
from servingpool.cli.record import read
from servingpool.decision.pool import Pool, Slo
from servingpool.reconcile.plan.pool_plan import core_pool
from servingpool.recording.format import Header, RecordingError
from servingpool_backtest.autoscaler_rule import Rule
from servingpool_backtest.backlog import Backlogged, backlogged
from servingpool_backtest.report import Shown, page, sentence, shown
from servingpool_backtest.result import FORMAT, Question
from servingpool_backtest.run import backtest
from servingpool_backtest.summary import Line, said, summary
from servingpool_simulation.inputs import InputError, read_pool

NOT_USABLE, MISSED, NO_VERDICT = 1, 3, 5
"""Exit codes: a history cannot be used; Auto would have missed the SLO; the history is too little for a verdict."""
MOST_SHOWN = 16 * 2**20
"""Bytes of the figures that a page shows."""
OURS = "<title>servingpool backtest: "
"""Text in the head of every report, by which a report is recognised."""
HEAD = 1024
"""Characters within which it stands."""
SHOWN, LINE = TypeAdapter(Shown), TypeAdapter(Line)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, as they were given."""

    pool: Path | None
    ttft: str
    tpot: str
    attainment: float
    low: int | None
    high: int | None
    cold_start: str | None
    autoscaler: Path | None
    price: float | None

    def question(self, header: Header) -> Question:
        """The question, from a manifest or from options. Raises typer.BadParameter."""
        starts = None if self.cold_start is None else duration(self.cold_start, "--cold-start", "1s", "1h")
        rule = self._rule(header)
        if self.pool is not None:
            return self._of_manifest(header, self.pool, starts, rule)
        found = header.bounds or (1, None)
        most = self.high or found[1]
        if most is None:
            raise typer.BadParameter(
                "the recording names no autoscaler: give the highest replica count", param_hint="--max"
            )
        least = max(1, found[0]) if self.low is None else self.low
        try:
            share = round(self.attainment / 100, 6)
            slo = Slo(bound(self.ttft, "--ttft", "10m"), bound(self.tpot, "--tpot", "10s"), share)
            return Question(Pool(slo, least, most), starts, self.price, rule)
        except ValueError as error:
            raise typer.BadParameter(f"{error}; give --ttft, --tpot or --pool") from error

    @staticmethod
    def _of_manifest(header: Header, manifest: Path, starts: float | None, rule: Rule | None) -> Question:
        read = _manifest(manifest)
        core, behavior = core_pool(read, in_charge=True, during=(header.begin, header.end)), read.spec.behavior
        if core.slo.at_gateway:
            raise typer.BadParameter(
                "a recording has no gateway: set slo.measuredAt to Engine, got Gateway", param_hint="--pool"
            )
        if starts is None and "cold_start" in behavior.model_fields_set:
            starts = behavior.cold_start
        return Question(core, starts, read.spec.targets[0].cost_per_replica_hour, rule)

    def _rule(self, header: Header) -> Rule | None:
        """The autoscaler to replay; None without one."""
        if self.autoscaler is None:
            return None if header.autoscaler is None else _checked(header.autoscaler, header.engine, "--from")
        try:
            raw = read_yaml(self.autoscaler)
        except (OSError, NotYaml) as error:
            raise typer.BadParameter(f"cannot be read: {error}", param_hint="--autoscaler") from error
        if not isinstance(raw, dict) or raw.get("kind") not in {"HorizontalPodAutoscaler", "ScaledObject"}:
            raise typer.BadParameter("must hold one HorizontalPodAutoscaler or ScaledObject", param_hint="--autoscaler")
        return _checked(raw, header.engine, "--autoscaler")


def _manifest(path: Path) -> ServingPool:
    """Raises typer.BadParameter."""
    try:
        return read_pool(path, deadlines=True)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="--pool") from error


def told_by(pool: Path | None) -> tuple[str, str, str] | tuple[None, None, None]:
    """Engine, model and backlog's query of a manifest with deadlines, whose fleet may be at 0; None of any other."""
    if pool is None or (batch := (spec := _manifest(pool).spec).batch) is None:
        return None, None, None
    return spec.engine, spec.model, batch.backlog.query


def _checked(raw: Mapping[str, Any], engine: str, option: str) -> Rule:
    """Raises typer.BadParameter where it cannot be replayed because it is malformed."""
    rule = Rule(raw, engine)
    try:
        rule.check()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return rule


@dataclass(frozen=True, slots=True)
class _Done:
    """Result of one history of several, small enough to pass between processes."""

    line: Line
    shown: bytes = b""
    """JSON of what its page shows; empty where there is none."""
    figures: bytes = b""
    """JSON."""

    @property
    def page(self) -> str:
        """The HTML. ValueError where what it shows is of no report."""
        return page(SHOWN.validate_json(self.shown))


def single(source: Path, asked: Asked, report: Path, *, figures: bool) -> int:
    """Write a history into a page. Returns the exit code."""
    try:
        header, chunks = read(source)
        question = asked.question(header)
        if question.pool.batch is not None:
            return _queue(backlogged(header, chunks, question, question.pool.batch), figures=figures)
        with terminal(stderr=True).status("starting") as line:
            found = backtest(header, chunks, question, line.update)
    except RecordingError as error:
        echo(f"{source} {error}", err=True)
        return NOT_USABLE
    write_report(report, page(shown(found, command_line())))
    if figures:
        echo_json(orjson.dumps(found.to_dict()))
    else:
        echo(f"{sentence(found)}.\nReport: {report}")
    return NO_VERDICT if found.doubts else 0 if found.held else MISSED


def _queue(found: Backlogged, *, figures: bool) -> int:
    """Print what becomes of a queue. Returns the exit code."""
    if figures:
        echo_json(orjson.dumps({"format": FORMAT, **asdict(found)}))
    else:
        echo(f"{found.sentence()}.\n")
        table(found.rows())
        echo("\n".join(("", *found.unknowns)))
    return NO_VERDICT if found.doubts else 0 if found.auto["in_time"] >= 1.0 else MISSED


def several(files: Mapping[Path, str], asked: Asked, report: Path, *, form: str, jobs: int) -> int:
    """A page each and a summary, by so many processes at once; as `json` or `lines` on stdout too. The exit code.

    `files`: by recording why there is none, empty where there is one.
    """
    if told_by(asked.pool)[2] is not None:
        raise typer.BadParameter("a pool with batch is backtested alone: give one recording", param_hint="--pool")
    done = []
    with ProcessPoolExecutor(max(1, min(jobs, len(files)))) as pool:
        work = [pool.submit(_one, file, failed, asked, command_line()) for file, failed in files.items()]
        for one in (each.result() for each in work):
            echo(f"{one.line.target}: {one.line.failed or one.line.sentence}.", err=True)
            if form == "lines":
                squeezed = base64.b64encode(zlib.compress(one.shown, 9)).decode()
                echo_json(orjson.dumps({"line": asdict(one.line), "shown": squeezed}))
            done.append(one)
    if form == "lines":
        return 0
    if form == "json":
        parts = b",".join(one.figures for one in done if one.figures)
        failed = orjson.dumps({one.line.target: one.line.failed for one in done if one.line.failed})
        echo_json(b'{"format":%d,"pools":[%b],"failed":%b}' % (FORMAT, parts, failed))
    return _written(done, report, told=form != "json")


def collect(file: Path, report: Path) -> int:
    """The pages and the summary from the lines of a Job's pods, `-` for stdin. The exit code."""
    done: dict[str, _Done] = {}
    """By target: a pod that was tried again says the same once more."""
    broken = 0
    try:
        told = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise typer.BadParameter(f"cannot be read: {error.strerror}", param_hint="--collect") from error
    for text in told.splitlines():
        if text.startswith('{"line":'):
            try:
                one = _told_by(text)
            except (ValueError, KeyError, TypeError, zlib.error):
                broken += 1
            else:
                done[one.line.target] = one
    if broken:
        lines = "1 line that is" if broken == 1 else f"{broken} lines that are"
        echo(f"{file} has {lines} cut short or of no backtest: no page and no sum has their pools.", err=True)
    if not done:
        echo(f"{file} holds no line of `servingpool backtest -o lines`.", err=True)
        return NOT_USABLE
    code = _written(list(done.values()), report, told=True)
    return NOT_USABLE if broken else code


def _told_by(text: str) -> _Done:
    """Content of a line of `-o lines`. ValueError, KeyError, TypeError or zlib.error where it is no such line."""
    raw: dict[str, Any] = orjson.loads(text)
    line, unpacker = LINE.validate_python(raw["line"]), zlib.decompressobj()
    text_shown = unpacker.decompress(base64.b64decode(raw["shown"]), MOST_SHOWN)
    if not line.page:
        return _Done(line)
    if not unpacker.eof:
        raise ValueError("it is cut short, or too long")
    SHOWN.validate_json(text_shown)
    return _Done(line, text_shown)


def _written(done: Sequence[_Done], report: Path, *, told: bool) -> int:
    lines = [one.line for one in done]
    for one in done:
        if one.line.page:
            write_report(report.parent / one.line.page, one.page)
    write_report(report, summary(lines, command_line()))
    if told:
        echo(f"{said(lines)}.\nReport: {report}")
    if any(line.failed for line in lines):
        return NOT_USABLE
    if any(line.doubts for line in lines):
        return NO_VERDICT
    return 0 if all(line.held for line in lines) else MISSED


def _one(source: Path, failed: str, asked: Asked, command: str) -> _Done:
    if failed:
        return _Done(Line(source.stem, failed=failed))
    try:
        header, chunks = read(source)
        found = backtest(header, chunks, asked.question(header), processes=1)
        line = Line.of(found)
    except RecordingError as error:
        return _Done(Line(source.stem, failed=f"{source} {error}"))
    except typer.BadParameter as error:
        return _Done(Line(source.stem, failed=error.format_message()))
    except ValueError as error:
        return _Done(Line(source.stem, failed=f"{source} is no recording: {error}"))
    return _Done(line, SHOWN.dump_json(shown(found, command)), orjson.dumps(found.to_dict()))


def write_report(path: Path, html: str) -> None:
    """Creates the folder too. Raises typer.BadParameter, also where the file is there and is no report."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            ours = OURS in file.read(HEAD) or path.stat().st_size == 0
    except FileNotFoundError:
        ours = True
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}", param_hint="--report") from error
    if not ours:
        raise typer.BadParameter(
            f"{path} is there and is no report of servingpool backtest: move it, or write elsewhere",
            param_hint="--report",
        )
    write(path, html, "--report")
