"""What the gateway in front of a workload's engines tells, for `servingpool check KIND/NAME`."""

from __future__ import annotations

from collections.abc import Sequence

from servingpool.adapters.prometheus import (
    ANY_MODEL,
    GatewayFigure,
    GatewayProfile,
    PrometheusBackend,
    ReadRequest,
)
from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.gateways.profile import METERING, READ_AS
from servingpool.adapters.prometheus.inspection import Inspection
from servingpool.cli.figures import table, where
from servingpool.cli.output import echo
from servingpool.cli.source import unavailable
from servingpool.decision.observation import Unknown
from servingpool.reconcile.gateways import OwnGateway


async def check_gateway(
    own: OwnGateway, model: str, profile: GatewayProfile, prometheus: PrometheusBackend, *, metered: bool = False
) -> bool:
    """Print a line for each figure. Whether a pool would be told of its requests.

    `metered`: all that decisions need must be there, since the engine exports nothing.
    """
    reading = await prometheus.read(
        ReadRequest(engine=own.name, gateway=True, namespaces=frozenset({own.namespace})), 0.0
    )
    if isinstance(reading, Unknown):
        echo(unavailable(reading.reason, prometheus.config), err=True)
        return False
    pods = own.pods(reading.samples)
    if not pods:
        echo(f"{own.unseen}.", err=True)
        return False
    seen = await prometheus.inspect(own.name, pods, gateway=True)
    if isinstance(seen, Unknown):
        echo(unavailable(seen.reason, prometheus.config), err=True)
        return False
    echo(f"Gateway {own.name} in namespace {own.namespace}, {len(pods)} pods:")
    if len(seen.pods) < len(pods):
        echo(f"Series of the first {len(seen.pods)} of them:")
    there = _figures(seen, profile)
    missing = set(METERING) - there if metered else set()
    if missing:
        echo(f"Missing, and needed for decisions: {', '.join(sorted(missing))}.", err=True)
    models = sorted({name for pod in pods for name in reading.samples[pod]} - {ANY_MODEL})
    return _whose(own, model, profile, models) and not missing


def _figures(seen: Inspection, profile: GatewayProfile) -> set[GatewayFigure]:
    """Print a line for each. Those that some pod has."""
    found = [pages.find(profile.metrics, samples) for samples in seen.samples.values()]
    lines, there = [("figure", "pods", "newest", "series")], set()
    for name, figure in READ_AS.items():
        each = [one for page in found for one in page if one.figure is figure]
        shown = next((one for one in each if one.series is not None), each[0])
        age = seen.ages.get(figure)
        newest = "-" if age is None or shown.series is None else f"{age:.0f} s ago"
        count = sum(one.series is not None for one in each)
        there |= {name} if count else set()
        lines.append((name.value, f"{count}", newest, where(shown, profile.metrics)))
    table(lines)
    return there


def _whose(own: OwnGateway, model: str, profile: GatewayProfile, models: Sequence[str]) -> bool:
    """Whether its series lead to the model, as they are labelled or by the workload."""
    if profile.model_label is None:
        if own.workload is None:
            echo(f"{own.ambiguous}, and --gateway to {own.name}/WORKLOAD.", err=True)
        return own.workload is not None
    echo(f"Its {profile.model_label} is {', '.join(map(repr, models))}.")
    if model not in models:
        echo(f"{own.without(model)}.", err=True)
    return model in models
