"""Our own orders, in one ledger: whose a number is, although answers are lost and watches are late."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.drain import read_drain
from servingpool.adapters.cluster.errors import Conflict, Forbidden, Unanswered
from servingpool.adapters.cluster.objects import FIELD_MANAGER, Setter, TargetKey, Workload
from servingpool.api.serving_pool import Metadata
from servingpool.api.status import Status
from servingpool.reconcile.act import NOT_SCALED, ScaleOutcome
from servingpool.reconcile.collect.targets import SeenTarget
from servingpool.reconcile.keep.history import Ready
from servingpool.reconcile.keep.orders import Ledger, Orders
from servingpool.reconcile.keep.state import PoolState

from ..decision.world import START  # noqa: TID252, tests are no package of an installed name
from ..fuzzing import fuzzed  # noqa: TID252
from ..gpubudget.test_budgets import budget, held, unanswered  # noqa: TID252
from .fake_cluster import FakeCluster, stamp
from .replicas_field import ReplicasField
from .stories import hungry, settled
from .test_several_targets import act, decided

OURS = ("True", "SucceededGetScale")


def loses_answers(world: FakeCluster, patch: pytest.MonkeyPatch) -> None:
    """The API server carries scales out, if the number is still as they say, and no answer comes."""
    scale = world.scale

    async def lost(target: Workload, replicas: int) -> None:
        if world.services[target.key.name].replicas != target.replicas:
            raise Conflict("422")
        await scale(target, replicas)
        raise Unanswered("no answer within 5 s")

    patch.setattr(world, "scale", lost)


def shown(world: FakeCluster, name: str, *, replicas: int, generation: int) -> None:
    """The watch brings an event of the past: the target as it was then."""
    see = world.cache.see_workload

    def then(raw: Any, *, gone: bool) -> None:
        meta = raw["metadata"] | {"generation": generation}
        see(raw | {"metadata": meta, "spec": raw["spec"] | {"replicas": replicas}}, gone=gone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.cache, "see_workload", then)
        FakeCluster.show(world, name)


def test_a_zero_whose_answer_was_lost_is_ours_though_the_watch_is_late_and_a_second_order_conflicts() -> None:
    """The second order was the one remembered, and its conflict forgot the first: the pool stayed at 0 for ever."""
    world = hungry()
    world.services["vllm"].rate = 8.0
    world.step(minutes=5)
    budget(world, 2)
    with pytest.MonkeyPatch.context() as patch:
        loses_answers(world, patch)
        patch.setattr(world, "show", lambda _: None)
        world.step(2)
    world.step()
    assert (held(world), world.condition("Ready")) == (0, OURS)
    budget(world, 8, generation=2)
    world.step(minutes=5)
    assert held(world) > 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_person_who_switches_off_amid_a_contest_over_our_zero_is_obeyed(restarts: bool) -> None:
    """The contest kept the person's 0 out of the history, whose newest entry then was our 0."""
    world = hungry()
    world.step(minutes=5)
    budget(world, 2)
    world.step()
    for _ in range(3):
        world.set_replicas("vllm", 2, by="argocd")
        world.step()
    world.step(minutes=1)
    assert (held(world), world.condition("Ready")) == (0, ("False", "ReplicasContested"))
    world.writes.refuse["scale"] = Forbidden("403")
    world.set_replicas("vllm", 2, by="argocd")
    world.step()
    del world.writes.refuse["scale"]
    world.set_replicas("vllm", 0)
    world.step()
    if restarts:
        world.restart()
    budget(world, 8, generation=2)
    world.step(minutes=5)
    assert (held(world), world.condition("Ready")) == (0, ("False", "ScalingDisabled"))


def test_a_zero_that_was_never_carried_out_does_not_claim_the_zero_of_a_person_later() -> None:
    world = hungry()
    world.services["vllm"].rate = 8.0
    world.step(minutes=5)
    world.writes.refuse["scale"] = Unanswered("no answer")
    budget(world, 2)
    world.step()
    del world.writes.refuse["scale"]
    world.pool(mode="Recommend")
    world.step(minutes=10)
    assert held(world) > 0
    world.set_replicas("vllm", 0)
    world.step()
    world.pool(mode="Auto")
    budget(world, 8, generation=2)
    world.step(minutes=5)
    assert (held(world), world.condition("Ready")) == (0, ("False", "ScalingDisabled"))


def test_a_rollout_that_the_watch_shows_after_our_answer_does_not_hide_the_order() -> None:
    world = settled()
    before = world.cache.workload(TargetKey("chat", "vllm"))
    assert before is not None
    world.services["vllm"].number.generation += 1  # kubectl set image
    world.services["vllm"].rate = 30.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "show", lambda _: None)
        while not world.writes.scales:
            world.step()
    shown(world, "vllm", replicas=before.replicas, generation=before.generation + 1)
    now = world.cache.workload(TargetKey("chat", "vllm"))
    assert now is not None
    assert now.replicas == world.writes.scales[0][2], "else the next tick decides on the old number"


