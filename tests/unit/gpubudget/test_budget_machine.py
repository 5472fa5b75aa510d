"""Any life of pools of all kinds under one budget, through the whole loop: what must hold after each step."""

from __future__ import annotations

import re
from collections import Counter, deque
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from servingpool.gpubudget.sharing import Claim, Grant, worth

from ..fuzzing import SEED, counted, number  # noqa: TID252, tests are no package of an installed name
from ..reconcile.kept import kept  # noqa: TID252
from .many_pools import KINDS, ManyPools
from .test_budgets import GPUS

STEPS = 50
SURE = 6
"""Ticks for which a min must stand before it counts as firm here: a status is written once a minute."""
BACK = 3
"""Ticks of room within which everybody has what they want: two, and that in which there is room."""
SAID = re.compile(r"(\d+) of (\d+) GPUs are in use(; waits for .*|, and of more use to .*|, all by this pool)")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
CHOSEN = settings(stateful_step_count=STEPS, suppress_health_check=SLOW, phases=(Phase.generate, Phase.shrink))
POOLS, FLAG = st.sampled_from(sorted(KINDS)), st.booleans()


class Budgeted(RuleBasedStateMachine):
    """Pools come, go, are paused, resumed, recommended, lie; budgets, floors, loads and nodes move; leaders change."""

    World = ManyPools

    def __init__(self) -> None:
        super().__init__()
        counted["test_no_life_of_pools_breaks_a_promise"] += 1

    @initialize(pools=st.sets(POOLS, min_size=1, max_size=3), gpus=st.integers(2, 10), lending=FLAG, drain=FLAG)
    def begin(self, pools: set[str], gpus: int, lending: bool, drain: bool) -> None:
        self.world = world = kept(self.World.__name__, self.World)
        for name in set(KINDS) - pools:
            world.go(name)
        world.drain = drain
        self.firm: Counter[str] = Counter()
        self.stood = {name: deque([0] * SURE, SURE) for name in pools}
        self.room, self.lacking, self.hungry = 0, 0, Counter[str]()
        world.set_budget(gpus=gpus * GPUS, lending=lending)
        self.tick()

    # What happens.

    @rule(name=POOLS, priority=st.integers(0, 9), least=st.integers(0, 4), mode=st.sampled_from(("Auto", "Paused")))
    def a_pool_comes_or_goes(self, name: str, priority: int, least: int, mode: str) -> None:
        if name in self.world.clients:
            self.world.go(name)
        elif len(self.world.clients) < 4:
            self.world.come(name, priority=priority, mode=mode, least=max(1, least) if KINDS[name].least else 0)
        self.stood.setdefault(name, deque([0] * SURE, SURE)).extend([0] * SURE)
        self.firm[name] = self.hungry[name] = 0
        self.tick()

    @rule(name=POOLS, mode=st.sampled_from(("Auto", "Auto", "Paused", "Recommend")))
    def a_mode_changes(self, name: str, mode: str) -> None:
        if name in self.world.clients:
            self.world.tell(name, mode=mode)
        self.tick()

    @rule(name=POOLS, least=st.integers(1, 9), priority=st.integers(0, 9))
    def a_min_moves(self, name: str, least: int, priority: int) -> None:
        if name in self.world.clients and KINDS[name].least:
            self.world.tell(name, least=least, priority=priority)
        self.tick()

    @rule(name=POOLS, rate=st.sampled_from((0.0, 2.0, 12.0, 60.0)))
    def load_moves(self, name: str, rate: float) -> None:
        if name in self.world.clients:
            self.world.clients[name].rate = rate
        self.tick()

    @rule(name=POOLS, replicas=st.integers(0, 9), which=st.integers(0, 1))
    def a_person_scales(self, name: str, replicas: int, which: int) -> None:
        if name in self.world.clients:
            service = self.world.of(name)[-which]
            self.world.set_replicas(service.name, replicas)
        self.tick()

    @rule(name=POOLS, other=POOLS, meanwhile=st.sampled_from(("", "restart", "paused")))
    def a_tenant_takes_all(self, name: str, other: str, meanwhile: str) -> None:
        """Its own min, priority and Deployments say so, while the operator restarts or another pool is not scaled."""
        clients, idle = self.world.clients, meanwhile == "paused" and other != name and other in self.world.clients
        mode = clients[other].mode if idle else ""
        if idle:
            self.world.tell(other, mode="Paused")
            self.tick()
        if name in clients and KINDS[name].least:
            self.world.tell(name, least=9, priority=9)
            for target in KINDS[name].targets:
                self.world.set_replicas(target, 9)
        if meanwhile == "restart":
            self.world.restart()
        self.tick()
        if idle:
            self.world.tell(other, mode=mode)
            self.tick()

    @rule(gpus=st.integers(0, 10), lending=FLAG)
    def the_budget_moves(self, gpus: int, lending: bool) -> None:
        floors = self.world.floors if sum(self.world.floors.values()) <= gpus * GPUS else {}
        self.world.set_budget(gpus=gpus * GPUS, lending=lending, floors=floors)
        self.moved()

    @rule(name=POOLS, floor=st.integers(0, 6))
    def a_floor_moves(self, name: str, floor: int) -> None:
        floors = {**self.world.floors, name: floor * GPUS}
        if sum(floors.values()) <= self.world.gpus:
            self.world.set_budget(floors=floors)
        self.moved()

    @rule(name=POOLS, lie=st.sampled_from(("none", "unknown", "truth")))
    def a_pool_lies(self, name: str, lie: str) -> None:
        """Its pods ask for no GPU, or for a claim that many may share, and it says that each takes 1,024."""
        if name in self.world.clients:
            for target in KINDS[name].targets:
                self.world.drained(target)  # a pod's own claims never change
                self.world.claims.pop(target, None)
                if lie != "truth":
                    shared = [{"name": "gpu", "resourceClaimName": "shared"}]
                    self.world.claims[target] = shared if lie == "unknown" else []
                self.world.show(target)
            self.world.tell(name, stated=None if lie == "truth" else 1024)
        self.tick()

    @rule(name=POOLS, come=FLAG)
    def nodes_go_or_come(self, name: str, come: bool) -> None:
        for service in self.world.of(name) if name in self.world.clients else ():
            if come:
                service.unschedulable = False
                self.world.show(service.name)
            else:
                self.world.lose_nodes(service.name)
        self.tick()

    @rule()
    def pods_end(self) -> None:
        for name in list(self.world.draining):
            self.world.drained(name)
        self.tick()

    @rule()
    def prometheus_goes_or_comes(self) -> None:
        self.world.prometheus.silent = None if self.world.prometheus.silent else "it is away"
        self.tick()

    @rule()
    def the_operator_restarts(self) -> None:
        self.world.restart()
        self.tick()

    @rule(ticks=st.integers(1, 3))
    def another_leads_for_a_while(self, ticks: int) -> None:
        self.world.leading = False
        for _ in range(ticks):
            self.tick()
        self.world.leading = True
        self.world.restart()
        self.tick()

    @rule(ticks=st.integers(2, 6))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    # What holds.

    def tick(self) -> None:
        world = self.world
        counted["steps of lives of pools"] += 1
        self.note_firm()
        world.serve_on()
        held = {name: world.held(name) for name in world.clients} | {"": world.orphans}
        used = world.used(idle=False)
        ordered = {name: world.ordered(name) for name in world.clients}
        since = len(world.writes.scales)
        assert world.ticked().failed == 0
        scales = world.writes.scales[since:]
        if any(after > before for _, before, after in scales):
            assert world.used(idle=False) <= max(used, world.gpus), "growth is within the budget"
        for name, client in world.clients.items():
            mine = [one for one in scales if one[0][1] in client.targets]
            assert not mine or client.mode == "Auto", f"{name} is left alone"
            if world.ordered(name) < ordered[name]:
                own = [one for one, _ in self.claims() if self.whose(one) == name and not one.fixed]
                wanted = sum(one.wanted * one.gpus for one in own)
                floor = 0 if client.roles else min(world.floors.get(name, 0), wanted)
                least = min(ordered[name], max(self.firm[name], floor))
                assert world.ordered(name) >= least, (
                    f"{name} had {least} GPUs of its own and keeps {world.ordered(name)}"
                )
        if world.leading:
            moved = ((after - before) * GPUS for _, before, after in scales)
            self.check_sentences(held, min(accumulate(moved, initial=sum(held.values()))))
            self.check_room()
            self.check_zero()
            self.check_loans()

    def note_firm(self) -> None:
        """Mins that stood for a while, while all mins and floors fitted: nobody else's wish takes them."""
        world = self.world
        fits = sum(map(world.promised, world.clients)) + self.lent <= world.gpus
        for name, client in world.clients.items():
            self.firm[name] = min(self.firm[name], world.stands(name))
            if world.leading:
                sure = fits and client.mode == "Auto" and not world.blind(name)
                self.stood[name].append(world.stands(name) if sure else 0)
            self.firm[name] = max(self.firm[name], min(self.stood[name]))

    def moved(self) -> None:
        """The budget or a floor has: where not all that stands of mins and floors fits, none counts as firm."""
        world = self.world
        firm = (max(world.stands(name, 1), world.floors.get(name, 0)) for name in world.clients)
        if sum(firm) + self.lent > world.gpus:
            self.firm.clear()
            for each in self.stood.values():
                each.extend([0] * SURE)
        self.tick()

    @property
    def lent(self) -> int:
        """GPUs of floors whose pools are not there."""
        return sum(floor for name, floor in self.world.floors.items() if name not in self.world.clients)

    def claims(self) -> list[tuple[Claim, Grant]]:
        shared = self.world.budgets.latest["h100"]
        return [(claim, shared.grants[claim.pool]) for claim in shared.claims]

    def whose(self, claim: Claim) -> str:
        return claim.pool.removeprefix("chat/").partition(" ")[0]

    def check_sentences(self, held: dict[str, int], least: int) -> None:
        """`held`: GPUs of all pods before the tick, by pool; under no name those whose pool has gone.

        `least`: the least that all held while it went on: pools that are new are decided once the others have ordered.
        """
        world = self.world
        told = world.budgets.latest["h100"].held or 0
        known = not any(map(world.blind, world.clients))
        assert not known or told >= least, "nothing is counted as free that is not"
        due = Counter({claim.role: grant.share for claim, grant in self.claims() if claim.pair})
        assert len({share > 0 for share in due.values()}) < 2, "one role alone serves nothing"
        for claim, grant in self.claims():
            if claim.fixed or claim.wanted <= grant.most:
                continue
            assert grant.detail, claim
            said = SAID.fullmatch(grant.detail)
            assert said or grant.detail.startswith("one replica each of prefill and decode"), grant.detail
            assert said is None or (int(said[1]), int(said[2])) == (told, world.gpus)
            for each in re.findall(r"chat/(\w+)", grant.detail):
                assert held[each] > 0, f"{each} holds nothing: {grant.detail}"

    def check_room(self) -> None:
        world = self.world
        short = 0
        for claim, _ in self.claims():
            service = world.services.get(claim.pool.partition("(")[2].strip(")") or self.whose(claim))
            if service is not None and not claim.fixed:
                short += max(0, claim.wanted - claim.optional - service.replicas) * claim.gpus
        aside = 0 if world.lending else sum(world.floors.values())
        self.room = self.room + 1 if 0 < short <= world.gpus - world.used() - aside else 0
        assert self.room <= BACK, f"{short} GPUs are wanted and free"

    def check_zero(self) -> None:
        for name, client in self.world.clients.items():
            wanted = client.rate > 0.0 or client.left > 0.0
            found = self.world.decision(name).wanted
            wanted &= name != "batch" or (found is not None and found.replicas > found.may_wait)
            empty = wanted and not any(service.replicas for service in self.world.of(name))
            self.hungry[name] = self.hungry[name] + 1 if empty else 0
            assert self.hungry[name] <= BACK or self.world.condition("SLOMet", name)[0] != "True", name

    def check_loans(self) -> None:
        """What a batch can do without is nobody's lack for more than a tick.

        A replica that a person adds counts as needed until it is read: over a full budget another pool gives one back.
        """
        claims = [(one, grant.share) for one, grant in self.claims() if not one.fixed and one.misses and one.gpus]
        lacks = []
        for batch, share in claims:
            if self.whose(batch) == "batch" and share > sum(each > 0.0 for each in worth(batch.misses or (), 0)):
                others = [one for one in claims if one[0].gpus <= batch.gpus and not one[0].pair]
                lacks += [one for one, due in others if any(worth((one.misses or ())[: one.wanted + 1], due))]
        self.lacking = self.lacking + 1 if lacks else 0
        assert self.lacking < 2, lacks


@pytest.mark.timeout(900)
def test_no_life_of_pools_breaks_a_promise() -> None:
    """On failure hypothesis prints the steps."""
    run_state_machine_as_test(seed(SEED)(Budgeted), settings=settings(CHOSEN, max_examples=number(0.18)))
