"""An observation with the figures that engines do not tell and their gateway does, as the core takes it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from servingpool.adapters.gateways.first_tokens import Unbegun, with_first_tokens
from servingpool.adapters.gateways.metered import Shares, with_shares
from servingpool.decision.observation import Observation


class Completing(NamedTuple):
    """State of a pool for the next call of `completed`."""

    shares: Shares | None = None
    """Shares of metered engines; None where the engines export metrics of their own."""
    unbegun: Unbegun | None = None
    """Counts of engines without a count of requests; None where the engines count their requests."""


NOTHING = Completing()


def completed(observation: Observation, limit: float, before: Completing, now: float) -> tuple[Observation, Completing]:
    """The observation with the gateway's figures in place of the engines', and the state for the next call.

    `limit`: requests that a replica runs at a time; `before`: as the last call returned; `now`: Unix time in seconds.
    """
    observation, shares = with_shares(observation, limit, before.shares)
    observation, unbegun = with_first_tokens(observation, before.unbegun, now)
    if unbegun is not None:
        observation = replace(observation, ttft_inferred=True)
    return observation, Completing(shares, unbegun)