def test_of_several_targets_an_order_is_no_strangers_while_others_roll_out_and_the_watch_is_late() -> None:
    """Generations were compared as sums: rollouts of the one hid that the other was shown as it had been."""
    world = decided()
    spot = world.cache.workload(TargetKey("chat", "spot"))
    assert spot is not None
    world.services["spot"].number.generation += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "show", lambda _: None)
        act(world, spot=4)
    world.services["fixed"].number.generation += 3
    show = world.show
    world.show = lambda name: show(name) if name == "fixed" else None  # type: ignore[method-assign]
    shown(world, "spot", replicas=2, generation=spot.generation + 1)
    world.actor.act = ignored  # type: ignore[method-assign, assignment]
    world.step()
    world.show = show  # type: ignore[method-assign]
    world.step()
    assert [one["by"] for one in world.status()["history"]] == [FIELD_MANAGER]
    assert (world.status()["history"][0]["from"], world.status()["history"][0]["to"]) == (5, 7)


async def ignored(*_: Any) -> ScaleOutcome:
    """Nothing is carried out."""
    return NOT_SCALED


def test_a_lost_order_keeps_its_gpus_through_a_rollout() -> None:
    """The order is conditional on the number, which a rollout leaves as it is: it may still be carried out."""
    world = unanswered()
    assert world.budgets.latest["h100"].held == 20
    world.services["high"].number.generation += 1
    world.show("high")
    world.budgets.settle(world.now)
    assert world.budgets.latest["h100"].held == 20


def test_a_lost_order_keeps_its_gpus_no_longer_once_somebody_has_changed_the_number() -> None:
    world = unanswered()
    world.set_replicas("high", 1)
    world.budgets.settle(world.now)
    world.budgets.settle(world.now + 61.0)
    assert world.budgets.latest["h100"].held == 12


SET = TargetKey("chat", "vllm", "StatefulSet", "apps")


def looked_at(replicas: int, generation: int, key: TargetKey | None = None) -> Workload:
    return Workload(key or TargetKey("chat", "vllm"), "d", generation, replicas, None, gpus=1, drain=read_drain({}))


def test_an_order_without_an_answer_holds_no_gpus_for_ever_after_a_conflict() -> None:
    ledger = Ledger("d", 3, FIELD_MANAGER)
    for now in range(0, 300, 15):
        ledger.see(looked_at(3, 1), float(now))
        if now == 15:
            ledger.failed(ledger.sent(looked_at(3, 1), 8, "uid", "", 15.0), unknown=True)
            ledger.conflicted(ledger.sent(looked_at(3, 1), 5, "uid", "", 20.0))
    assert ledger.most(looked_at(3, 1), 300.0) == 0


@pytest.mark.parametrize(("generation", "found"), [(30, 3), (41, 8), (42, 3)])
def test_our_number_hides_none_of_an_object_that_was_restored_from_a_backup(generation: int, found: int) -> None:
    orders = Orders(ClusterCache())
    ledger = orders.see(orders.applied(looked_at(5, 40)), 0.0)
    ledger.done(ledger.sent(looked_at(5, 40), 8, "uid", "", 5.0))
    assert orders.applied(looked_at(5, 40)).replicas == 8, "the watch is behind"
    orders.applied(looked_at(8, 41))
    assert orders.applied(looked_at(3 if found == 3 else 8, generation)).replicas == found


def test_our_number_hides_none_of_a_kind_whose_generation_stands_still() -> None:
    orders = Orders(ClusterCache())
    ledger = orders.see(orders.applied(looked_at(5, 1)), 0.0)
    ledger.done(ledger.sent(looked_at(5, 1), 8, "uid", "", 5.0))
    orders.applied(looked_at(8, 1))
    assert orders.applied(looked_at(3, 1)).replicas == 3


def test_a_target_that_could_not_be_read_for_a_while_keeps_its_ledger_while_a_pool_names_it() -> None:
    orders = Orders(ClusterCache())
    ledger = orders.see(looked_at(3, 1, SET), 0.0)
    orders.forget(lambda: {SET})
    assert orders[SET] is ledger
    orders.forget(set)
    assert not orders


KEY, META = TargetKey("chat", "vllm"), Metadata(name="pool", namespace="chat", uid="uid-pool", generation=1)
PROGRAMS = ("kubectl", "argocd")
"""The first writes the scale subresource, which leaves a 0 nameless; the other one the object."""
numbers = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("order"), numbers, st.sampled_from(("answered", "lost", "never", "refused"))),
    st.tuples(st.just("foreign"), numbers, st.sampled_from(PROGRAMS)),
    st.tuples(st.just("rollout"), st.just(0), st.just("")),
    st.tuples(st.just("look"), st.integers(0, 2), st.just("")),
    st.tuples(st.just("restart"), st.just(0), st.just("")),
)


