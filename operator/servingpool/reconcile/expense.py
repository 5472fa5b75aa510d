"""What a pool's fleet costs, and what its traffic would cost at a hosted price. It does not influence scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import mul

from servingpool.api.serving_pool import ServingPool
from servingpool.catalogue.notes import Note
from servingpool.decision.decision import Figures
from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.reconcile.config import Price

LEAST_RATE = 1.0
"""Output tokens per second. Below it a quotient of two rates is noise, and a pool counts as idle."""
SECONDS = 3600.0
"""In an hour."""
MILLION = 1e6
"""Tokens that a price is for."""

NO_COST = Unknown("costPerReplicaHour is not set")
NOT_COMPARED = Unknown("no hosted price to compare with")
IDLE = Unknown(f"fewer than {LEAST_RATE:g} output tokens per second")
NO_GPU = Unknown("no GPU is ready")
FREE = Unknown("the fleet costs nothing")


@dataclass(frozen=True, slots=True)
class Expense:
    """The money of one pool. What is not known is Unknown, never 0."""

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
    """Load of the ready replicas then."""
    warning: str | None = None
    """Why nothing can be compared although the pool asks for it."""


def expense_of(
    pool: ServingPool, observation: Observation, figures: Figures, gpus: int, prices: Mapping[str, Price]
) -> Expense:
    """The money of a pool with `gpus` per replica, `prices` being those of the operator's configuration."""
    each = pool.spec.targets[0].cost_per_replica_hour
    fleet = len(observation.ready) + sum(not replica.unschedulable for replica in observation.starting)
    dollars: Reading = NO_COST if each is None else each * fleet
    ready, output = len(observation.ready) * gpus, figures.generation_rate
    per_million = _of(_per_million, dollars, output)
    own = Expense(
        dollars=dollars,
        per_gpu=_of(lambda output: output / ready if ready else NO_GPU, output),
        per_million=per_million,
        per_dollar=_of(lambda price: MILLION / price if price > 0.0 else FREE, per_million),
    )
    name = pool.spec.compare_to
    if name is None:
        return own
    price = prices.get(name)
    if price is None:
        known = ", ".join(sorted(prices)) or "none"
        return replace(own, warning=Note.UNKNOWN_PRICE.message(price=name, known=known))
    compared = _of(lambda prompts, output: _hourly(price, prompts, output), figures.prompt_rate, output)
    # Traffic of the present mix that is so many times as much costs there what this fleet costs.
    times = _of(lambda ours, theirs, output: ours / theirs if output >= LEAST_RATE else IDLE, dollars, compared, output)
    return replace(
        own,
        price=name,
        noted=price.noted.isoformat(),
        compared=compared,
        break_even=_of(mul, output, times),
        break_even_load=_of(mul, times, figures.load),
        warning=Note.NO_COST.message() if each is None else None,
    )


def _hourly(price: Price, prompts: float, output: float) -> float:
    """Dollars. No engine tells which prompt tokens a provider would have cached: all count as input."""
    return (prompts * price.input + output * price.output) * SECONDS / MILLION


def _per_million(dollars: float, output: float) -> Reading:
    return dollars / (output * SECONDS) * MILLION if output >= LEAST_RATE else IDLE


def _of(made: Callable[..., Reading], *figures: Reading) -> Reading:
    """What is `made` of these figures; Unknown if one of them is."""
    unknown = next((figure for figure in figures if isinstance(figure, Unknown)), None)
    return made(*figures) if unknown is None else unknown
