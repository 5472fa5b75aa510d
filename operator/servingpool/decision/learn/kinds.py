"""The engines of each target: their step times, full batches, cold starts and speed, and whether they come at all.

A slower GPU is a slower replica. Capacity is counted in replicas of one of the targets, the reference; the speed of
another is what one of its replicas serves at the highest load that holds TPOT, over what one of the reference serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from servingpool.decision.engine import StepTime
from servingpool.decision.learn.miss_curve import highest_knee, tpot_infeasible
from servingpool.decision.learn.step_time import Saturation, StepTimeFit
from servingpool.decision.observation import Observation, Replica
from servingpool.decision.observe.counters import EngineDelta
from servingpool.decision.params import Params
from servingpool.decision.pool import Pool

COLD_STARTS_KEPT, MOST_STARTING = 12, 64
"""Starts that are remembered of a target, and replicas that are followed while they start of all, at most."""
UNSCHEDULABLE_AFTER = 300.0
"""Seconds that pods wait for a node before ordering more is pointless: nodes take 2 to 4 minutes."""
OVERDUE = 2.0
"""Cold starts, 1.5 to 4, after which a replica that is not Ready yet is not counted on."""
LONGEST_COLD_START = 1800.0
"""Seconds; a start that took longer waited for a node or an image, and says nothing on loading."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The last starts, in seconds, and the replicas that are starting."""

    seconds: tuple[float, ...] = ()
    loading: tuple[str, ...] = ()
    """Names of replicas seen while they load. Of other replicas the time since Ready may be that of a failed probe."""

    def update(self, ready: Sequence[Replica], starting: Sequence[Replica]) -> ColdStart:
        """Note the load time of each replica that was seen to load and is Ready now."""
        loads = [one.age - one.ready_for for one in ready if one.name in self.loading and one.ready_for is not None]
        times = tuple([one for one in loads if 0.0 < one <= LONGEST_COLD_START])
        loading = tuple([replica.name for replica in starting if replica.ready_for is None])
        if not times and loading == self.loading:
            return self
        return ColdStart((self.seconds + times)[-COLD_STARTS_KEPT:], loading)

    def expected(self, otherwise: float) -> float:
        """The two-thirds quantile of recent starts, in seconds: late capacity costs more than early capacity."""
        return sorted(self.seconds)[2 * len(self.seconds) // 3] if self.seconds else otherwise


@dataclass(frozen=True, slots=True)
class Shortage:
    """Delivery of one target: the replicas that came, and since when others are missing."""

    target: str
    """Name of the target."""
    reached: int = 0
    """Most Ready replicas while no fewer were requested than today."""
    uncreated_since: float | None = None
    """Unix time in seconds since when fewer pods exist than requested; None where none is missing."""
    ready: int = 0
    """Ready replicas at the last observation."""
    loads_since: float | None = None
    """Unix time in seconds since when replicas start and as many are Ready; None where none starts."""

    def seen(self, ordered: int, ready: int, starting: int, now: float, *, in_turn: bool = False) -> Shortage:
        """The shortage after another observation of requested, ready and starting replicas.

        `in_turn`: they start one after another, so that while one loads the others have no pod. One that never becomes
        Ready keeps them away for ever: 8 stayed ordered with 3 pods, and none needed.
        """
        loads_since = self.loads_since if ready == self.ready and self.loads_since is not None else now
        loads = starting > 0 and now - loads_since <= LONGEST_COLD_START
        missing = ordered > ready + starting and not (in_turn and loads)
        since = min(now, now if self.uncreated_since is None else self.uncreated_since) if missing else None
        reached = min(ordered, max(self.reached, ready))
        return Shortage(self.target, reached, since, ready, loads_since if starting else None)

    def refused(self, now: float, params: Params) -> bool:
        """Whether requested pods have been missing for so long that a quota or the like refuses them."""
        return self.uncreated_since is not None and now - self.uncreated_since > params.uncreated_after

    def stuck(
        self, ready: int, without_node: tuple[Replica, ...], missing: int, now: float, params: Params
    ) -> str | None:
        """Why the target does not deliver, once that is certain; None where it does.

        A new node takes minutes to come, so a pod that finds none is given that time, and one that does not exist some
        seconds. Not where fewer replicas are Ready than were: a node was taken away, as spot nodes are, and the
        capacity is missing now.
        """
        lost = ready < self.reached
        if any(lost or pod.age > UNSCHEDULABLE_AFTER for pod in without_node):
            return f"pods without a node: {len(without_node)}"
        if self.uncreated_since is not None and (lost or self.refused(now, params)):
            return f"replicas that were requested and have no pod: {missing}; check quotas and the workload's events"
        return None


def shortages_seen(shortages: tuple[Shortage, ...], observation: Observation, now: float) -> tuple[Shortage, ...]:
    """The shortage of each target after another observation."""
    known = {one.target: one for one in shortages}
    ready, starting = ([one.target for one in each] for each in (observation.ready, observation.starting))
    return tuple(
        known.get(name, Shortage(name)).seen(ordered, ready.count(name), starting.count(name), now, in_turn=turn)
        for name, ordered, turn in observation.orders
    )


MOST_SPEED = 100.0
"""Replicas of the reference, or their inverse, beyond which a target is no engine of the same model."""
NO_ENGINE = EngineDelta()
"""Work of a target none of whose replicas could be read twice."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Engines of one target, as learned."""

    target: str
    """Name of the target."""
    fit: StepTimeFit = field(default_factory=StepTimeFit)
    saturation: Saturation = field(default_factory=Saturation)
    cold_start: ColdStart = field(default_factory=ColdStart)
    speed: float | None = None
    """Capacity of a replica, in replicas of the reference; 0 if it cannot hold TPOT, None until both have served."""

    def step_time(self, params: Params, *, tokens: float, prompt: float, steps: float) -> StepTime | None:
        """Step time for a request of so many prompt tokens, and steps of `tokens` each; None before the first step."""
        step, batch = self.fit.solve(params), self.saturation.batch
        return step and step.limited(batch=batch, tokens=tokens, prompt_tokens=prompt, steps=steps)


Kinds = tuple[Kind, ...]


def kind_of(kinds: Kinds, target: str) -> Kind:
    """The engines of a target, as learned."""
    return next((kind for kind in kinds if kind.target == target), None) or Kind(target)


def updated(
    kinds: Kinds,
    engines: Mapping[str, EngineDelta],
    ready: Sequence[Replica],
    starting: Sequence[Replica],
    pool: Pool,
    elapsed: float,
) -> Kinds:
    """The kinds after an observation, `elapsed` seconds after the last. A target that left the spec is forgotten."""
    found, params = [], pool.params
    for target in pool.targets:
        kind, engine = kind_of(kinds, target.name), engines.get(target.name, NO_ENGINE)
        seen = engine.steps or engine.prefills
        fit = kind.fit.update(seen, elapsed=elapsed, params=params, prefills=pool.prefills)
        saturation = kind.saturation.update(engine, limit=target.batch_limit, elapsed=elapsed, params=params)
        cold_start = kind.cold_start.update(
            [one for one in ready if one.target == target.name],
            [one for one in starting if one.target == target.name][: MOST_STARTING // len(pool.targets)],
        )
        found.append(Kind(target.name, fit, saturation, cold_start, kind.speed))
    return tuple(found)


def with_speeds(kinds: Kinds, reference: str, pool: Pool, *, tokens: float, prompt: float, steps: float) -> Kinds:
    """The kinds with their speeds for the usual request: so many prompt tokens, and steps of `tokens` each."""
    if all(kind.target == reference for kind in kinds):
        return kinds  # the speed of a replica is that of the reference

    found = {}
    for kind in kinds:
        step = kind.step_time(pool.params, tokens=tokens, prompt=prompt, steps=steps)
        if step is not None and kind.fit.known and steps > 0.0:
            found[kind.target] = step
    if reference not in found:
        return kinds

    def serves(target: str) -> float:
        """Requests/s of a replica at its highest load."""
        return highest_knee(pool, found[target]) / found[target].work(prompt, steps)

    def speed(kind: Kind) -> float | None:
        if kind.target not in found:
            return kind.speed
        if tpot_infeasible(pool, found[kind.target]):
            return 0.0
        return min(MOST_SPEED, max(1.0 / MOST_SPEED, serves(kind.target) / serves(reference)))

    return tuple([replace(kind, speed=speed(kind)) for kind in kinds])


def best_known(kinds: Kinds, observation: Observation) -> str:
    """The target to count in: of the targets of known speed, else of all, the target with most Ready replicas."""
    names = [one.target for one in observation.orders]
    ready = {name: sum([one.target == name for one in observation.ready]) for name in names}
    known = {name: kind_of(kinds, name).fit.known for name in names}
    return max(names, key=lambda name: (known[name], ready[name], -names.index(name)))


def weights(kinds: Kinds, prices: Mapping[str, float], reference: str) -> dict[str, float]:
    """Capacity of a replica of each target, in replicas of the reference.

    Before its speed is known, what it costs over the reference, and no more than one: a price tells of a speed.
    """
    found = {}
    for name, price in prices.items():
        speed = 1.0 if name == reference else kind_of(kinds, name).speed
        found[name] = min(1.0, price / prices.get(reference, price)) if speed is None else speed
    return found
