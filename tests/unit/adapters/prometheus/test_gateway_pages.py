"""Each gateway's profile on that gateway's page, and what a profile of one's own must have."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.gateways import GatewayProfile, shipped_gateways
from servingpool.adapters.prometheus.samples import ReadRequest
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics

ENGINES = Path(__file__).parents[3] / "fixtures" / "engines"
PAGES = sorted(file.stem.removeprefix("gateway-") for file in ENGINES.glob("gateway-*.txt"))
NONE = None
FIGURES = {
    "envoy-ai-gateway-0.5": (NONE, 6, 7),
    "envoy-ai-gateway-0.5-after": (NONE, 10, 8),
    "inference-extension-1.0": (NONE, 11, NONE),
    "inference-extension-1.0-after": (NONE, 11, NONE),
    "inference-extension-1.2": (NONE, 10, NONE),
    "inference-extension-1.2-after": (NONE, 11, NONE),
    "inference-extension-1.5": (1, 11, NONE),
    "inference-extension-1.5-after": (0, 11, NONE),
    "litellm-1.105.7": (NONE, 6, 3),
    "litellm-1.105.7-noworkers": (NONE, 1, NONE),
    "llm-d-epp-0.10.0": (1, 11, 7),
    "llm-d-epp-0.10.0-after": (0, 11, 8),
    "production-stack-0.1.12": (NONE, 11, NONE),
    "production-stack-0.1.12-after": (NONE, 11, NONE),
    "sglang-router-0.3.2": (NONE, 10, NONE),
    "sglang-router-0.3.2-noworkers": (NONE, 1, NONE),
    "vllm-router-0.1.17": (NONE, 10, NONE),
    "vllm-router-0.1.17-noworkers": (NONE, 1, NONE),
}
"""Queue, arrivals, TTFT's count, by page; None where the gateway does not tell."""


def profile_of(name: str) -> GatewayProfile:
    return next(profile for gateway, profile in shipped_gateways().items() if name.startswith(gateway))


def read(name: str) -> ReplicaMetrics:
    profile = profile_of(name)
    samples = page.parse((ENGINES / f"gateway-{name}.txt").read_text())
    found = page.read(profile.metrics, samples, ReadRequest(ttft_bounds=frozenset({2.0})))
    return found["org/model" if profile.model_label else ""]


@pytest.mark.parametrize("name", PAGES)
def test_queue_arrivals_and_ttft_are_what_the_gateway_counted(name: str) -> None:
    """Real ones after six requests, four in flight; those by hand after the story of all engines, one request held."""
    metrics = read(name)
    ttft = metrics.time_to_first_token
    shown = (metrics.waiting, metrics.begun, ttft.count if isinstance(ttft, Histogram) else ttft)
    assert tuple(None if one is NOT_EXPOSED else one for one in shown) == FIGURES[name]


def test_the_client_waits_in_the_gateways_queue_and_its_ttft_says_so() -> None:
    """One request was held for 12 s: the gateway's histogram has it in a bucket above 10 s."""
    ttft = read("llm-d-epp-0.10.0-after").time_to_first_token
    assert isinstance(ttft, Histogram)
    assert (ttft.count, dict(zip(ttft.bounds, ttft.counts, strict=True))[2.0]) == (8, 7)
    assert ttft.total == pytest.approx(14.102)


def test_litellm_meters_an_engine_that_exports_nothing() -> None:
    """Six requests are over, three of them streamed; four are in flight, of whatever model, and the scrape itself."""
    metered = read("litellm-1.105.7")
    assert (metered.generation_tokens, metered.prompt_tokens, metered.running) == (123.0, 45.0, NOT_EXPOSED)
    between = metered.inter_token_latency
    assert isinstance(between, Histogram)
    assert (between.count, between.total) == (120.0, pytest.approx(1.648245 + 1.273731 - 0.216734 - 0.04298))
    samples = page.parse((ENGINES / "gateway-litellm-1.105.7.txt").read_text())
    of_all = page.read(profile_of("litellm-1.105.7").metrics, samples)[""]
    assert (of_all.running, of_all.begun) == (4.0, NOT_EXPOSED)
    assert [name for name, profile in shipped_gateways().items() if profile.meters] == ["litellm"]


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith("noworkers")])
def test_a_real_gateway_without_an_engine_shows_a_request_by_what_its_profile_says(name: str) -> None:
    """One request was refused. vllm-router counts each of its five tries too."""
    profile, metrics = profile_of(name), read(name)
    assert profile.at_zero is not None
    held = {"arrivals": metrics.begun, "unserved": metrics.admission_rejections}
    shown = {one.value: held[one.value] for one in profile.at_zero.shows}
    assert shown == {"arrivals": 1.0, **({"unserved": 5.0} if "unserved" in shown else {})}


def test_what_is_said_of_zero_names_figures_that_are_there() -> None:
    figures = {"arrivals": ["a"]}
    for shows in (["queue"], ["inFlight"]):
        with pytest.raises(ValidationError, match=r"atZero.shows must name arrivals, queue, unserved that figures has"):
            GatewayProfile.model_validate({"figures": figures, "atZero": {"firstRequest": "Holds", "shows": shows}})


def test_every_gateway_tells_arrivals_and_has_a_page() -> None:
    """Without arrivals a profile would be of no use."""
    for gateway, profile in shipped_gateways().items():
        assert "arrivals" in profile.figures
        assert any(name.startswith(gateway) for name in PAGES), gateway


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, "at least 1 item"),
        ({"queue": []}, "figures.queue must name a series, got an empty list"),
        ({"arrivals": [{"sum": ["a"], "count": ["b"]}]}, "figures.arrivals must have name, or sum alone"),
        ({"timeToFirstToken": [{"sum": ["a"], "count": ["b"]}]}, "figures.timeToFirstToken must have name"),
        ({"timeToFirstToken": [{"name": "a", "labels": {"b": "c"}}]}, "must have a name and no labels"),
        (
            {"interTokenLatency": [{"sum": ["a"]}]},
            "figures.interTokenLatency must have name, or sum and count together",
        ),
        ({"inFlight": [{"sum": ["a"], "less": 1}]}, "less goes with name alone"),
        ({"timeToFirstToken": [{"name": "a", "excluded": {"b": "c"}}]}, "figures.arrivals must be there too"),
        ({"running": ["a"]}, "'queue', 'arrivals', 'timeToFirstToken', 'inFlight'"),
    ],
)
def test_a_wrong_profile_is_refused_by_field(figures: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GatewayProfile.model_validate({"figures": figures})
