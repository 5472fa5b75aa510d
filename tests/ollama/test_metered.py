"""Real Ollama replicas are scaled by what a real LiteLLM counts, which is what their clients saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from servingpool.decision.observation import Histogram, Unknown

from ..e2e.llama_server import write_model  # noqa: TID252, tests are no package of an installed name
from ..vllm.installation import Unavailable  # noqa: TID252
from ..vllm.notes import Note  # noqa: TID252
from .course import ATTAINMENT, MOST, TTFT, Course, play
from .litellm import VERSION

pytestmark = pytest.mark.timeout(2400)
TRANSPORT = 0.25
"""Seconds by which a client sees a first token later than LiteLLM, on a busy machine."""
APART = 10.0
"""Points between attainment in the status and the clients'."""


@pytest.fixture(scope="module")
def course(ollama: Path, binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, note: Note) -> Course:
    """One course for all tests: its figures are noted first."""
    directory = tmp_path_factory.mktemp("ollama")
    model = directory / "model.gguf"
    try:
        write_model(model, small=True)
    except Unavailable as lacking:
        pytest.skip(f"no model for Ollama: {lacking}")
    played = play(ollama, model, binaries, directory)
    answers = played.answers
    ttft = sorted(one.ttft for one in answers if not one.failed)
    note(
        f"Ollama behind LiteLLM {VERSION}: {len(answers)} requests, {sum(one.failed for one in answers)} failed, "
        f"TTFT p50 {ttft[len(ttft) // 2]:.2f} s, p90 {ttft[len(ttft) * 9 // 10]:.2f} s; "
        f"replicas {' -> '.join(map(str, played.turns))}; "
        f"attainment {played.good:.1f}% by the clients, {played.judged}% in the status"
    )
    return played


def test_the_pool_grows_under_load_and_gives_its_replicas_back(course: Course) -> None:
    assert course.turns[0] == course.turns[-1] == 1, course.last.get("lastDecision")
    assert 1 < max(course.turns) <= MOST
    assert not [one.complaint for one in course.answers if one.failed]


def test_requests_and_tokens_are_those_that_the_clients_counted(course: Course, note: Note) -> None:
    read, answers = course.read, course.answers
    note(
        f"read {read.arrivals} requests, {read.generation_tokens} output and {read.prompt_tokens} prompt tokens; "
        f"clients {len(answers)}, {sum(one.output_tokens for one in answers)}, "
        f"{sum(one.prompt_tokens for one in answers)}"
    )
    assert read.arrivals == len(answers)
    assert read.generation_tokens == sum(one.output_tokens for one in answers)
    assert read.prompt_tokens == sum(one.prompt_tokens for one in answers)
    assert read.in_flight == 0.0


def test_first_tokens_are_late_for_as_many_as_the_clients_saw_late(course: Course, note: Note) -> None:
    ttft = course.read.time_to_first_token
    assert isinstance(ttft, Histogram)
    on_time = dict(zip(ttft.bounds, ttft.counts, strict=True))[TTFT]
    mean = sum(one.ttft for one in course.answers) / len(course.answers)
    note(f"TTFT: mean {ttft.total / ttft.count:.3f} s read, {mean:.3f} s by the clients; {on_time:g} within {TTFT:g} s")
    assert ttft.count == len(course.answers)
    # LiteLLM counts from its call of the engine on, so it has a request on time that its client saw late by that much.
    surely, perhaps = (sum(one.ttft <= TTFT + extra for one in course.answers) for extra in (0.0, TRANSPORT))
    assert surely <= on_time <= perhaps
    assert 0.0 <= mean - ttft.total / ttft.count < TRANSPORT


def test_the_time_between_tokens_is_the_clients(course: Course, note: Note) -> None:
    between = course.read.inter_token_latency
    assert isinstance(between, Histogram)
    seconds = sum(one.decoding for one in course.answers)
    steps = sum(one.output_tokens - 1 for one in course.answers)
    note(
        f"between tokens: {1e3 * between.total / between.count:.1f} ms read, {1e3 * seconds / steps:.1f} ms by clients"
    )
    assert between.count == steps
    assert between.total / between.count == pytest.approx(seconds / steps, rel=0.1)


def test_the_status_says_what_the_clients_saw_and_whose_figures_it_is(course: Course) -> None:
    assert course.judged == pytest.approx(course.good, abs=APART)
    found = {one["type"]: one for one in course.last["conditions"]}
    assert found["MetricsAvailable"]["reason"] == "MeteredAtGateway"
    assert "Time to first token is measured at the gateway." in found["SLOMet"]["message"]
    assert course.peak["queueDepth"] is not None
    assert not isinstance(course.read.in_flight, Unknown)
    assert ATTAINMENT
