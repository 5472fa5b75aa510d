"""Cost of a pool's fleet, and of its traffic at a hosted price. It does not influence scaling."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import mul

from servingpool.api.serving_pool import ServingPool
from servingpool.decision.figures import Figures
from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.reconcile.config import Price

LEAST_RATE = 1.0
"""Output tokens per second. Below it a quotient of two rates is noise, and a pool counts as idle."""
SECONDS = 3600.0
"""Seconds of an hour."""
MILLION = 1e6
"""Tokens that a price is for."""

NO_COST = Unknown("costPerReplicaHour is not set")
NOT_COMPARED = Unknown("no hosted price to compare with")
IDLE = Unknown(f"fewer than {LEAST_RATE:g} output tokens per second")
NO_GPU = Unknown("no GPU is ready")
GPUS_UNKNOWN = Unknown("the GPUs of a target are unknown")
FREE = Unknown("the fleet costs nothing")
UNAFFECTED = "Scaling is not affected."


@dataclass(frozen=True, slots=True)
class Expense:
    """Cost of a pool. A figure that is not known is Unknown, never 0."""

    dollars: Reading = NO_COST
    """Per hour, of all replicas on a node."""
    per_gpu: Reading = NO_GPU
    """Output tokens per second per GPU of the ready replicas."""
    per_million: Reading = NO_COST
    """Dollars per million output tokens."""
    per_dollar: Reading = NO_COST
    """Output tokens per dollar."""
    price: str | None = None
    """Name of the hosted price, if it is known."""
    noted: str | None = None
    """Date of that price."""
    compared: Reading = NOT_COMPARED
    """Dollars per hour of the present traffic at that price."""
    break_even: Reading = NOT_COMPARED
    """Output tokens per second, at the present mix, from which this fleet is cheaper."""
    break_even_load: Reading = NOT_COMPARED
    """Load of the ready replicas at the output of `break_even`."""
    warning: str | None = None
    """Why nothing can be compared although the pool asks for it."""
    gpus: Reading = 0.0
    """GPUs of all replicas that are ordered."""


def expense_of(
    pool: ServingPool,
    observation: Observation,
    figures: Figures,
    gpus: Mapping[str, int],
    prices: Mapping[str, Price],
    now: float,
) -> Expense:
    """The money of a pool with so many `gpus` per replica of each target, by its name as decisions call it.

    `prices` are those of the operator's configuration. What a replica costs at `now` counts, Unix time in seconds.
    """
    spec = pool.spec
    costs = spec.costs(now)
    fleet = [*observation.ready, *(replica for replica in observation.starting if not replica.unschedulable)]
    ordered = {one.target: one.replicas for one in observation.targets}
    dollars = _sum(costs, Counter(replica.target for replica in fleet), NO_COST)
    ready = _sum(_known(gpus), Counter(replica.target for replica in observation.ready), NO_GPU)
    output = figures.generation_rate
    price_of_million = _of(per_million, dollars, output)
    own = Expense(
        dollars=dollars,
        per_gpu=_of(lambda output, ready: output / ready if ready > 0.0 else NO_GPU, output, ready),
        gpus=_sum(_known(gpus), ordered, GPUS_UNKNOWN)
        if spec.several
        else float(sum(ordered[name] * each for name, each in gpus.items())),
        per_million=price_of_million,
        per_dollar=_of(lambda price: MILLION / price if price > 0.0 else FREE, price_of_million),
    )
    name = spec.compare_to
    if name is None:
        return own
    price = prices.get(name)
    if price is None:
        known = ", ".join(sorted(prices)) or "none"
        said = f"spec.compareTo '{name}' is unknown, so nothing is compared; known prices: {known}. {UNAFFECTED}"
        return replace(own, warning=said)
    compared = _of(lambda prompts, output: _hourly(price, prompts, output), figures.prompt_rate, output)
    # Traffic of the present mix that is so many times as much costs there what this fleet costs.
    times = _of(lambda ours, theirs, output: ours / theirs if output >= LEAST_RATE else IDLE, dollars, compared, output)
    given, warning = list(costs.values()), None
    if None in given:
        place = given.index(None)
        warning = f"The cost here is unknown: set targets[{place}].costPerReplicaHour. {UNAFFECTED}"
    return replace(
        own,
        price=name,
        noted=price.noted.isoformat(),
        compared=compared,
        break_even=_of(mul, output, times),
        break_even_load=_of(mul, times, figures.load),
        warning=warning,
    )


def _known(gpus: Mapping[str, int]) -> dict[str, float | None]:
    """GPUs of a replica; None where neither pool nor pods tell them."""
    return {name: each or None for name, each in gpus.items()}


def _sum(each: Mapping[str, float | None], counts: Mapping[str, int], otherwise: Unknown) -> Reading:
    """The sum over all targets, `each` per replica; `otherwise` if it is not known of a target that has replicas."""
    if None in each.values() and (len(each) == 1 or any(counts.get(name) for name, one in each.items() if one is None)):
        return otherwise
    return math.fsum((one or 0.0) * counts.get(name, 0) for name, one in each.items())


def _hourly(price: Price, prompts: float, output: float) -> float:
    """Dollars. No engine tells which prompt tokens a provider would have cached: all count as input."""
    return (prompts * price.input + output * price.output) * SECONDS / MILLION


def per_million(dollars: float, output: float) -> Reading:
    """Dollars for a million output tokens: `dollars` an hour, `output` tokens a second."""
    return dollars / (output * SECONDS) * MILLION if output >= LEAST_RATE else IDLE


def _of(made: Callable[..., Reading], *figures: Reading) -> Reading:
    """The result of `made` on these figures; Unknown if one of them is."""
    unknown = next((figure for figure in figures if isinstance(figure, Unknown)), None)
    return made(*figures) if unknown is None else unknown
