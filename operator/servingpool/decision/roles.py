"""Prefill and decode on engines of their own: each fleet is decided as a pool, and both go together.

TTFT belongs to the prefill engines and TPOT to the decode engines. A decode engine may not let a request wait for
the whole TTFT either. A request must meet all bounds, so each stage is sized for a part of the misses. What holds for
both at once raises the smaller stage: the ratio that the pool asks for, and that neither stage is at 0 replicas alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from servingpool.decision.decision import Decision, verdict_of_parts
from servingpool.decision.figures import EACH_ROLE, of_roles
from servingpool.decision.observation import EPSILON, NOT_EXPOSED, Observation
from servingpool.decision.pool import Bound, Bounds, Slo

PREFILL, DECODE = "prefill", "decode"
HANDOVER = 0.1
"""Seconds of the client's TTFT that pass after the prefill: the KV cache moves, and the decode engine takes one step.
Range 0.01 to 0.5. Source: 61 ms for 10,000 tokens of an 8B model (LMCache on vLLM V1, see
docs/benchmarks/prefill-decode.md); slower networks take more."""
LEAST_SHARE = 0.5
"""Share of the client's TTFT bound that the prefill engines have at least, where the bound is near `HANDOVER`."""


class Ratio(NamedTuple):
    """Prefill replicas for each decode replica.

    Where no whole number lies within both bounds, the next one below is taken. Otherwise each role would be raised for
    the other by turns: at a ratio of 0.7, one and one replica that are kept for lack of metrics grew to 7 and 10.
    """

    least: float = 0.0
    most: float = math.inf

    def prefill(self, decode: int) -> int:
        """Fewest prefill replicas beside so many for decode."""
        fewest = math.ceil(self.least * decode - EPSILON)
        return fewest - 1 if fewest > self.most * decode + EPSILON else fewest

    def decode(self, prefill: int) -> int:
        """Fewest decode replicas beside so many for prefill."""
        fewest = math.ceil(prefill / self.most - EPSILON)
        return fewest - 1 if self.least * fewest > prefill + EPSILON else fewest


def prefill_slo(slo: Slo) -> Slo:
    """SLO of the prefill engines, where `slo`, which has both bounds, is the client's."""
    assert slo.time_to_first_token is not None
    bound = max(slo.time_to_first_token - HANDOVER, slo.time_to_first_token * LEAST_SHARE)
    return Slo(bound, None, math.sqrt(slo.attainment))


def client_bound(prefill: float) -> float:
    """The client's TTFT bound that gives the prefill engines the bound `prefill`; both in seconds."""
    return min(prefill + HANDOVER, prefill / LEAST_SHARE)


def decode_slo(slo: Slo) -> Slo:
    """SLO of the decode engines.

    Without a TTFT of theirs, requests that wait for a KV cache or for a full engine would meet the SLO: on a real pair
    it was told as met while clients waited for 28 s.
    """
    return replace(prefill_slo(slo), time_per_output_token=slo.time_per_output_token)


def of_prefill(observation: Observation) -> Observation:
    """The observation of the prefill engines. The client's TTFT spans both stages, so it is left out."""
    return replace(observation, gateway=replace(observation.gateway, time_to_first_token=NOT_EXPOSED))


def of_decode(observation: Observation) -> Observation:
    """The observation of the decode engines, without requests that the gateway holds: they have no prefill yet.

    The gateway tells this stage only whether requests come at all, which wakes it.
    """
    gateway = observation.gateway
    queue = gateway.queue if gateway.queue is NOT_EXPOSED else 0.0
    return replace(observation, gateway=replace(gateway, queue=queue, time_to_first_token=NOT_EXPOSED))


def joined(stages: Sequence[Decision]) -> Decision:
    """The decision on both stages, with the figures of the clients and of all replicas."""
    prefill, decode = stages
    both, parts = ((PREFILL, prefill), (DECODE, decode)), (*prefill.parts, *decode.parts)
    warnings = [f"{role}: {each.warning}" for role, each in both if each.warning is not None]
    return Decision(
        at=prefill.at,
        replicas=prefill.replicas + decode.replicas,
        verdict=verdict_of_parts(parts),
        need=EACH_ROLE,
        capacity=EACH_ROLE,
        limits=(),
        reason="; ".join(f"{role}: {each.reason}" for role, each in both),
        figures=of_roles(prefill.figures, decode.figures),
        bounds=Bounds(
            Bound(prefill.bounds.least.replicas + decode.bounds.least.replicas),
            Bound(prefill.bounds.most.replicas + decode.bounds.most.replicas),
        ),
        calibrating=prefill.calibrating or decode.calibrating,
        warning=" ".join(warnings) or None,
        parts=parts,
        standing=(*prefill.standing, *decode.standing),
    )
