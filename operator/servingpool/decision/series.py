"""Which series a page must have, and which may be absent for nothing was counted yet."""

from __future__ import annotations

from dataclasses import replace

from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics
from servingpool.decision.pool import Slo
from servingpool.decision.unknown import Unknown

NO_OBSERVATION = Histogram((), (), 0.0, 0.0)


def missing_series(page: ReplicaMetrics, slo: Slo) -> str | None:
    """What a page lacks that nothing can be decided without, by name; None where it is whole.

    A series that relabelling drops or an upgrade renames is not a series of zeros: with TTFT gone, arrivals would read
    zero under full load and the fleet would go.
    """
    essential = {
        "time to first token": page.time_to_first_token,
        "inter-token latency": page.inter_token_latency,
        "generation tokens": page.generation_tokens,
        "prompt tokens": page.prompt_tokens,
    }
    if slo.time_per_output_token is not None:
        essential["time per output token"] = page.time_per_output_token
    return next((name for name, figure in essential.items() if isinstance(figure, Unknown)), None)


def with_empty_series(page: ReplicaMetrics, *, used: bool = False) -> ReplicaMetrics:
    """The page, with zero for what an engine shows only from its first request on; `used`: it had one before.

    With nothing running, waiting or counted, what is absent has counted nothing. As long as no more requests got their
    first token than are running, none has finished, so what is counted at the end is absent for that reason.
    """
    ttft = page.time_to_first_token
    first = (ttft, page.generation_tokens, page.prompt_tokens, page.inter_token_latency, page.time_per_output_token)
    if all(one is not NOT_EXPOSED for one in first):
        return page
    if ttft is NOT_EXPOSED and not used and _idle(page):
        ttft = NO_OBSERVATION
    if isinstance(ttft, Unknown) or isinstance(page.running, Unknown) or ttft.count > page.running:
        return page
    between, mean = page.inter_token_latency, page.time_per_output_token
    return replace(
        page,
        time_to_first_token=ttft,
        generation_tokens=0.0 if page.generation_tokens is NOT_EXPOSED else page.generation_tokens,
        prompt_tokens=0.0 if page.prompt_tokens is NOT_EXPOSED else page.prompt_tokens,
        inter_token_latency=NO_OBSERVATION if between is NOT_EXPOSED else between,
        time_per_output_token=NO_OBSERVATION if mean is NOT_EXPOSED else mean,
    )


def _idle(page: ReplicaMetrics) -> bool:
    histograms = (page.inter_token_latency, page.time_per_output_token, page.queue_time)
    counted = [page.generation_tokens, page.prompt_tokens]
    counted += [one.count if isinstance(one, Histogram) else one for one in histograms]
    return page.running == 0.0 and page.waiting == 0.0 and all(one is NOT_EXPOSED or one == 0.0 for one in counted)
