"""Work without a bound on latency through the real loop: a broker's queue and a night; a rate."""

from __future__ import annotations

from servingpool.decision.observation import Unknown
from servingpool.decision.words import clock

from ..gpubudget.test_budgets import budget  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import FakeCluster
from .kept import kept
from .test_metrics import exposed

EACH = 11.0
"""Requests/s that a replica serves: a request takes 0.086 s of it."""
TO_8 = {"name": "vllm", "min": 0, "max": 8}
BATCH = {"finishWithin": "2h", "backlog": {"query": "sum(queue)"}}


class Night(FakeCluster):
    """A worker takes from a broker what the engines serve at once."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0.0
        self.why: Unknown | None = None
        """Why the source is silent."""
        self.serve(replicas=1, rate=0.0)
        self.pool(slo=None, batch=BATCH, targets=[TO_8])

    def serve_on(self) -> None:
        service = self.services["vllm"]
        service.rate = min(self.left / 15.0, EACH * len(service.engines))
        self.left -= service.rate * 15.0
        super().serve_on()
        for engine in service.engines:
            engine.running = 40.0 if service.rate else 0.0
        self.prometheus.backlog = self.left if self.why is None else self.why

    @property
    def replicas(self) -> int:
        return self.services["vllm"].replicas

    def lose(self) -> None:
        """A replica crashes, and its pod is made anew."""
        service = self.services["vllm"]
        gone = service.engines.pop(0)
        service.orders.append(self.now)
        self.cache.see_pod({"metadata": {"namespace": "chat", "name": gone.name, "uid": gone.name}}, gone=True)
        self.show("vllm")


def shown(world: FakeCluster) -> dict[str, float]:
    """Its series, by what they are of."""
    samples = (one for each in exposed(world).collect() if "_batch_" in each.name for one in each.samples)
    return {one.name.rpartition("_batch_")[2]: one.value for one in samples}


def asleep() -> Night:
    """No work, no replica."""

    def begun() -> Night:
        world = Night()
        world.step(minutes=4)
        assert world.replicas == 0
        return world

    return kept("a night", begun)


def test_a_night_from_zero_to_zero_with_a_replica_lost_and_the_source_silent_for_five_minutes() -> None:
    world = asleep()
    assert world.condition("SLOMet") == ("True", "DeadlinesHold")
    assert world.decision().reason == "hold 0: 0 requests are known to wait and 0 run"
    assert shown(world) == {"backlog": 0.0, "deferrable_replicas": 0.0}, "what is not known has no series"
    world.left, came = 100_000.0, world.now
    world.step()
    assert world.decision().reason.endswith("what they cost is not known yet, so 1 replica shows it")
    world.step(minutes=10)
    backlog, planned, due, finish, _ = shown(world).values()
    due_by = f"{backlog:,.0f} requests due by {clock(due)} finish at {clock(finish)} with 2 replicas at {planned} "
    assert due_by in world.decision().reason, "one alone does not finish in time, with what is kept free"
    assert (planned, clock(finish), world.status()["batch"]["unit"]) == (23.16, "2023-11-14 23:32 UTC", "requests")
    world.lose()
    world.step(minutes=4)
    world.why = Unknown("the query returns 0 series, not 1")
    world.step(minutes=5)
    assert world.replicas == 2
    assert world.condition("SLOMet") == ("Unknown", "BacklogUnknown")
    assert "backlog" not in shown(world)
    assert "the backlog is unknown (the query returns 0 series, not 1), so nothing" in world.message("SLOMet")
    world.why = None
    while world.left > 0.0:
        world.step()
        assert world.condition("SLOMet") == ("True", "DeadlinesHold")
    assert world.now - came < 7200.0
    world.step(minutes=4)
    assert world.replicas == 0
    assert [after for _, _, after in world.writes.scales] == [0, 1, 2, 1, 0]


def test_a_little_work_waits_for_more_and_a_restart_forgets_no_deadline() -> None:
    world = asleep()
    world.left = 2_000.0
    world.step(minutes=8)  # shows what a request costs
    assert world.replicas == 0
    world.left, came = 3_000.0, world.now
    world.step(minutes=30)
    assert world.replicas == 0
    assert "due by 2023-11-15 00:25 UTC wait for more work until 2023-11-15 00:13 UTC" in world.decision().reason
    world.restart()
    while world.left > 0.0:
        world.step()
    assert 3600.0 < world.now - came < 7200.0, "as late as one replica allows, and in time"


def test_work_waits_for_the_cheap_hours_in_which_it_can_still_be_done_and_is_done_in_time() -> None:
    world = asleep()
    cheap = {"name": "cheap", "timeZone": "UTC", "start": "22:45", "end": "23:45", "costFactor": 0.5}
    world.pool(slo=None, batch=BATCH, targets=[TO_8], schedules=[cheap])
    world.left, came, before = 70_000.0, world.now, len(world.writes.scales)
    world.step(minutes=8)  # shows what a request costs
    assert world.replicas == 0
    waits = "due by 2023-11-15 00:17 UTC wait until 2023-11-14 22:45 UTC, when a replica costs 50% of what it costs now"
    assert world.decision().reason.endswith(waits)
    assert world.condition("SLOMet") == ("True", "DeadlinesHold")
    while world.left > 0.0:
        world.step()
    assert world.now - came < 5700.0, "before 23:45"
    assert [after for _, _, after in world.writes.scales[before : before + 3]] == [1, 0, 3]
    world = asleep()
    world.pool(slo=None, batch=BATCH, targets=[TO_8], schedules=[cheap])
    budget(world, 32)
    world.left = 70_000.0
    world.step(minutes=8)
    assert world.replicas == 2, "in a GPUBudget other pools may have its GPUs then"


def test_work_is_done_by_its_own_deadlines_and_nothing_goes_while_these_are_unknown() -> None:
    world = asleep()
    left = {"query": "sum by (le) (left_bucket)", "unit": "milliseconds"}
    world.pool(slo=None, batch={**BATCH, "finishWithin": "168h", "remainingTime": left}, targets=[TO_8])
    world.left, hour = 70_000.0, world.now + 3600.0
    assert "sum by (le) (left_bucket) / 1000" not in world.prometheus.asked, "not before something waits"
    while world.left > 40_000.0:
        world.prometheus.left = ((hour - world.now, world.left),)
        world.step()
    assert "requests due by 2023-11-14 23:17 UTC finish at" in world.decision().reason
    before, world.prometheus.left = world.replicas, Unknown("its buckets are empty")
    world.step(minutes=4)
    assert world.replicas == before > 1, "for a week one would do"
    assert world.condition("SLOMet") == ("Unknown", "BacklogUnknown")
    assert "the time left is unknown (its buckets are empty), so nothing is removed; " in world.message("SLOMet")
    world.prometheus.left = ((0.0, world.left), (600.0, world.left))
    world.step()
    world.prometheus.left = ((600.0, world.left),)
    world.step()
    assert world.condition("SLOMet") == ("True", "DeadlinesHold"), "one wrong answer is over with the next"
    world.prometheus.left = ((0.0, 1_000.0), (600.0, world.left))
    world.step(minutes=1)
    assert world.condition("SLOMet") == ("False", "DeadlineMissed")
    while world.left > 0.0:
        world.prometheus.left = ((max(1.0, hour - world.now), world.left),)
        world.step()
    assert world.now < hour
    world.step(minutes=4)
    assert world.replicas == 0


def short_of_replicas() -> Night:
    """More work is due than the replicas that it may have can do."""
    world = Night()
    world.pool(slo=None, batch={**BATCH, "finishWithin": "20m"}, targets=[{"name": "vllm", "min": 1, "max": 1}])
    world.left = 20_000.0
    world.step(minutes=5)
    return world


def test_a_deadline_at_risk_is_told_before_it_is_missed_and_then_by_how_much() -> None:
    world = short_of_replicas()
    assert world.condition("SLOMet") == ("False", "DeadlineAtRisk")
    assert "due by 2023-11-14 22:33 UTC are at risk: they need more replicas than can be had" in world.message("SLOMet")
    assert world.condition("ScalingLimited") == ("True", "TooManyReplicas")
    world.step(minutes=17)
    assert world.condition("SLOMet") == ("False", "DeadlineMissed")
    assert "requests were due by 2023-11-14 22:33 UTC, " in world.message("SLOMet")


def test_a_chat_of_equal_priority_has_its_gpus_while_the_deadline_allows_and_it_has_them_back_in_time() -> None:
    world = asleep()
    world.pool(slo=None, batch={**BATCH, "finishWithin": "1h"}, targets=[TO_8])
    chat = world.serve("chat", replicas=1, rate=6.0)
    world.pool("chat", target="chat")
    budget(world, 16)
    world.left, came = 45_000.0, world.now
    world.step(minutes=12)
    assert (world.replicas, chat.replicas) == (2, 2), "of four GPUs each"
    chat.rate = 30.0
    world.step(minutes=1)
    assert (world.replicas, chat.replicas) == (0, 4)
    assert "; 2 can wait without losing a deadline; GPUBudget h100 allows 0" in world.decision().reason
    world.why = Unknown("its exporter restarts")
    world.pool("chat", target="chat", targets=[{"name": "chat", "min": 4, "max": 8}])
    world.step(minutes=2)
    assert (world.replicas, chat.replicas) == (0, 4), "what is unknown calls nothing back"
    world.why = None
    world.step(minutes=8)
    assert (world.replicas, chat.replicas) == (1, 3), "the first comes back from demand, and a min, as high as before"
    world.pool("chat", target="chat")
    chat.rate = 6.0
    while world.left > 0.0:
        world.step()
        assert world.condition("SLOMet") == ("True", "DeadlinesHold"), "also while the last of them comes back"
    assert world.now - came < 3600.0


def test_a_rate_takes_as_many_full_replicas_as_serve_it_while_there_is_work_and_says_what_it_lacks() -> None:
    world, rate = FakeCluster(), {"outputTokensPerSecond": 5000}
    service = world.serve(replicas=1, rate=6.0)
    world.pool(slo=None, throughput=rate, targets=[{"name": "vllm", "min": 1, "max": 8}])
    world.step(minutes=10)
    assert service.replicas == 1, "what comes keeps one busy"
    service.rate = 60.0  # five times what serves the rate
    world.step(minutes=15)
    assert service.replicas == 3
    assert world.condition("SLOMet") == ("True", "ThroughputHolds")
    assert "5,000 output tokens/s need 2." in world.decision().reason
    priced, half = {"name": "vllm", "min": 1, "max": 8, "costPerReplicaHour": 4.0}, {"name": "now", "timeZone": "UTC"}
    for factor, most in ((1.0, 2), (0.5, 3)):  # the third replica of the rate
        paid = {"spendAtMost": {"dollarsPerHour": 8.0}, **rate}
        world.pool(slo=None, throughput=paid, targets=[priced], schedules=[{**half, "costFactor": factor}])
        world.step(minutes=6)
        assert service.replicas == most
    world.pool(slo=None, throughput=rate, targets=[{"name": "vllm", "min": 1, "max": 2}])
    world.step()
    assert world.condition("SLOMet") == ("False", "ThroughputShort")
    assert "Replicas that can be had serve 4," in world.message("SLOMet")
    world.prometheus.silent = "HTTP 503"
    world.step(minutes=10)
    assert (service.replicas, world.condition("SLOMet")) == (2, ("Unknown", "ThroughputUnknown"))
