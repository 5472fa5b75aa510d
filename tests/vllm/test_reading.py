"""What the operator reads of a real vLLM, through a real Prometheus, agrees with what the engine's client measured."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servingpool.adapters.prometheus.samples import with_own_buckets
from servingpool.decision.observation import Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.latency import LatencyCount
from servingpool_lab.prometheus import Prometheus

from .client import Answer, Ask, End, replay
from .engine import MAX_NUM_SEQS, Vllm
from .measures import MEAN_TRANSPORT, ROUNDING, SAME, TRANSPORT, histogram, reading, series, unsure
from .run import LOOK_INTERVAL, SETTLED, SLOS, Run, scraped_since, words
from .ticks import Look, Operator

pytestmark = pytest.mark.timeout(1800)  # the first test of a machine installs vLLM

RECORDED = Path(__file__).parents[1] / "fixtures" / "vllm-0.32.0-metrics.txt"


def test_every_request_and_every_token_is_counted(run: Run) -> None:
    refused = [answer for answer in run.answers if answer.end is End.REFUSED]
    assert {answer.end for answer in run.answers} == {End.WHOLE, End.REFUSED}
    tokens = sum(len(answer.times) for answer in run.served)
    for slo in range(len(SLOS)):
        assert run.total(Column.TTFT_COUNT, slo) == len(run.served)
        assert run.total(Column.TPOT_COUNT, slo) == len(run.served)
        assert run.total(Column.GENERATED, slo) == tokens
        assert run.total(Column.ITL_COUNT, slo) == tokens - len(run.served)
        assert run.total(Column.PROMPTS, slo) == sum(answer.prompt_tokens for answer in run.served)
        assert run.total(Column.CACHED, slo) == sum(answer.cached_tokens for answer in run.served) > 0
        assert run.total(Column.REJECTED, slo) == len(refused) > 0


def test_all_of_the_time_is_covered(run: Run) -> None:
    first, last = run.looks[0][0].page, run.looks[0][-1].page
    assert sum(look.delta.covered for look in run.looks[0]) == pytest.approx(last.scraped_at - first.scraped_at)
    assert all(look.delta.coverage == 1.0 and look.delta.missing is None for look in run.looks[0])


def test_the_shares_of_ttft_are_the_clients(run: Run) -> None:
    first, last = (histogram(look.page.time_to_first_token) for look in (run.looks[0][0], run.looks[0][-1]))
    assert {0.25, 0.5} <= set(last.bounds)
    for index, bound in enumerate(last.bounds):
        counted = last.counts[index] - first.counts[index]
        # The engine's clock starts later than the client's and stops earlier.
        at_least = sum(answer.first_token <= bound for answer in run.served)
        at_most = sum(answer.first_token <= bound + TRANSPORT for answer in run.served)
        assert at_least <= counted <= at_most, f"TTFT up to {bound} s"


def test_the_shares_of_tpot_are_the_clients(run: Run) -> None:
    first, last = (histogram(look.page.time_per_output_token) for look in (run.looks[0][0], run.looks[0][-1]))
    assert {0.01, 0.025} <= set(last.bounds)
    for index, bound in enumerate(last.bounds):
        counted = last.counts[index] - first.counts[index]
        # First and last token travel for different times: either way, divided by the steps between them.
        at_least = sum(answer.per_token <= bound - unsure(answer) for answer in run.served)
        at_most = sum(answer.per_token <= bound + unsure(answer) for answer in run.served)
        assert at_least <= counted <= at_most, f"TPOT up to {bound} s"


def test_the_means_are_the_clients(run: Run) -> None:
    served = run.served
    late = sum(answer.first_token for answer in served) - run.total(Column.TTFT_SUM)
    assert 0.0 <= late / len(served) <= MEAN_TRANSPORT
    assert run.total(Column.ITL_SUM) == pytest.approx(sum(answer.decoding for answer in served), rel=SAME)


@pytest.mark.parametrize("slo", range(len(SLOS)))
def test_the_share_on_time_is_the_clients(run: Run, slo: int) -> None:
    """Within what the buckets around the bound can tell: they are one where the bound is a bucket's."""
    ttft, tpot = run.operator.core(slo).slo.time_to_first_token, run.operator.core(slo).slo.time_per_output_token
    assert ttft is not None
    assert tpot is not None
    cases = (
        (ttft, (Column.TTFT_COUNT, Column.TTFT_LOWER, Column.TTFT_UPPER), "ttft", first_token),
        (tpot, (Column.TPOT_COUNT, Column.TPOT_LOWER, Column.TPOT_UPPER), "tpot", per_token),
    )
    for bound, figures, name, measured in cases:
        count, within, up_to = (run.total(figure, slo) for figure in figures)
        bucket = getattr(run.looks[slo][-1].delta.buckets, name)
        lower, upper = bucket
        assert lower <= bound <= upper
        split = LatencyCount.split(count, within, up_to)
        told = 1.0 - split.misses(split, bucket, bound).share
        surely, perhaps = share(run, measured, lower, early=True), share(run, measured, upper, early=False)
        assert surely - ROUNDING <= told <= perhaps + ROUNDING
        assert within / count - ROUNDING <= told <= up_to / count + ROUNDING


