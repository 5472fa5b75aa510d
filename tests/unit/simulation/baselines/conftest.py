"""Looks at a fleet, as the baselines get them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from servingpool.decision.observation import (
    NO_GATEWAY,
    GatewayMetrics,
    Histogram,
    Observation,
    Replica,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.pool import Pool, Slo

Look = Callable[..., Observation]

BOUNDS = (0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)


@pytest.fixture
def pool() -> Pool:
    return Pool(Slo(2.0, 0.1), min_replicas=1, max_replicas=20)


@pytest.fixture
def look() -> Look:
    """Ready replicas r0, r1, ... and what each of them shows.

    A keyword is a gauge or a counter with one value for each; `first_tokens` are so many TTFTs of `ttft` seconds,
    `finished` so many TPOTs.
    """

    def made(
        *,
        loading: int = 0,
        at: float = 0.0,
        ready_for: float = 5_000.0,
        queued: float | None = None,
        first_tokens: Sequence[float] = (),
        ttft: float = 0.1,
        finished: Sequence[float] = (),
        **shown: Sequence[float],
    ) -> Observation:
        count = max(len(values) for values in (*shown.values(), first_tokens))
        pages = []
        for k in range(count):
            metrics = {name: values[k] for name, values in shown.items()}
            if first_tokens:
                n = first_tokens[k]
                counts = tuple(n if ttft <= bound else 0.0 for bound in BOUNDS)
                metrics["time_to_first_token"] = Histogram(BOUNDS, counts, n * ttft, n)  # type: ignore[assignment]
            if finished:
                metrics["time_per_output_token"] = Histogram((), (), 0.0, finished[k])  # type: ignore[assignment]
            pages.append(ReplicaMetrics(f"r{k}", at, **metrics))  # type: ignore[arg-type]
        return Observation(
            requested=count + loading,
            ready=tuple(Replica(f"r{k}", ready_for + 100.0, ready_for) for k in range(count)),
            starting=tuple(Replica(f"s{k}", 50.0) for k in range(loading)),
            metrics=tuple(pages),
            gateway=NO_GATEWAY if queued is None else GatewayMetrics(queue=queued),
        )

    return made


@pytest.fixture
def blind() -> Callable[[int], Observation]:
    """So many ready replicas of which nothing is known."""

    def made(count: int) -> Observation:
        ready = tuple(Replica(f"r{k}", 600.0, 500.0) for k in range(count))
        return Observation(requested=count, ready=ready, metrics=Unknown("prometheus is down"))

    return made
