"""What was learned of a pool, as kept in the resource's status: read with care, for anyone may have written it.

Lists are kept as text: `kubectl describe` gives each figure of a list a line of its own. Keys are those of the first
release, so that an operator of the version before reads the same profile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from servingpool.api.target import LONGEST_NAME, MOST_TARGETS
from servingpool.decision.budget import Calibration, ErrorBudget
from servingpool.decision.cold_start import LONGEST, ColdStart
from servingpool.decision.forecast import KEPT, MOST_WORK, Forecast
from servingpool.decision.gateway_demand import Busy, Vanished
from servingpool.decision.kinds import LEAST_SPEED, MOST_SPEED, Kind
from servingpool.decision.lost_caches import KEPT as KEPT_CHANGES
from servingpool.decision.lost_caches import LostCaches
from servingpool.decision.miss_curve import BINS, MissCurve
from servingpool.decision.params import DEFAULT
from servingpool.decision.queue_in_ttft import PAIRS, QueueInTtft
from servingpool.decision.saturation import LEAST_BATCH, LEAST_SECONDS, MOST_BATCH, Saturation
from servingpool.decision.state import Profile
from servingpool.decision.step_time import FASTEST_STEP, StepTimeFit

VERSION = 2
MOST_REQUESTS = 1e6
"""Effective requests at one load, of which a tick adds 12 and four hours leave 1/e. More is a damaged profile."""
MOST_SLOW = 24.0
"""Hours of allowed misses, more than a day can overspend."""
SLOWEST_STEP = 100.0
"""A step with one request, over the mean of all steps: no engine has such a one."""
ANOTHER_BATCH = 1.25
"""Full batch over the one that its sums give, or the reverse: the core follows a change of a tenth."""

LARGEST_RISE = 20.0
"""Logarithm of a rise of work per request: no prompt is hundreds of millions of times as long as another."""
LATEST = 4e9
"""Unix time in seconds, in the year 2096: a later one is damaged, and would not be told as a date."""


def _split(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    return value.split() if isinstance(value, str) else value


def _text(figures: tuple[float, ...]) -> str:
    return " ".join(f"{figure:.7g}" for figure in figures)


# Seven digits: a third of the bytes, far below the noise.
Figure = Annotated[float, PlainSerializer(lambda figure: float(f"{figure:.7g}"), when_used="json")]
NonNegative = Annotated[Figure, Field(ge=0.0)]
Figures = Annotated[tuple[float, ...], BeforeValidator(_split), PlainSerializer(_text, when_used="json")]
Demands = Annotated[
    tuple[Annotated[float, Field(ge=0.0, le=MOST_WORK)], ...],
    BeforeValidator(_split),
    PlainSerializer(_text, when_used="json"),
]
Counts = Annotated[
    tuple[Annotated[float, Field(ge=0.0, le=MOST_REQUESTS)], ...],
    Field(min_length=len(BINS), max_length=len(BINS)),
    BeforeValidator(_split),
    PlainSerializer(_text, when_used="json"),
]


Rises = Annotated[
    tuple[Annotated[float, Field(ge=0.0, le=LARGEST_RISE)], ...],
    Field(max_length=KEPT_CHANGES),
    BeforeValidator(_split),
    PlainSerializer(_text, when_used="json"),
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True, allow_inf_nan=False, extra="ignore")


class _Fit(_Part):
    gram: Annotated[Figures, Field(min_length=9, max_length=9)]
    moment: Annotated[Figures, Field(min_length=3, max_length=3)]
    windows: NonNegative
    scale: NonNegative
    drift: Figure
    renewing: bool = False

    @model_validator(mode="after")
    def _has_a_scale(self) -> _Fit:
        if self.windows and self.scale < FASTEST_STEP / 2.0:
            raise ValueError(f"scale must be at least {FASTEST_STEP / 2.0} s after a window, got {self.scale:g} s")
        return self


class _Saturation(_Part):
    seconds: NonNegative = 0.0
    requests: NonNegative = 0.0
    tokens: NonNegative = 0.0
    decoding: NonNegative = 0.0
    batch: Annotated[
        Annotated[Figure, Field(ge=LEAST_BATCH, le=MOST_BATCH)] | None,
        BeforeValidator(lambda batch: None if batch == math.inf else batch),
    ] = None
    most_running: NonNegative = 0.0


class _QueueInTtft(_Part):
    moments: Annotated[
        tuple[Annotated[float, Field(ge=0.0)], ...],
        Field(min_length=len(PAIRS), max_length=len(PAIRS)),
        BeforeValidator(_split),
        PlainSerializer(_text, when_used="json"),
    ]
    queued: NonNegative
    excluded: bool


class _Curve(_Part):
    requests: Counts
    late: Counts

    @model_validator(mode="after")
    def _no_more_late_than_all(self) -> _Curve:
        if not all(late <= seen for seen, late in zip(self.requests, self.late, strict=True)):
            raise ValueError("late requests must not outnumber all requests")
        return self


class _Forecast(_Part):
    pairs: Demands
    mean: Annotated[NonNegative, Field(le=MOST_WORK)]
    seen: NonNegative
    initial_replicas: Annotated[
        int,
        Field(ge=0, le=MOST_WORK),
        Field(validation_alias=AliasChoices("initial_replicas", "found"), serialization_alias="found"),
    ]

    @model_validator(mode="after")
    def _in_rows_of_three(self) -> _Forecast:
        if len(self.pairs) % 3:
            raise ValueError(f"the number of figures must be a multiple of 3, got {len(self.pairs)}")
        return self


class _ColdStart(_Part):
    seconds: Annotated[
        tuple[Annotated[float, Field(gt=0.0, le=LONGEST)], ...],
        BeforeValidator(_split),
        PlainSerializer(_text, when_used="json"),
    ]
    loading: tuple[str, ...]


class _Budget(_Part):
    fast: Annotated[Figure, Field(ge=-1.0, le=1.0)] = 0.0
    slow: Annotated[Figure, Field(ge=-MOST_SLOW, le=MOST_SLOW)] = 0.0
    requests: NonNegative = 0.0
    seconds: NonNegative = 0.0


class _Calibration(_Part):
    predicted: Annotated[
        NonNegative, Field(validation_alias=AliasChoices("predicted", "foretold"), serialization_alias="foretold")
    ]
    observed: Annotated[
        NonNegative, Field(validation_alias=AliasChoices("observed", "came"), serialization_alias="came")
    ]


class _Busy(_Part):
    level: Annotated[NonNegative, Field(le=MOST_WORK)] = 0.0
    prompt: NonNegative = 0.0
    steps: NonNegative = 0.0
    tokens: Annotated[Figure, Field(ge=1.0)] = 1.0
    seconds: NonNegative = 0.0


class _Vanished(_Part):
    at: Annotated[float, Field(ge=0.0, le=LATEST)]
    gateway: Annotated[str, Field(max_length=512)]


class _LostCaches(_Part):
    after_more: Rises = ()
    after_fewer: Rises = ()
    compared: NonNegative = 0.0
    rose: NonNegative = 0.0


class _Kind(_Part):
    target: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    fit: _Fit
    saturation: _Saturation = _Saturation()
    cold_start: _ColdStart
    speed: Annotated[Figure, Field(ge=0.0, le=MOST_SPEED)] | None = None

    @model_validator(mode="after")
    def _speed_of_an_engine(self) -> _Kind:
        if self.speed is not None and 0.0 < self.speed < LEAST_SPEED / 2.0:
            raise ValueError(f"speed must be 0 or at least {LEAST_SPEED}, got {self.speed:g}")
        return self


class _LearnedProfile(_Part):
    version: int = VERSION
    # Seven digits of a Unix time are a quarter of an hour: history would be learned twice, or not at all.
    at: Annotated[float, PlainSerializer(lambda at: round(at, 3), when_used="json")]
    fit: _Fit
    saturation: _Saturation = _Saturation()
    queue_in_ttft: _QueueInTtft = _QueueInTtft(**asdict(QueueInTtft()))
    curve: _Curve
    forecast: _Forecast
    cold_start: _ColdStart
    budget: _Budget
    calibration: _Calibration
    learned: NonNegative
    slo: tuple[float | None, float | None, float] | None
    at_gateway: bool = False
    busy: _Busy = _Busy()
    vanished: _Vanished | None = None
    lost_caches: _LostCaches = _LostCaches()
    kinds: Annotated[tuple[_Kind, ...], Field(max_length=MOST_TARGETS)] = ()
    reference: Annotated[str, Field(max_length=LONGEST_NAME)] = ""


KEYS = tuple(field.serialization_alias or name for name, field in _LearnedProfile.model_fields.items())
"""All that `dump`'s data may have."""


