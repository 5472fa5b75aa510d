from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from servingpool.cli.record import read, resumed
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown
from servingpool.decision.pool import Slo
from servingpool.recording.format import Chunk, RecordingError, encode, encode_header
from servingpool_backtest import intervals
from servingpool_backtest.intervals import gather

from .histories import header_of


def sample(at: float, served: float, bounds: tuple[float, ...] = (1.0, 2.0)) -> ReplicaMetrics:
    return ReplicaMetrics(
        replica="llama-1",
        scraped_at=at,
        running=3.0,
        waiting=Unknown("NaN"),
        generation_tokens=100.0 * served,
        time_to_first_token=Histogram(bounds, tuple(served for _ in bounds), 0.5 * served, served),
    )


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path, header = tmp_path / "llama.rec", header_of(0.0, 600.0)
    samples = [sample(15.0 * tick, 7.0 * tick) for tick in range(40)]
    chunks = [Chunk.of(0.0, 300.0, samples[:20], [(0.0, 4.0)]), Chunk.of(300.0, 600.0, samples[20:])]
    path.write_bytes(encode_header(header) + b"".join(map(encode, chunks)))
    read_header, read_chunks = read(path)
    found = list(read_chunks)
    assert read_header == header
    assert [(one.begin, one.end, one.requested) for one in found] == [(0.0, 300.0, ((0.0, 4.0),)), (300.0, 600.0, ())]
    (scrapes,) = found[1].scrapes
    assert scrapes.at.tolist() == [15.0 * tick for tick in range(20, 40)]
    assert scrapes.figures["generation_tokens"][-1] == 100.0 * 7.0 * 39
    assert "waiting" not in scrapes.figures
    assert scrapes.histograms["time_to_first_token"].counts.shape == (20, 2)


def test_a_sample_that_is_read_at_two_steps_counts_once() -> None:
    (scrapes,) = Chunk.of(0.0, 60.0, [sample(10.0, 1.0), sample(10.0, 1.0), sample(40.0, 2.0)]).scrapes
    assert scrapes.at.tolist() == [10.0, 40.0]


def test_a_pod_whose_buckets_change_is_kept_apart() -> None:
    parts = Chunk.of(0.0, 60.0, [sample(10.0, 1.0), sample(25.0, 2.0, (1.0, 2.0, 4.0))]).scrapes
    assert [each.histograms["time_to_first_token"].bounds for each in parts] == [(1.0, 2.0), (1.0, 2.0, 4.0)]


def test_a_file_that_was_cut_off_goes_on_where_it_is_whole(tmp_path: Path) -> None:
    path, header = tmp_path / "llama.rec", header_of(0.0, 600.0)
    whole = encode_header(header) + encode(Chunk.of(0.0, 300.0, [sample(15.0, 1.0)]))
    path.write_bytes(whole + encode(Chunk.of(300.0, 600.0, [sample(315.0, 2.0)]))[:-9])
    assert resumed(path) == (header, 300.0)
    assert path.read_bytes() == whole


def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    for content in (gzip.compress(b'["not a header"]') + b"\x1f\x8b", gzip.compress(b"0" * 99)[:-9]):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match="is no recording"):
            resumed(path)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"TIMESTAMP,ContextTokens\n", "not a gzip file"),
        (encode(Chunk.of(0.0, 1.0, [])), "is no recording: namespace"),
        (encode_header(header_of(0.0, 1.0).model_copy(update={"format": 99})), "has format 99"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=said):
        read(path)


def test_a_file_that_unpacks_to_more_than_a_history_is_refused(tmp_path: Path) -> None:
    """5 MB of it would be as much memory as there is."""
    path = tmp_path / "bomb.rec"
    bomb = gzip.compress(b" " * (65 * 2**20))
    for begin in (b"", encode_header(header_of(0.0, 600.0))):
        path.write_bytes(begin + bomb)
        with pytest.raises(RecordingError, match="a chunk is larger than 64 MiB"):
            list(read(path)[1])
    path.write_bytes(gzip.compress(b"[" * 100_000))
    with pytest.raises(RecordingError, match="a chunk is not JSON"):
        read(path)


def test_a_recording_of_more_scrapes_than_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "MOST_SCRAPES", 30)
    chunks = [Chunk.of(0.0, 300.0, [sample(15.0 * tick, tick) for tick in range(20)])] * 2
    with pytest.raises(RecordingError, match="more than 30 scrapes: record fewer days"):
        gather(chunks, Slo(2.0), 0.0)


def rises(*scrapes: ReplicaMetrics) -> tuple[list[float], list[float]]:
    """Seconds and first tokens of each interval, of a pod that was there before the recording."""
    found = gather([Chunk.of(0.0, 600.0, scrapes)], Slo(2.0), 0.0)
    return found.seconds.tolist(), found.increase["ttft_count"].tolist()


def test_a_counter_that_is_a_little_lower_for_one_scrape_is_no_restart() -> None:
    """Taken for one, all requests since the engine's start came within 15 s."""
    served = [sample(0.0, 9000.0), sample(15.0, 8999.0), sample(30.0, 9010.0)]
    assert rises(*served) == ([30.0], [10.0])


def test_of_a_figure_that_only_another_engine_lowers_a_fall_is_no_restart() -> None:
    """Cached tokens may be told as a difference."""
    scrapes = [replace(sample(15.0 * tick, 100.0 + tick), cached_prompt_tokens=50.0 - tick) for tick in range(3)]
    assert rises(*scrapes) == ([15.0, 15.0], [1.0, 1.0])


def test_a_restart_whose_scrape_lacks_a_figure_does_not_count_what_that_was_before() -> None:
    lacking = replace(sample(15.0, 2.0), time_to_first_token=Unknown("NaN"))
    assert rises(sample(0.0, 900.0), lacking, sample(30.0, 5.0)) == ([15.0, 15.0], [0.0, 5.0])