def test_running_and_waiting_are_what_the_client_has_under_way(run: Run) -> None:
    queued, step = 0, max(gap for answer in run.served for gap in answer.gaps)
    for look in run.looks[0]:
        at, running, waiting = look.page.scraped_at, reading(look.page.running), reading(look.page.waiting)
        before, after = at - TRANSPORT, at + run.slowest_scrape + TRANSPORT
        decoding = sum(answer.times[0] < before and answer.ended > after for answer in run.served)
        # Gauges are set at the end of a step: what came amid one is in them at the end of the next, if there is one.
        taken_in = sum(answer.sent < before - 2 * step and answer.ended > after for answer in run.served)
        perhaps = sum(answer.sent < after and answer.ended > before for answer in run.served)
        assert decoding <= running <= MAX_NUM_SEQS
        assert (taken_in if decoding else 0) <= running + waiting <= perhaps
        queued += waiting > 0
    assert queued, "the burst was over before a scrape saw it wait"
    assert run.looks[0][-1].page.running == run.looks[0][-1].page.waiting == 0.0


def test_arrivals_are_what_the_client_sent(run: Run) -> None:
    for slo, look, begin, end, covered in windows(run):
        told = look.figures.arrivals
        if isinstance(told, Unknown):
            assert look.at < run.looks[slo][0].at + 30.0, (
                told.reason
            )  # no step time is known before a token was decoded
            continue
        sent = sum(begin < answer.sent <= end for answer in run.answers)
        # Neither waiting nor at their first token are those in the batch's prefill. One more: the queue's growth is
        # taken by the operator's clock, a scrape's phase beside Prometheus's.
        doubtful = MAX_NUM_SEQS + 1 + near(run, lambda answer: [answer.sent], begin, end)
        assert abs(told * covered - sent) <= doubtful, f"{end - run.looks[0][0].at:.0f} s after the start"


def test_token_rates_are_the_clients(run: Run) -> None:
    for _, look, begin, end, covered in windows(run):
        generated = sum(begin < at <= end for answer in run.served for at in answer.times)
        told = reading(look.figures.generation_rate) * covered
        assert abs(told - generated) <= ROUNDING + near(run, lambda answer: answer.times, begin, end)

        prompts = sum(answer.prompt_tokens for answer in run.served if begin < answer.times[0] <= end)
        told = reading(look.figures.prompt_rate) * covered
        assert abs(told - prompts) <= ROUNDING + near(run, lambda a: a.times[:1], begin, end, lambda a: a.prompt_tokens)


def test_the_percentiles_are_the_clients(run: Run) -> None:
    for slo, looks in enumerate(run.looks):
        at, wanted = looks[-1], run.operator.core(slo).slo.attainment
        for told, page, measured in (
            (at.figures.time_to_first_token, at.page.time_to_first_token, first_token),
            (at.figures.time_per_output_token, at.page.time_per_output_token, per_token),
        ):
            bounds = (0.0, *histogram(page).bounds, math.inf)
            seconds = reading(told)
            lower = max(bound for bound in bounds if bound < seconds)
            # Where it lies beyond the last bucket that is read, that bucket's end is told.
            upper = min(bound for bound in bounds if bound >= seconds) if seconds < bounds[-2] else math.inf
            assert recent_share(run, measured, lower, early=True) <= wanted
            assert wanted <= recent_share(run, measured, upper, early=False)