def dump(profile: Profile) -> dict[str, Any]:
    """Plain data for JSON, about 8 KiB. Forecasts still open are left out, and what only several targets have."""
    data = _LearnedProfile.model_validate(profile).model_dump(mode="json", by_alias=True)
    data["forecast"]["pending"] = []  # the version before asks for it
    for name in ("kinds", "reference"):
        if not data[name]:
            del data[name]
    return data


def load(data: object) -> Profile:
    """Read `dump`'s data. Raises ValueError with the reason where it is of another version or damaged."""
    version = data.get("version") if isinstance(data, Mapping) else None
    if version != VERSION:
        raise ValueError(f"profile has version {version!r}, this operator reads version {VERSION}")
    try:
        kept = _LearnedProfile.model_validate(data)
    except ValidationError as damage:
        first = damage.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"profile is damaged: {place}: {first['msg']}, got {first['input']!r:.60}") from damage
    forecast = kept.forecast
    # All pairs are weighed against all others: 2,500 of them took 2 s and 400 MiB.
    pairs = np.array(forecast.pairs, dtype=float).reshape(-1, 3)[-KEPT:]
    return Profile(
        at=kept.at,
        fit=_plausible_fit(kept.fit),
        saturation=_plausible_batch(kept.saturation),
        queue_in_ttft=QueueInTtft(**dict(kept.queue_in_ttft)),
        curve=MissCurve(**dict(kept.curve)),
        forecast=Forecast((), pairs, forecast.mean, forecast.seen, forecast.initial_replicas),
        cold_start=ColdStart(**dict(kept.cold_start)),
        budget=ErrorBudget(**dict(kept.budget)),
        calibration=Calibration(**dict(kept.calibration)),
        learned=kept.learned,
        slo=kept.slo,
        at_gateway=kept.at_gateway,
        busy=Busy(**dict(kept.busy)),
        vanished=None if kept.vanished is None else Vanished(**dict(kept.vanished)),
        lost_caches=LostCaches(**dict(kept.lost_caches)),
        kinds=tuple(
            Kind(
                one.target,
                _plausible_fit(one.fit),
                _plausible_batch(one.saturation),
                ColdStart(**dict(one.cold_start)),
                one.speed,
            )
            for one in kept.kinds
        ),
        reference=kept.reference,
    )


def _plausible_fit(kept: _Fit) -> StepTimeFit:
    fit = StepTimeFit(**dict(kept))
    step = fit.solve(DEFAULT)
    seconds = 0.0 if step is None else step.seconds(1.0, 0.0)
    if fit.windows and not 0.0 < seconds <= SLOWEST_STEP * fit.scale:
        raise ValueError(
            f"profile is damaged: fit: a step must take more than 0 s and at most {SLOWEST_STEP * fit.scale:.3g} s, "
            f"got {seconds:.3g} s"
        )
    return fit


def _plausible_batch(kept: _Saturation) -> Saturation:
    seen = Saturation(**(dict(kept) | {"batch": math.inf if kept.batch is None else kept.batch}))
    if seen.known and seen.seconds >= LEAST_SECONDS:
        mean = seen.decoding / seen.seconds
        if not 1.0 / ANOTHER_BATCH <= mean / seen.batch <= ANOTHER_BATCH:
            least, most = mean / ANOTHER_BATCH, mean * ANOTHER_BATCH
            raise ValueError(
                f"profile is damaged: saturation: batch must be {least:.3g} to {most:.3g}, got {seen.batch:.3g}"
            )
    return seen
