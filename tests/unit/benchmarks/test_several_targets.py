"""The benchmark of several targets with a policy that is simple enough to know its answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import several_targets
from several_targets import Case, Found, Row

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation import traces
from servingpool_simulation.fleet import Routing
from servingpool_simulation.policies import Answer, Static

ROW = Row("ours", 10.0, 0.96, attains=True, hours="", orders=0, lost=0, in_loss=0.9)
MISSED = replace(ROW, attained=0.9, attains=False)


@dataclass(frozen=True, slots=True)
class Three(Static):
    """Two on demand and one on spot, or three of the only kind."""

    replicas: int = 3

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        return Answer(3, parts=(2, 1) if len(pool.targets) > 1 else ())


def tiny() -> Case:
    (case,) = [case for case in several_targets.cases(quick=True) if case.slug == "spot"]
    trace = traces.azure2023_conv().between(0.0, 900.0)
    on_demand, spot = case.kinds
    spot = replace(spot, supply=((0.0, 2), (420.0, 0), (600.0, 2)))
    return replace(case, trace=lambda: trace, kinds=(replace(on_demand, most=4), spot), loss=(420.0, 600.0))


def found(ours: Row, static: Row | None, *singles: Row, clairvoyant: Row | None = None) -> str:
    return "\n".join(several_targets.goals([Found(tiny(), static, ours, singles, clairvoyant, clairvoyant, 1.0)]))


def test_a_case_is_measured_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_targets, "OURS", Three)
    case = tiny()
    monkeypatch.setattr(several_targets, "cases", lambda *, quick: [case])
    told = several_targets.measure("spot", 0, quick=True, routing=Routing.LEAST_LOADED)
    assert told.ours.orders == 2  # to two and one, from the best static mix
    assert told.static is not None
    assert told.static.dollars <= min([row.dollars for row in (told.ours, *told.singles) if row.attains])
    assert told.clairvoyant is not None
    # Ordered a cold start before the notice, so that three serve at all times; and given back after spot is.
    assert told.clairvoyant.attained >= told.ours.attained
    assert told.clairvoyant.orders == 4
    assert told.at_notice is not None
    assert told.clairvoyant.attained >= told.at_notice.attained
    lines = list(several_targets.section([told, told]))
    assert sum(line.startswith("| ") for line in lines) == 1 + 1 + 1 + 2 + 2
    assert any("Attained in the loss" in line for line in lines)


def test_goals_are_of_the_mean_over_seeds() -> None:
    some = [Found(tiny(), ROW, replace(ROW, dollars=dollars), (), None, None, 1.0) for dollars in (10.0, 11.6)]
    told = "\n".join(several_targets.goals(some))
    assert "best static mix's: 1.080 (1.000, 1.160), goal 1.10: reached" in told


def test_dollars_are_compared_only_among_those_that_attain() -> None:
    cheap = replace(MISSED, dollars=1.0)
    assert "best single kind's: 1.000, goal 1.00: reached" in found(ROW, ROW, cheap, ROW)
    assert "best static mix's: 1.250, goal 1.10: **not reached**" in found(ROW, replace(ROW, dollars=8.0), ROW)
    assert "no figure, ours attains 90.00%, not 95% with each seed, goal 1.00: **not reached**" in found(
        MISSED, ROW, ROW
    )
    assert "no figure, no single kind attains, goal 1.00: reached" in found(ROW, ROW, MISSED)


def test_a_loss_is_held_as_well_as_by_who_orders_at_the_notice_or_as_the_slo_asks() -> None:
    assert "notice 90.00%, SLO 95%: reached. The clairvoyant 90.00%." in found(ROW, None, clairvoyant=ROW)
    assert "notice 93.00%, SLO 95%: **not reached**" in found(ROW, None, clairvoyant=replace(ROW, in_loss=0.93))
    good = replace(ROW, in_loss=0.96)
    assert "notice 99.00%, SLO 95%: reached" in found(good, None, clairvoyant=replace(ROW, in_loss=0.99))
