"""Work is the anchor, and lateness proves itself: what late requests and gauges ask beyond it is ordered on trial."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from tests.unit.decision.world import ENGINE, POOL, Engine, World, applied

from servingpool.catalogue.limits import LimitName
from servingpool.decision.learn.memory import Memory


@dataclass
class Late(Engine):
    """An engine of whose requests a share is late: this share, or at a load above 0.06 ever more."""

    share: float = 0.0
    steep: bool = False

    def serve(self, rate, seconds, prompt, output):
        before, late = self.requests, self.late
        super().serve(rate, seconds, prompt, output)
        more = min(1.0, max(0.0, rate * ENGINE.work(prompt, output) - 0.06) / 0.1) if self.steep else self.share
        new = max(0.0, more * (self.requests - before) - self.late + late)
        self.late += new
        self.first_token_seconds += 2.5 * new


def of(replicas=2, *, largest=20, **engine):
    """A world of such engines."""
    world = World(pool=replace(POOL, max_replicas=largest), replicas=replicas)
    world._engine = lambda ready_at: Late(f"vllm-{world.requested}-{world.now:.0f}", ready_at, **engine)  # type: ignore[method-assign]
    world.engines = [Late(f"vllm-{place}", world.now - 3600.0, **engine) for place in range(replicas)]
    return world


def fleets(outcomes):
    return [one.decision.replicas for one in outcomes]


def test_what_did_not_help_is_given_back_and_tried_again_ever_later():
    world = of(share=1.0)
    outcomes = world.run(12.0, 240)
    assert max(fleets(outcomes)) == 11, "max is 20, and 18 are asked for"
    assert fleets(outcomes)[-1] == 7
    given_back = [one for one in outcomes if "more replicas did not help" in one.decision.reason]
    assert "from 7 to 11 replicas late requests went from 100% to 100%" in given_back[-1].decision.reason
    assert given_back[-1].decision.warning.startswith("From 7 to 11 replicas late requests went from 100% to 100%")
    rises = [at for at, (one, other) in enumerate(pairwise(fleets(outcomes))) if one == 7 < other]
    pauses = [later - sooner for sooner, later in pairwise(rises)]
    assert len(pauses) >= 2
    assert all(later > sooner for sooner, later in pairwise(pauses))


def test_work_that_is_misread_is_proven_step_by_step_and_what_stands_at_a_restart_counts_as_proven():
    world = of(steep=True)
    outcomes = world.run(6.0, 30) + world.run(12.0, 90)
    assert world.requested >= 15, "each may be 7% busy"
    assert sum(LimitName.ON_TRIAL in applied(one) for one in outcomes) > 40
    assert 1.0 - world.memory.window.last(300.0).misses.share > 0.9
    stood, world.memory = world.requested, Memory(world.memory.profile)
    assert min(fleets(world.run(12.0, 30))) >= stood - 1, "a restart"
    world.pool = replace(world.pool, in_charge=False)
    assert world.tick(12.0).memory.trial is None, "in Recommend nobody makes a step"


@pytest.mark.parametrize(("rate", "most"), [(0.1, 2), (0.3, 3), (1.0, 6)])
def test_a_prompt_that_no_replica_prefills_in_time_orders_by_work_alone(rate, most):
    world = of(4 if rate == 1.0 else 1, share=1.0)
    outcomes = [world.tick(rate, prompt=30_700.0, output=100.0) for _ in range(4 * 120)]
    assert max(fleets(outcomes)) <= most
    told = r"a prompt of 30,700 tokens takes 2\.[12]\d* s to prefill on an idle replica, and the bound is 2 s"
    assert re.search(told, outcomes[-1].decision.reason)
    assert outcomes[-1].decision.warning.endswith("shorten or cache prompts, or use a faster engine.")


def test_a_step_begins_at_the_replicas_that_serve():
    world = of(9, share=1.0)
    world.pool = replace(world.pool, min_replicas=9)
    world.run(12.0, 60)
    trial = world.memory.trial
    assert "from 9 to" in (trial.failed or ""), "7 are free"
