"""Prefill and decode decided together: what each is asked for, and what holds for both at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import Stage, decide, decide_stages
from servingpool.decision.figures import EACH_ROLE
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import NOT_EXPOSED, GatewayMetrics, Observation, Ordered, Replica, Unknown
from servingpool.decision.pool import Pool, Slo, Target
from servingpool.decision.roles import (
    Ratio,
    client_bound,
    decode_slo,
    joined,
    of_decode,
    of_prefill,
    prefill_slo,
)

from .world import START, plain

CLIENT = Slo(2.0, 0.1, 0.95)
ANY = Ratio()


def side(role: str, slo: Slo, standing: int, *, least: int = 1, most: int = 20, gateway: float | None = None) -> Stage:
    """A fleet of which nothing is known but how many replicas there are: it stays, within min and max."""
    replicas = tuple(Replica(f"{role}-{at}", age=600.0, ready_for=500.0, target=role) for at in range(standing))
    at_zero = GatewayMetrics() if gateway is None else GatewayMetrics(START, 0.0, gateway, gateway)
    observation = Observation(
        requested=standing,
        ready=replicas,
        metrics=Unknown("not scraped"),
        gateway=at_zero,
        targets=(Ordered(role, standing),),
    )
    pool = Pool(slo, least, most, idle_after=900.0 if least == 0 else None, targets=(Target(role, 1.0, most=most),))
    return Stage(observation, pool, Memory())


def both(prefill: int, decode: int, ratio: Ratio = ANY, **bounds: int) -> tuple[int, int]:
    first = side("prefill", prefill_slo(CLIENT), prefill, **bounds)
    second = side("decode", decode_slo(CLIENT), decode, **bounds)
    return tuple(one.decision.replicas for one in decide_stages([first, second], ratio, START))  # type: ignore[return-value]


class TestSlo:
    def test_each_side_has_its_bound_and_a_part_of_the_misses(self) -> None:
        first, second = prefill_slo(CLIENT), decode_slo(CLIENT)
        assert (first.time_to_first_token, first.time_per_output_token) == (pytest.approx(1.9), None)
        assert (second.time_to_first_token, second.time_per_output_token) == (first.time_to_first_token, 0.1)
        assert first.attainment * second.attainment == pytest.approx(0.95)

    @given(st.floats(0.01, 60.0))
    def test_the_clients_bound_follows_from_that_of_prefill(self, bound: float) -> None:
        assert client_bound(prefill_slo(Slo(bound, 0.1)).time_to_first_token or 0.0) == pytest.approx(bound)

    def test_a_bound_near_the_handover_keeps_half_for_prefill(self) -> None:
        assert prefill_slo(Slo(0.12, 0.1)).time_to_first_token == pytest.approx(0.06)


class TestRatio:
    @given(st.integers(0, 40), st.integers(0, 40), st.floats(0.01, 5.0), st.floats(1.0, 20.0))
    def test_what_it_asks_for_is_the_fewest_that_meet_it(self, p: int, d: int, least: float, wide: float) -> None:
        ratio = Ratio(least, least * wide)
        asked = ratio.prefill(d)
        assert asked >= least * d - 1e-6 or asked + 1 > ratio.most * d, "one more would break max"
        assert asked == 0 or asked - 1 < least * d
        asked = ratio.decode(p)
        assert p <= ratio.most * asked + 1e-6 or ratio.least * (asked + 1) > p, "one more would break min"
        assert asked == 0 or p > ratio.most * (asked - 1)

    @given(st.integers(1, 12), st.integers(1, 12), st.floats(0.05, 5.0), st.floats(1.0, 1.5))
    def test_roles_that_are_kept_for_lack_of_metrics_do_not_grow_by_turns(
        self, p: int, d: int, least: float, wide: float
    ) -> None:
        ratio = Ratio(least, least * wide)
        raised = both(p, d, ratio)
        assert both(*raised, ratio) == raised

    def test_a_ratio_that_no_whole_number_meets_is_met_from_below(self) -> None:
        assert both(1, 1, Ratio(0.7, 0.7)) == (1, 1)
        assert both(7, 8, Ratio(0.7, 0.7)) == (7, 10)
        assert both(3, 1, Ratio(0.7, 0.7)) == (3, 4)

    def test_the_sentence_names_the_ratio_and_not_min(self) -> None:
        first = side("prefill", prefill_slo(CLIENT), 6)
        second = side("decode", decode_slo(CLIENT), 2)
        _, decode = decide_stages([first, second], Ratio(most=2.0), START)
        assert decode.decision.reason.endswith("; prefillPerDecode raises replicas to 3 beside 6 for prefill")
        assert decode.decision.limits[-1].name is LimitName.RATIO
        assert decode.decision.bounds.least.beside is not None

    def test_what_was_learned_does_not_depend_on_the_other_side(self) -> None:
        first, second = side("prefill", prefill_slo(CLIENT), 6), side("decode", decode_slo(CLIENT), 2)
        _, raised = decide_stages([first, second], Ratio(most=2.0), START)
        alone = decide(second.observation, second.pool, second.memory, START)
        assert plain(raised.memory) == plain(alone.memory)


class TestBeside:
    @given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 30), st.floats(0.05, 5.0), st.floats(1.0, 8.0))
    def test_fewer_of_the_other_side_never_raise_a_side_nor_lower_it_below_what_it_is_alone(
        self, p: int, d: int, fewer: int, least: float, wide: float
    ) -> None:
        first, second = side("prefill", prefill_slo(CLIENT), p, least=0), side("decode", decode_slo(CLIENT), d, least=0)
        prefill, decode = decide_stages([first, second], Ratio(least, least * wide), START)
        for one, alone, other in ((prefill, p, decode.decision.replicas), (decode, d, prefill.decision.replicas)):
            assert one.beside is not None
            assert alone <= one.beside(max(0, other - fewer)).replicas <= one.decision.replicas

    @given(st.integers(0, 8), st.integers(0, 8), st.sampled_from([0, 1]), st.floats(0.05, 4.0), st.floats(1.0, 8.0))
    def test_a_limit_names_what_a_person_would_change(
        self, p: int, d: int, least: int, low: float, wide: float
    ) -> None:
        first = side("prefill", prefill_slo(CLIENT), p, least=least)
        second = side("decode", decode_slo(CLIENT), d, least=least)
        for one in decide_stages([first, second], Ratio(low, low * wide), START):
            beside = one.decision.bounds.least.beside
            for limit in one.decision.limits:
                assert limit.name is not LimitName.MINIMUM or limit.after <= least
                assert limit.name is not LimitName.OTHER_ROLE or (limit.before, limit.after) == (0, 1)
                assert limit.name is not LimitName.RATIO or (beside is not None and limit.after > max(least, 1))


class TestZero:
    @pytest.mark.parametrize("ratio", [ANY, Ratio(most=5.0)])
    def test_a_role_that_runs_for_the_other_alone_is_no_matter_of_min_nor_of_the_ratio(self, ratio: Ratio) -> None:
        first = side("prefill", prefill_slo(CLIENT), 3, least=0)
        second = side("decode", decode_slo(CLIENT), 0, least=0)
        _, decode = decide_stages([first, second], ratio, START)
        assert decode.decision.limits[-1].name is LimitName.OTHER_ROLE
        assert decode.decision.reason.endswith("raised to 1 because prefill has 3: neither role is at 0 alone")


class TestSeen:
    def test_what_the_gateway_holds_waits_for_prefill_only(self) -> None:
        gateway = GatewayMetrics(START, queue=7.0, arrivals=100.0, at_zero=100.0)
        seen = replace(side("prefill", CLIENT, 1).observation, gateway=gateway)
        assert of_prefill(seen).gateway.queue == 7.0
        assert of_decode(seen).gateway == replace(gateway, queue=0.0)

    def test_a_queue_that_no_gateway_tells_stays_unknown(self) -> None:
        seen = side("decode", CLIENT, 1).observation
        assert of_decode(seen).gateway.queue is NOT_EXPOSED


class TestJoined:
    def test_every_figure_is_of_one_side_of_both_or_left_to_each(self) -> None:
        first, second = side("prefill", prefill_slo(CLIENT), 2), side("decode", decode_slo(CLIENT), 3)
        prefill, decode = (one.decision for one in decide_stages([first, second], Ratio(), START))
        given_prefill = replace(prefill, figures=replace(prefill.figures, attainment=0.98, queue=4.0, load=0.5))
        given_decode = replace(decode, figures=replace(decode.figures, attainment=0.97, queue=1.0, load=0.7))
        whole = joined([given_prefill, given_decode])
        assert whole.replicas == 5
        assert [part.target for part in whole.parts] == ["prefill", "decode"]
        assert whole.figures.attainment == pytest.approx(0.98 * 0.97)
        assert whole.figures.queue == 5.0
        assert whole.figures.load is EACH_ROLE
        assert whole.need is EACH_ROLE
        assert (whole.bounds.least.replicas, whole.bounds.most.replicas) == (2, 40)

    @given(st.integers(0, 8), st.integers(0, 8), st.sampled_from([0, 1]), st.floats(0.05, 4.0), st.floats(1.0, 8.0))
    def test_whatever_stands_both_are_up_or_down_and_within_their_bounds(
        self, p: int, d: int, least: int, low: float, wide: float
    ) -> None:
        ratio = Ratio(low, low * wide)
        prefill, decode = both(p, d, ratio, least=least)
        assert (prefill == 0) == (decode == 0)
        assert least <= prefill <= 20
        assert least <= decode <= 20
