"""What is remembered of a pool between two decisions, whole and in its lasting part."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.budget import ErrorBudget
from servingpool.decision.calibration import Calibration
from servingpool.decision.cold_start import ColdStart
from servingpool.decision.columns import FIGURES
from servingpool.decision.demand import MOST_WORK
from servingpool.decision.forecast import KEPT, Forecast
from servingpool.decision.intake import FASTEST_STEP, MOST_DECODING, NO_EDGES, Edges, Page
from servingpool.decision.ledger import AT, WIDTH, Ledger
from servingpool.decision.miss_curve import BINS, Curve, MissCurve
from servingpool.decision.past_loads import PastLoads
from servingpool.decision.percentile import Tail
from servingpool.decision.queueing import Queue
from servingpool.decision.saturation import LEAST_BATCH, SUMS, Saturation
from servingpool.decision.step_time import StepTimeFit

VERSION = 2
MOST_REQUESTS = 1e6
"""Effective requests at one load, of which a tick adds 12 and four hours leave 1/e. More is a damaged profile."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The part that is learned slowly and outlives a restart: engine, curve, errors, cold start.

    Small (about 8 KiB as JSON), so it fits the status of the custom resource.
    """

    at: float = 0.0
    """Unix time in seconds of the last observation in it."""
    fit: StepTimeFit = field(default_factory=StepTimeFit)
    saturation: Saturation = field(default_factory=Saturation)
    curve: MissCurve = field(default_factory=MissCurve)
    forecast: Forecast = field(default_factory=Forecast)
    cold_start: ColdStart = field(default_factory=ColdStart)
    budget: ErrorBudget = field(default_factory=ErrorBudget)
    calibration: Calibration = field(default_factory=Calibration)
    learned: float = 0.0
    """Seconds of observation that it rests on."""
    slo: tuple[float | None, float | None, float] | None = None
    """The SLO that curve and budget speak of: TTFT and TPOT in seconds, attainment."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON.

        Forecasts still open are left out.
        """
        forecast = replace(self.forecast, pending=())
        data: dict[str, Any] = _rounded(asdict(replace(self, forecast=forecast)))
        # As text: `kubectl describe` gives each figure of a list a line of its own, hundreds in all.
        data["fit"] |= {"gram": _text(data["fit"]["gram"]), "moment": _text(data["fit"]["moment"])}
        data["saturation"] = _saturation_data(self.saturation)
        data["curve"] = {name: _text(figures) for name, figures in data["curve"].items()}
        data["forecast"] |= {"pairs": _text(self.forecast.pairs.ravel().tolist())}
        data["cold_start"] |= {"seconds": _text(data["cold_start"]["seconds"])}
        # Seven digits of a Unix time are a quarter of an hour: history would be learned twice, or not at all.
        return data | {"version": VERSION, "at": round(self.at, 3)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `to_dict`'s data. Raises ValueError with the reason where it is of another version or damaged."""
        if data.get("version") != VERSION:
            raise ValueError(f"profile has version {data.get('version')!r}, this operator reads version {VERSION}")
        try:
            forecast, curve = data["forecast"], data["curve"]
            profile = cls(
                at=_figure(data["at"]),
                fit=StepTimeFit(
                    gram=_floats(data["fit"]["gram"], 9),
                    moment=_floats(data["fit"]["moment"], 3),
                    windows=(windows := _figure(data["fit"]["windows"], least=0.0)),
                    scale=_figure(data["fit"]["scale"], least=FASTEST_STEP / 2.0 if windows else 0.0),
                    drift=_figure(data["fit"]["drift"]),
                    renewing=data["fit"].get("renewing") is True,  # profiles of before it have none
                ),
                saturation=_saturation(data.get("saturation")),
                curve=_curve(curve),
                forecast=Forecast(
                    pairs=_pairs(forecast["pairs"]),
                    mean=_figure(forecast["mean"], least=0.0, most=MOST_WORK),
                    seen=_figure(forecast["seen"], least=0.0),
                    found=int(_figure(forecast["found"], least=0.0, most=MOST_WORK)),
                    pending=tuple((float(a), float(b), float(c)) for a, b, c in forecast["pending"]),
                ),
                cold_start=ColdStart(
                    _floats(data["cold_start"]["seconds"]), tuple(str(name) for name in data["cold_start"]["loading"])
                ),
                budget=_budget(data["budget"]),
                calibration=Calibration(
                    _figure(data["calibration"]["foretold"], least=0.0), _figure(data["calibration"]["came"], least=0.0)
                ),
                learned=_figure(data["learned"], least=0.0),
                slo=_slo(data["slo"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as damage:
            raise ValueError(f"profile is damaged: {damage!r}") from damage
        return profile


@dataclass(frozen=True, slots=True)
class Memory:
    """All that is remembered. A value: `decide` returns a new one and leaves the old as it was."""

    profile: Profile = field(default_factory=Profile)
    since: float | None = None
    """Unix time in seconds since which the pool is seen without a hole; None where nothing was seen yet."""
    covered_at: float | None = None
    """Unix time in seconds of the last look that told of any traffic, or that there was none."""
    ledger: Ledger = field(default_factory=Ledger.empty)
    pages: Mapping[str, Page] = field(default_factory=dict)
    """Each replica's last page."""
    queues: tuple[float, ...] = ()
    """Requests in each engine's queue at the last look; empty where they are not known."""
    stuck: int = 0
    """Replicas that served nothing at the last look while requests waited for them."""
    door: Queue | None = None
    """The gateway's queue; None where there is none."""
    edges: Edges = NO_EDGES
    lacking: str | None = None
    """A series that some page lacked at the last look."""
    no_queue: str | None = None
    """Why the queue was not known at the last look."""
    interval: float = 15.0
    """Seconds between scrapes, as seen."""
    coverage: float = 0.0
    """Share of ready replicas read at the last look."""
    first_token_tail: Tail = field(default_factory=Tail)
    output_token_tail: Tail = field(default_factory=Tail)
    kept_score: tuple[tuple[float, float, float], ...] = ()
    """(start of a five-minute bin, requests, late) of the last hour."""
    kept: tuple[tuple[float, float], ...] = ()
    """(time, replicas worth keeping) of recent decisions, for the scale-down window."""
    past_loads: PastLoads = field(default_factory=PastLoads)
    price: float | None = None
    """Of a miss, see `price`; None where it is to be found anew."""
    price_until: float = 0.0
    """Unix time in seconds up to which it is kept."""
    foretelling: Curve | None = field(default=None, compare=False, repr=False)
    """The miss curve of the last decision. It follows from all the rest, so it is no part of the JSON."""

    @classmethod
    def new(cls) -> Self:
        """The memory of a pool never seen."""
        return cls()

    @classmethod
    def resume(cls, profile: Profile) -> Self:
        """The memory after a restart: what was learned is kept, what was in windows must be seen again."""
        return cls(profile=profile)

    @property
    def at(self) -> float | None:
        """Unix time in seconds of the last look; None before the first."""
        return float(self.ledger.rows[-1, AT]) if len(self.ledger.rows) else None

    def in_other_units(self, ratio: float) -> Memory:
        """The same where what was work of 1 is work of `ratio`."""
        profile = replace(
            self.profile,
            curve=self.profile.curve.in_other_units(ratio),
            forecast=self.profile.forecast.in_other_units(ratio),
        )
        return replace(
            self,
            profile=profile,
            ledger=self.ledger.in_other_units(ratio),
            past_loads=self.past_loads.in_other_units(ratio),
            price=None,
            foretelling=None,
        )

    def without_forecasts(self) -> Memory:
        """The memory behind a hole: what was forecast for it must not be settled with what came after."""
        forecast = replace(self.profile.forecast, pending=())
        return replace(self, profile=replace(self.profile, forecast=forecast), price=None)

    def interrupted(self) -> Memory:
        """The memory behind a break: what was learned is kept, what was in windows must be seen again."""
        return replace(
            self.without_forecasts(),
            since=None,
            covered_at=None,
            ledger=Ledger.empty(),
            pages={},
            queues=(),
            stuck=0,
            door=None,
            first_token_tail=Tail(),
            output_token_tail=Tail(),
            kept_score=(),
            kept=(),
            past_loads=PastLoads(),
            foretelling=None,
        )

    def to_json(self) -> str:
        """As JSON text."""
        profile = asdict(self.profile)
        profile["forecast"]["pairs"] = self.profile.forecast.pairs.tolist()
        profile["saturation"] = _saturation_data(self.profile.saturation)
        data = {
            "version": VERSION,
            "profile": profile | {"version": VERSION},
            "since": self.since,
            "covered_at": self.covered_at,
            "ledger": [[None if math.isnan(cell) else cell for cell in row] for row in self.ledger.rows.tolist()],
            "pages": {
                name: (page.at, _finite(page.edges), _finite(page.figures), page.queue)
                for name, page in self.pages.items()
            },
            "queues": self.queues,
            "stuck": self.stuck,
            "door": self.door,
            "edges": _finite(self.edges),
            "lacking": self.lacking,
            "no_queue": self.no_queue,
            "interval": self.interval,
            "coverage": self.coverage,
            "first_token_tail": _tail_data(self.first_token_tail),
            "output_token_tail": _tail_data(self.output_token_tail),
            "kept_score": self.kept_score,
            "kept": self.kept,
            "past_loads": self.past_loads.bins,
            "price": self.price,
            "price_until": self.price_until,
        }
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `to_json`'s text. Raises ValueError where it is damaged or of another version."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError(f"this is no memory of version {VERSION}")
        try:
            rows = [[math.nan if cell is None else cell for cell in row] for row in data["ledger"]]
            return cls(
                profile=Profile.from_dict(data["profile"]),
                since=data["since"],
                covered_at=data["covered_at"],
                ledger=Ledger(np.array(rows, dtype=float).reshape(-1, WIDTH)),
                pages={
                    name: Page(float(at), _edges(edges), _figures(figures), _queue(queue))
                    for name, (at, edges, figures, queue) in data["pages"].items()
                },
                queues=_floats(data["queues"]),
                stuck=int(data["stuck"]),
                door=_queue(data["door"]),
                edges=_edges(data["edges"]),
                lacking=data["lacking"],
                no_queue=data.get("no_queue"),
                interval=data["interval"],
                coverage=data["coverage"],
                first_token_tail=_tail(data["first_token_tail"]),
                output_token_tail=_tail(data["output_token_tail"]),
                kept_score=tuple((a, b, c) for a, b, c in data["kept_score"]),
                kept=tuple((a, b) for a, b in data["kept"]),
                past_loads=PastLoads(tuple((_figure(begin), _figure(load)) for begin, load in data["past_loads"])),
                price=data["price"],
                price_until=data["price_until"],
            )
        except (KeyError, TypeError, ValueError, OverflowError) as damage:
            raise ValueError(f"memory is damaged: {damage!r}") from damage


def _slo(data: Any) -> tuple[float | None, float | None, float] | None:
    if data is None:
        return None
    ttft, tpot, attainment = data
    return None if ttft is None else float(ttft), None if tpot is None else float(tpot), float(attainment)


def _curve(data: Mapping[str, Any]) -> MissCurve:
    curve = MissCurve(_floats(data["requests"], len(BINS)), _floats(data["late"], len(BINS)))
    if not all(0.0 <= late <= seen <= MOST_REQUESTS for seen, late in zip(curve.requests, curve.late, strict=True)):
        raise ValueError(f"requests at a load, and those late of them, are not within 0 and {MOST_REQUESTS:g}")
    return curve


def _budget(data: Mapping[str, Any]) -> ErrorBudget:
    """Profiles of before the fast and the slow burn rate have neither."""
    requests, seconds = (_figure(data.get(name, 0.0), least=0.0) for name in ("requests", "seconds"))
    return ErrorBudget(_figure(data.get("fast", 0.0)), _figure(data.get("slow", 0.0)), requests, seconds)


def _finite(figures: tuple[float, ...]) -> list[float | None]:
    """JSON has neither infinity nor NaN."""
    return [figure if math.isfinite(figure) else None for figure in figures]


def _figures(data: Any) -> tuple[float, ...]:
    figures = tuple(math.nan if figure is None else _figure(figure) for figure in data)
    if len(figures) != FIGURES:
        raise ValueError(f"expected {FIGURES} figures, found {len(figures)}")
    return figures


def _queue(data: Any) -> Queue | None:
    if data is None:
        return None
    at, requests, joined, wait, room = data
    points = tuple((_figure(then), _figure(count)) for then, count in joined)
    return Queue(_figure(at), _figure(requests), points, _figure(wait), room is True)


def _edges(data: Any) -> Edges:
    a, b, c, d, e, f = (math.inf if edge is None else float(edge) for edge in data)
    return a, b, c, d, e, f


def _saturation_data(saturation: Saturation) -> dict[str, float | None]:
    return asdict(saturation) | {"batch": saturation.batch if saturation.known else None}


def _saturation(data: Mapping[str, Any] | None) -> Saturation:
    """Profiles of before it have none."""
    if data is None:
        return Saturation()
    batch = data.get("batch")  # a merge patch drops what is null
    sums = {name: _figure(data[name], least=0.0) for name in SUMS}
    return Saturation(
        **sums, batch=math.inf if batch is None else _figure(batch, least=LEAST_BATCH, most=MOST_DECODING)
    )


def _tail_data(tail: Tail) -> dict[str, Any]:
    """Bounds without the closing +Inf, which JSON cannot say."""
    return {
        "bounds": tail.bounds[:-1],
        "counts": tail.counts,
        "previous": {name: (bounds[:-1], counts) for name, (bounds, counts) in tail.previous.items()},
    }


def _tail(data: Mapping[str, Any]) -> Tail:
    counts = _floats(data["counts"])
    return Tail(
        bounds=(*_floats(data["bounds"]), math.inf) if counts else (),
        counts=counts,
        previous={
            name: ((*_floats(bounds), math.inf), _floats(counts)) for name, (bounds, counts) in data["previous"].items()
        },
    )


def _text(figures: list[float]) -> str:
    return " ".join(f"{figure:.7g}" for figure in figures)


def _floats(values: Any, length: int | None = None) -> tuple[float, ...]:
    figures = tuple(float(value) for value in (values.split() if isinstance(values, str) else values))
    if length is not None and len(figures) != length:
        raise ValueError(f"expected {length} figures, found {len(figures)}")
    if not all(math.isfinite(figure) for figure in figures):
        raise ValueError("a figure is not finite")
    return figures


def _figure(value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    figure = float(value)
    if not math.isfinite(figure) or not least <= figure <= most:
        raise ValueError(f"a figure is {figure}")
    return figure


def _pairs(values: Any) -> NDArray[np.float64]:
    figures = np.array(values.split() if isinstance(values, str) else values, dtype=float).reshape(-1, 3)
    if not ((figures >= 0.0) & (figures <= MOST_WORK)).all():
        raise ValueError(f"a demand is not within 0 and {MOST_WORK:g}")
    # All that is kept is weighed against all else: 2,500 pairs in a status that anyone wrote took 2 s and 400 MiB.
    return figures[-KEPT:].copy()


def _rounded(data: Any) -> Any:
    """Seven significant digits everywhere: a third of the bytes, far below the noise."""
    if isinstance(data, float):
        return float(f"{data:.7g}")
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(value) for value in data]
    return data
