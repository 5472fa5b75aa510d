"""Our own core with one parameter taken to where its idea has no effect: what each idea is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cases import Kind

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.policies import Answer, Ours, Policy

KINDS = (Kind.BURST, Kind.FAMILY)
"""Cases that show what an idea is worth: each was put in for one of them."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One variant."""

    name: str
    what: str
    """What it does without, in a sentence's end."""
    changes: Mapping[str, float]
    """Fields of `Params`, and their values."""

    def make(self) -> Policy:
        """A fresh policy."""
        return Varied(self.changes)


@dataclass(slots=True)
class Varied:
    """Our core with other parameters."""

    changes: Mapping[str, float]
    ours: Ours = field(default_factory=Ours)
    name: str = "servingpool"
    every: float = 15.0
    every_bucket: bool = False

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One call of the core."""
        return self.ours.decide(observation, self._varied(pool), now)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        """Warm-up."""
        self.ours.learn(observation, self._varied(pool), now)

    def _varied(self, pool: Pool) -> Pool:
        return replace(pool, params=replace(pool.params, **self.changes))


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "penalty",
        "a miss always costs 20, whatever was missed lately",
        {"least_penalty": 20.0, "greatest_penalty": 1.0},
    ),
    Ablation("margin", "the past is believed to the last miss", {"penalty_margin": 0.0}),
    Ablation("hysteresis", "a replica is kept at the penalty at which it is ordered", {"hysteresis": 1.0}),
    Ablation("aftermath", "an overload costs only itself", {"aftermath": 0.0}),
    Ablation("calibration", "the curve is believed", {"most_calibration": 1.0}),
    Ablation("slow budget", "the last day is forgiven", {"slow_hours": 1e9}),
    Ablation("initial fleet", "the initial fleet is no evidence", {"initial_weight": 0.0}),
    Ablation("reversion", "what is stays", {"persistence_weight": 1e9}),
    Ablation("renewal", "a changed engine is learned as slowly as any", {"engine_changed": 1e9}),
    Ablation("cold starts", "scales down two minutes after the need fell", {"scale_down_starts": 0.0}),
    Ablation("half minute", "rates are those of a whole minute", {"rate_window": 60.0}),
    Ablation("mean window", "means are those of five minutes", {"mean_window": 300.0}),
    Ablation("evidence memory", "the miss curve forgets nothing", {"evidence_memory": 1e9}),
    Ablation("fit memory", "step times forget nothing", {"fit_memory": 1e9}),
    Ablation("tick weight", "each request counts in full", {"tick_weight": 1e9}),
    Ablation("relieved", "who is on time after an overload met it", {"relieved": 1e-6}),
    Ablation("knee share", "the knee is expected where TPOT breaks", {"knee_share": 0.95}),
    Ablation("beyond", "what may come has no bound", {"beyond": 1e9}),
    Ablation("prior error", "forecasts err little before they were seen to", {"prior_error": 0.05}),
    Ablation("prior weight", "the first errors replace the prior", {"prior_weight": 5.0}),
    Ablation("planned", "all allowed misses are planned with", {"planned": 1.0}),
    Ablation("calm burn", "replicas are added while calibrating, whoever is late", {"calm_burn": 0.0}),
    Ablation("idle window", "ten minutes without a request are idle", {"idle_window": 600.0}),
    Ablation("stands still", "gauges are believed whatever moves", {"stands_still": 1e9}),
)
"""In the order of the table. `several_targets.py` has the two fields of targets, `scenes.py` shows the other knobs."""