class Life:
    """One target on its API server, and all that the operator remembers of it."""

    def __init__(self, *, applied: bool) -> None:
        """`applied`: by a manifest without replicas, so that nobody is ever named."""
        self.now, self.rollouts = START, 0
        self.field = ReplicasField(None if applied else 2, "helm", self.now, applied=applied)
        self.by = "" if applied else "helm"
        """Who has set the number, in truth."""
        self.written: Counter[tuple[int, str]] = Counter()
        """What was written or told, and by whom, in truth."""
        self.events = [self._event()]
        """What the watch has not brought yet, and before it what it has brought last."""
        self.status = Status()
        self.restart()
        self.look(9)

    def _event(self) -> Workload:
        owners = [Setter(by, stamp(at)) for (by, _, _), at in self.field.owners.items()]
        set_by = owners[0] if owners else None
        return Workload(KEY, "d", self.field.generation, self.field.replicas, set_by, gpus=1, drain=read_drain({}))

    @property
    def believed(self) -> int | None:
        """Replicas as far as the operator knows."""
        return self.state.history.replicas if self.state.history.counts else self.state.history.found

    def restart(self) -> None:
        self.orders = Orders(ClusterCache())
        self.state = PoolState.of_status(META, "llama", self.status)
        self.events = self.events[-1:]

    def look(self, events: int) -> None:
        """The watch brings so many events, and the operator looks."""
        self.now += 15.0
        self.events = self.events[min(events, len(self.events) - 1) :]
        shown = self.orders.applied(self.events[0])
        self.state.targets_seen(
            [cast("SeenTarget", SimpleNamespace(workload=shown))], self.orders, Ready(0), self.now, scales=True
        )
        self.tell()

    def tell(self) -> None:
        """The status is written."""
        self.status = Status(
            history=self.state.history.told(self.state.targets.values(), META.uid), replicas=self.believed
        )

    def order(self, replicas: int, fate: str) -> None:
        """At a tick that has looked. Left out is an order of what somebody has set and the watch has not shown."""
        self.look(0)
        shown, ledger = self.orders.applied(self.events[0]), self.state.targets[KEY]
        if replicas in {shown.replicas, *(one.replicas for one in self.events)}:
            return
        if replicas == 0:
            self.status = Status(history=self.state.history.order_zero("why", self.now), replicas=self.believed)
            self.written[0, FIELD_MANAGER] += 1
        order = ledger.sent(shown, replicas, META.uid, "why", self.now)
        fits = self.field.replicas == shown.replicas
        if fits and fate in {"answered", "lost"}:
            self._write(replicas, FIELD_MANAGER)
        if fate == "refused":
            ledger.failed(order, unknown=False)
        elif fate in {"lost", "never"}:
            ledger.failed(order, unknown=True)
        elif fits:
            self.state.order_done(ledger, order)
        else:
            ledger.conflicted(order)
        self.tell()

    def foreign(self, replicas: int, by: str) -> None:
        """Left out is what nothing can tell: a number that is changed and changed back between two looks, and an order
        of ours without an answer that somebody else carries out."""
        open_ = {one.replicas for ledger in self.state.targets.values() for one in ledger.open}
        told = {one.to for one in self.status.history[:1]}
        if replicas not in {self.believed, *(one.replicas for one in self.events), *open_, *told}:
            self._write(replicas, by)

    def rollout(self) -> None:
        """One at most between two looks that show all: more hide that a number is of before our order."""
        if len(self.events) == 1:
            self.field.generation += 1
            self.events.append(self._event())

    def _write(self, replicas: int, by: str) -> None:
        self.field.write(replicas, by, self.now)
        self.by = by
        self.written[replicas, by] += 1
        self.events.append(self._event())

    def check(self) -> None:
        self.look(99)
        ledger, history = self.state.targets[KEY], self.state.history
        assert ledger.replicas == history.replicas == self.field.replicas
        assert ledger.by in {"", self.by}
        if history.changes and history.changes[0].to == self.field.replicas:
            assert history.changes[0].by in {"unknown", self.by}
        assert Counter((one.to, one.by) for one in history.changes if one.by != "unknown") <= self.written
        if self.field.replicas == 0:
            assert history.ours([ledger]) == (self.by == FIELD_MANAGER)


@fuzzed(2.0)
@given(st.booleans(), st.lists(steps, max_size=16))
def test_whatever_is_lost_late_refused_or_restarted_the_ledger_says_the_truth_or_that_it_does_not_know(
    applied: bool, course: list[tuple[str, int, str]]
) -> None:
    life = Life(applied=applied)
    for what, number, how in course:
        match what:
            case "order":
                life.order(number, how)
            case "foreign":
                life.foreign(number, how)
            case "rollout":
                life.rollout()
            case "look":
                life.look(number)
            case "restart":
                life.restart()
    life.check()
