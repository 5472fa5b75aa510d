from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from servingpool_simulation import traces
from servingpool_simulation.traces import TraceError, load_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_the_shipped_traces_are_the_published_ones() -> None:
    conv, code = traces.azure2023_conv(), traces.azure2023_code()
    assert (len(conv), len(code)) == (19_366, 8_819)
    assert (conv.prompt.mean(), conv.output.mean()) == pytest.approx((1154.7, 211.1), abs=0.05)
    assert (code.prompt.mean(), code.output.mean()) == pytest.approx((2047.8, 27.9), abs=0.05)
    for trace in (conv, code):
        assert trace.arrival[0] == 0
        assert (np.diff(trace.arrival) >= 0).all()
        assert trace.duration == trace.arrival[-1]


def test_a_trace_in_azures_own_format_loads(tmp_path: Path) -> None:
    lines = "2023-11-16 18:15:47.1805900,396,109\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    trace = load_trace(written(tmp_path, HEADER + lines))
    assert trace.name == "mine"
    assert trace.arrival.tolist() == pytest.approx([0.0, 0.5], abs=1e-6)
    assert trace.prompt.tolist() == [374, 396]
    assert trace.output.tolist() == [44, 109]


def test_seconds_and_gzip_load_as_well(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "100.5,10,1\n102,20,2\n").encode()))
    trace = load_trace(path)
    assert (trace.name, trace.arrival.tolist(), trace.duration) == ("mine", [0.0, 1.5], 1.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must name the columns TIMESTAMP, ContextTokens, GeneratedTokens, got nothing"),
        (
            "TIMESTAMP,ContextTokens,Tokens\n1,2,3\n",
            "must name the columns TIMESTAMP, ContextTokens, GeneratedTokens, got TIMESTAMP, ContextTokens",
        ),
        (HEADER, "has no requests"),
        (HEADER + "1,10,10\nsoon,10,10\n", "line 3: TIMESTAMP is 'soon'; write seconds, or a date"),
        (HEADER + "nan,10,10\n", "line 2: TIMESTAMP is 'nan'"),
        (HEADER + "1,0,10\n", "line 2: ContextTokens is '0'; .* 1 or more"),
        (HEADER + "1,10,-4\n", "line 2: GeneratedTokens is '-4'"),
        (HEADER + "1,10\n", "line 2: GeneratedTokens is ''"),
        (HEADER + "1,10,2.5\n", "line 2: GeneratedTokens is '2.5'"),
    ],
)
def test_a_wrong_trace_is_refused_with_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        load_trace(written(tmp_path, text))


def test_a_missing_or_broken_file_is_a_trace_error_too(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read .*nowhere\.csv"):
        load_trace(tmp_path / "nowhere.csv")
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(b"this is no gzip")
    with pytest.raises(TraceError, match="cannot read"):
        load_trace(broken)


def test_the_ramp_has_its_steps() -> None:
    ramp = traces.llmd_ramp(stage=600.0, seed=3)
    counts = np.histogram(ramp.arrival, bins=7, range=(0, 4200))[0]
    assert (counts / 600).tolist() == pytest.approx([2, 4, 6, 8, 10, 4, 1], abs=0.4)
    assert ramp.arrival.tolist() == traces.llmd_ramp(stage=600.0, seed=3).arrival.tolist()
    assert len(traces.llmd_ramp(seed=4)) != len(ramp)


def test_the_reconstructed_day_follows_curve_and_lengths() -> None:
    day = traces.azure2024_conv_reconstructed(day=1, scale=0.02, seed=1)
    assert "reconstructed" in day.name
    assert 0.5 < len(day) / 86_400 < 1.6  # 45/s mean, 80/s peak, scaled by 0.02
    assert day.prompt.mean() == pytest.approx(1611, rel=0.02)
    assert day.output.mean() == pytest.approx(102.6, rel=0.02)
    by_hour = np.histogram(day.arrival, bins=24)[0]
    assert by_hour.max() > 1.3 * by_hour.min()
    with pytest.raises(ValueError, match="7 days; got day 6 and 2 days"):
        traces.azure2024_conv_reconstructed(day=6, days=2)


def test_parts_of_traces_join_to_the_whole() -> None:
    trace = traces.poisson("p", [3.0], 100.0, prompt=5, output=6)
    joined = trace.between(0.0, 40.0).then(trace.between(40.0, 100.0))
    assert joined.arrival.tolist() == pytest.approx(trace.arrival.tolist())
    assert joined.duration == 100.0
