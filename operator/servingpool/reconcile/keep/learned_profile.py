"""The learned profile of a pool in the resource's status: read with care, for anyone may have written it.

Lists are kept as text: `kubectl describe` gives each figure of a list a line of its own. A profile of another version
is discarded, and history teaches the pool anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    create_model,
)

from servingpool.api.target import LONGEST_NAME, MOST_TARGETS
from servingpool.decision.engine import FASTEST_STEP, LEAST_BATCH, MOST_BATCH, MOST_RATE, MOST_WORK, Rates
from servingpool.decision.learn.error_budget import Calibration, ErrorBudget
from servingpool.decision.learn.forecast import FORECASTS_KEPT, Busy, Forecast
from servingpool.decision.learn.kinds import LONGEST_COLD_START, MOST_SPEED, ColdStart, Kind
from servingpool.decision.learn.ledger import DEADLINES, Due, Ledger
from servingpool.decision.learn.memory import Profile
from servingpool.decision.learn.miss_curve import BINS, MissCurve
from servingpool.decision.learn.queue_in_ttft import PAIRS, QueueInTtft
from servingpool.decision.learn.step_time import LEAST_SECONDS, Saturation, StepTimeFit
from servingpool.decision.params import DEFAULT
from servingpool.decision.zero import Vanished

VERSION = 4
MOST_REQUESTS = 1e6
"""Effective requests at one load, of which a tick adds 12 and four hours leave 1/e. More is a damaged profile."""
MOST_SLOW = 24.0
"""Hours of allowed misses, more than a day can overspend."""
SLOWEST_STEP = 100.0
"""Ratio of a step with one request to the mean of all steps, at most: no engine exceeds it."""
ANOTHER_BATCH = 1.25
"""Ratio of the full batch to the batch by its sums, or the reverse, at most: the core follows a change of a tenth."""
LATEST = 4e9
"""Unix time in seconds, in the year 2096: a later time is damaged, and cannot be shown as a date."""


def _figures(kept: Any) -> Any:
    if isinstance(kept, np.ndarray):
        return kept.ravel().tolist()
    return kept.split() if isinstance(kept, str) else kept


def _text(figures: Iterable[float]) -> str:
    return " ".join(f"{figure:.7g}" for figure in _figures(figures))


def _short_text(figures: Iterable[float]) -> str:
    return " ".join(f"{float(f'{figure:.4g}'):.12g}" for figure in _figures(figures))


def _speed_of_an_engine(speed: float) -> float:
    if 0.0 < speed < 0.5 / MOST_SPEED:
        raise ValueError(f"speed must be 0 or at least {1.0 / MOST_SPEED}")
    return speed


def _rows(*shape: int) -> AfterValidator:
    """Into an array with rows of this shape. All rows are weighed against all others: 2,500 took 2 s and 400 MiB."""

    def rows(figures: tuple[float, ...]) -> Any:
        if len(figures) % math.prod(shape):
            raise ValueError(f"the number of figures must be a multiple of {math.prod(shape)}, got {len(figures)}")
        return np.array(figures).reshape(-1, *shape)[-FORECASTS_KEPT:]

    return AfterValidator(rows)


Each = TypeVar("Each")
Row = Annotated[tuple[Each, ...], BeforeValidator(_figures), PlainSerializer(_text, when_used="json")]
# Seven digits: a third of the bytes, far below the noise.
Figure = Annotated[float, PlainSerializer(lambda figure: float(f"{figure:.7g}"), when_used="json")]
NonNegative = Annotated[Figure, Field(ge=0.0)]
Rate = Annotated[NonNegative, Field(le=MOST_RATE)]
RatesOf = Annotated[Row[Rate], Field(min_length=2, max_length=2), AfterValidator(Rates._make)]
Count = Annotated[NonNegative, Field(le=MOST_REQUESTS)]
Counts = Annotated[Row[Count], Field(min_length=len(BINS), max_length=len(BINS))]
Batch = Annotated[Figure, Field(ge=LEAST_BATCH, le=MOST_BATCH)]
Speed = Annotated[Figure, Field(ge=0.0, le=MOST_SPEED), AfterValidator(_speed_of_an_engine)]
# Four digits, for they are six of 240 forecasts: half of a profile, and still far below the noise.
Pairs = Annotated[
    tuple[Rate, ...], BeforeValidator(_figures), PlainSerializer(_short_text, when_used="json"), _rows(3, 2)
]


class _Part(BaseModel):
    """A dataclass of the core, as kept. None stands for the core's default."""

    model_config = ConfigDict(from_attributes=True, allow_inf_nan=False)
    core: ClassVar[type]


def _part(core: type, *, optional: str = "", without: str = "", **bounds: Any) -> Any:
    """The fields of a dataclass of the core, as kept. A float without bounds is 0 or more.

    A profile that lacks a field is damaged, but for the `optional` ones: a merge patch drops what is null.
    """
    types = get_type_hints(core)
    if unknown := {*optional.split(), *without.split(), *bounds} - types.keys():
        raise TypeError(f"{core.__name__} has no {', '.join(sorted(unknown))}")
    fields: dict[str, Any] = {
        name: (bounds.get(name, NonNegative if of is float else of), None if name in optional.split() else ...)
        for name, of in types.items()
        if name not in without.split()
    }
    model = create_model(core.__name__, __base__=_Part, **fields)
    model.core = core
    return model


