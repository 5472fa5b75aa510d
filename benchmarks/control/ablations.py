"""Our own with one idea taken out at a time: what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

from cases import Kind

from servingpool.decision import assess, budget, calibration, demand, forecast, learn, miss_curve
from servingpool.decision import price as pricing
from servingpool.decision.intake import Intake, Page, steps_told, take_in
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.policies import Answer, Ours, Policy

KINDS = (Kind.BURST, Kind.FAMILY)
"""Cases that show what an idea is worth: each was put in for one of them."""
Changes = Mapping[tuple[ModuleType, str], Any]
"""(module of the core, name in it) -> what it is instead."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One variant."""

    name: str
    what: str
    """What it does without, in a sentence's end."""
    make: Callable[[], Policy]
    """A fresh policy. It runs in a process that goes on to other work, so it must change nothing that is shared."""


@dataclass(slots=True)
class Without:
    """Our core, changed for as long as it decides and no longer."""

    changes: Changes
    ours: Ours = field(default_factory=Ours)
    name: str = "servingpool"
    every: float = 15.0
    every_bucket: bool = False

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One call of the changed core."""
        with self._changed():
            return self.ours.decide(observation, pool, now)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """Warm-up with the changed core."""
        with self._changed():
            self.ours.learn(observation, pool, now)

    def _changed(self) -> ExitStack:
        stack = ExitStack()
        for (module, name), value in self.changes.items():
            stack.enter_context(mock.patch.object(module, name, value))
        return stack


def _without(changes: Changes) -> Callable[[], Policy]:
    return partial(Without, changes)


def _fixed_price(*_: object, **__: object) -> float:
    return 20.0


def _of_the_fleet(observation: Observation, slo: Slo, previous: Mapping[str, Page]) -> Intake:
    intake = take_in(observation, slo, previous)
    together = steps_told(intake.sums, intake.covered) if intake.steps else None
    return replace(intake, steps=() if together is None else (together,))


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "price", "a miss always costs 20, whatever was missed lately", _without({(assess, "price"): _fixed_price})
    ),
    Ablation("margin", "the past is believed to the last miss", _without({(pricing, "MARGIN"): 0.0})),
    Ablation("aftermath", "an overload costs only itself", _without({(miss_curve, "AFTERMATH"): 0.0})),
    Ablation(
        "calibration",
        "the curve is believed",
        _without({(calibration, "LEAST"): 1.0, (calibration, "MOST"): 1.0}),
    ),
    Ablation("budget", "the last hour is forgiven", _without({(budget, "LEAST"): 1.0})),
    Ablation("trust", "the fleet that was found says nothing", _without({(forecast, "TRUST"): 0.0})),
    Ablation("reversion", "what is stays", _without({(forecast, "RIDGE"): (1e9, 1e9)})),
    Ablation("likeness", "errors at every level count alike", _without({(forecast, "LIKENESS"): 1e3})),
    Ablation("own step", "a step is taken to meet the fleet's mean", _without({(learn, "take_in"): _of_the_fleet})),
    Ablation("hold", "scales down two minutes after the need fell", _without({(assess, "STARTS"): 0.0})),
    Ablation(
        "half minute",
        "the level is that of a whole minute",
        _without({(demand, "LEVEL_WINDOW"): 60.0, (demand, "LEVEL_SCRAPES"): 4.0}),
    ),
)
"""In the order of the table."""