def test_the_attainment_is_about_the_clients(run: Run) -> None:
    """About: two histograms say how many broke either bound, not which, and are joined as if independent."""
    slo = run.operator.core(0).slo
    assert slo.time_to_first_token is not None
    assert slo.time_per_output_token is not None
    met = [a.first_token <= slo.time_to_first_token and a.per_token <= slo.time_per_output_token for a in run.served]
    assert reading(run.looks[0][-1].figures.attainment) == pytest.approx(sum(met) / len(met), abs=0.15)


def test_history_is_what_was_read_live(run: Run) -> None:
    remembered = {
        page.scraped_at: page for _, pages in run.history for models in pages.values() for page in models.values()
    }
    both = [look.page for look in run.looks[0] if look.page.scraped_at in remembered]
    assert len(both) > len(run.looks[0]) / 2
    slo = run.operator.core(0).slo
    bounds = slo.time_to_first_token, slo.time_per_output_token
    assert all(page == with_own_buckets(remembered[page.scraped_at], *bounds) for page in both)


def test_the_recorded_page_has_this_engines_series(run: Run, engine: Vllm) -> None:
    if engine.version not in RECORDED.name:
        pytest.skip(f"this is vLLM {engine.version}, recorded is {RECORDED.name}: record this one's page anew")

    assert series(run.page) == series(RECORDED.read_text())


async def test_a_client_that_leaves_counts_as_arrived_and_never_as_finished(
    run: Run, engine: Vllm, prometheus: Prometheus
) -> None:
    operator = Operator(prometheus.url, *SLOS)
    await operator.look()
    luck = random.Random(1)
    left = await replay(engine.url, [Ask(0.1 * n, words(luck, 50), 300, leave_after=10) for n in range(5)])
    await scraped_since(prometheus.url, time.time() + SETTLED)
    after, *_ = await operator.look()
    await operator.aclose()
    assert {answer.end for answer in left} == {End.LEFT}
    assert after.delta.sums[Column.TTFT_COUNT] == len(left)
    assert after.delta.sums[Column.PROMPTS] == 50 * len(left)
    assert after.delta.sums[Column.TPOT_COUNT] == 0
    assert 10 * len(left) <= after.delta.sums[Column.GENERATED] < 300 * len(left)
    assert after.page.running == after.page.waiting == 0.0


def first_token(answer: Answer) -> tuple[float, float]:
    """TTFT as the client measured it, and as it may have been at the engine at the least."""
    return answer.first_token, answer.first_token - TRANSPORT


def per_token(answer: Answer) -> tuple[float, float]:
    """TPOT at the most and at the least."""
    return answer.per_token + unsure(answer), answer.per_token - unsure(answer)


Measured = Callable[[Answer], tuple[float, float]]


def share(run: Run, measured: Measured, bound: float, *, early: bool) -> float:
    """Share of requests within a bound: surely (`early`), or perhaps."""
    return sum(measured(answer)[not early] <= bound for answer in run.served) / len(run.served)


def recent_share(run: Run, measured: Measured, bound: float, *, early: bool) -> float:
    """The same with the operator's weights (1/e in five minutes), each as much in doubt as the time it counts from."""
    end = run.looks[0][-1].at
    inside = outside = 0.0
    for answer in run.served:
        recent, older = (math.exp(-(end - at) / 300.0) for at in (answer.ended + LOOK_INTERVAL, answer.sent))
        if measured(answer)[not early] <= bound:
            inside += older if early else recent
        else:
            outside += recent if early else older
    return inside / (inside + outside)


def windows(run: Run) -> list[tuple[int, Look, float, float, float]]:
    """For each SLO and each look from the second on: what its rates are about, as SLO, look, begin, end, seconds covered.

    A rate goes over the ticks of the last 30 s, each of which reaches back to the scrape that the tick before it saw.
    """
    found = []
    for slo, looks in enumerate(run.looks):
        for index in range(1, len(looks)):
            last = looks[index]
            oldest = next(i for i in range(1, index + 1) if looks[i].at > last.at - 30.0)
            begin, end = looks[oldest - 1].page.scraped_at, last.page.scraped_at
            found.append((slo, last, begin, end, end - begin))
    return found


def near(
    run: Run,
    times: Callable[[Answer], list[float]],
    begin: float,
    end: float,
    weight: Callable[[Answer], float] = lambda _: 1.0,
) -> float:
    """How much happened so near a window's ends that it may be on either side."""
    return sum(
        weight(answer)
        for answer in run.answers
        for at in times(answer)
        if any(-TRANSPORT <= at - edge <= run.slowest_scrape + TRANSPORT for edge in (begin, end))
    )