_FIT = _part(
    StepTimeFit,
    gram=Annotated[Row[Figure], Field(min_length=9, max_length=9)],
    moment=Annotated[Row[Figure], Field(min_length=3, max_length=3)],
    drift=Figure,
)
_SATURATION = _part(
    Saturation,
    optional="batch",
    batch=Annotated[Batch | None, BeforeValidator(lambda batch: None if batch == math.inf else batch)],
)
# Seven digits of a Unix time are a quarter of an hour: history would be learned twice, or not at all.
_At = Annotated[float, Field(ge=0.0, le=LATEST), PlainSerializer(lambda at: round(at, 3), when_used="json")]
_LEDGER = _part(
    Ledger,
    optional="known_at cost unit had overdue",
    at=_At,
    dues=Annotated[
        tuple[tuple[_At, NonNegative], ...],
        Field(max_length=4 * DEADLINES),
        AfterValidator(lambda dues: tuple(map(Due._make, dues))),
    ],
    known_at=_At | None,
    busy_at=_At,
    cost=Annotated[float, Field(gt=0.0)] | None,
    unit=Annotated[str, Field(max_length=16)],
)
_COLD_START = _part(ColdStart, seconds=Row[Annotated[float, Field(gt=0.0, le=LONGEST_COLD_START)]])
_KIND = _part(
    Kind,
    optional="speed",
    target=Annotated[str, Field(max_length=LONGEST_NAME)],
    fit=_FIT,
    saturation=_SATURATION,
    cold_start=_COLD_START,
    speed=Speed | None,
)
_PROFILE = _part(
    Profile,
    optional="vanished ledger",
    without="engine",
    at=Annotated[float, PlainSerializer(lambda at: round(at, 3), when_used="json")],
    queue_in_ttft=_part(
        QueueInTtft,
        moments=Annotated[Row[NonNegative], Field(min_length=len(PAIRS), max_length=len(PAIRS))],
    ),
    curve=_part(MissCurve, requests=Counts, late=Counts),
    forecast=_part(
        Forecast,
        without="pending",
        pairs=Pairs,
        mean=RatesOf,
        initial_replicas=Annotated[int, Field(ge=0, le=MOST_WORK)],
    ),
    budget=_part(
        ErrorBudget,
        fast=Annotated[Figure, Field(ge=-1.0, le=1.0)],
        slow=Annotated[Figure, Field(ge=-MOST_SLOW, le=MOST_SLOW)],
    ),
    calibration=_part(Calibration),
    busy=_part(Busy, rates=RatesOf, tokens=Annotated[Figure, Field(ge=1.0)]),
    vanished=_part(
        Vanished,
        at=Annotated[float, Field(ge=0.0, le=LATEST)],
        gateway=Annotated[str, Field(max_length=512)],
    )
    | None,
    kinds=Annotated[tuple[_KIND, ...], Field(max_length=MOST_TARGETS)],  # type: ignore[valid-type]  # made above
    reference=Annotated[str, Field(max_length=LONGEST_NAME)],
    ledger=Annotated[_LEDGER | None, BeforeValidator(lambda ledger: None if ledger == Ledger() else ledger)],
)


KEYS = ("version", *_PROFILE.model_fields)
"""Keys that `dump`'s data may have."""


def dump(profile: Profile) -> dict[str, Any]:
    """Plain data for JSON, about 9 KiB. Forecasts still open are left out."""
    kept: dict[str, Any] = _PROFILE.model_validate(profile).model_dump(mode="json")
    return {"version": VERSION, **kept}


def load(data: object) -> Profile:
    """Read what `dump` wrote. ValueError says why where it is damaged or of another version."""
    version = data.get("version") if isinstance(data, Mapping) else None
    if version != VERSION:
        raise ValueError(f"profile has version {version!r}, this operator reads version {VERSION}")
    try:
        profile: Profile = _made(_PROFILE.model_validate(data))
    except ValidationError as damage:
        first = damage.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"profile is damaged: {place}: {first['msg']}, got {first['input']!r:.60}") from damage
    for contradiction in _contradictions(profile):
        raise ValueError(f"profile is damaged: {contradiction}")
    return profile


def _made(kept: Any) -> Any:
    """The core's value of a kept part."""
    if isinstance(kept, _Part):
        return kept.core(**{name: _made(value) for name, value in kept if value is not None})
    return tuple(map(_made, kept)) if type(kept) is tuple else kept


def _contradictions(profile: Profile) -> Iterator[str]:
    """Figures that contradict each other though each is within its bounds."""
    if any(late > seen for seen, late in zip(profile.curve.requests, profile.curve.late, strict=True)):
        yield "curve: late requests must not outnumber all requests"
    for index, kind in enumerate(profile.kinds):
        place, fit, full = f"kinds.{index}.", kind.fit, kind.saturation
        if fit.windows and fit.scale < FASTEST_STEP / 2.0:
            yield f"{place}fit: scale must be at least {FASTEST_STEP / 2.0} s after a window, got {fit.scale:g} s"
        step, most = fit.solve(DEFAULT), SLOWEST_STEP * fit.scale
        if step is not None and not 0.0 < (seconds := step.seconds(1.0, 0.0)) <= most:
            yield f"{place}fit: a step must take more than 0 s and at most {most:.3g} s, got {seconds:.3g} s"
        if full.known and full.seconds >= LEAST_SECONDS:
            mean = full.decoding / full.seconds
            least, most = mean / ANOTHER_BATCH, mean * ANOTHER_BATCH
            if not least <= full.batch <= most:
                yield f"{place}saturation: batch must be {least:.3g} to {most:.3g}, got {full.batch:.3g}"
