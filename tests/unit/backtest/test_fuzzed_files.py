"""Files that a person hands to a command: damaged in any way, they are read or refused with a reason."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.engines import shipped
from servingpool.reconcile.config import ConfigError, load_profile
from servingpool.recording.format import Chunk, Reader, RecordingError, decode, decode_header, encode, encode_header

from ..adapters.prometheus.test_rows import ODD  # noqa: TID252, the same values
from ..fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name
from .histories import header_of
from .test_recording import sample

WHOLE = encode_header(header_of(0.0, 600.0)) + encode(
    Chunk.of(0.0, 300.0, [sample(15.0 * tick, 7.0 * tick) for tick in range(4)], [(0.0, 4.0)])
)
CHUNK: dict[str, Any] = json.loads(
    zlib.decompressobj(31).decompress(WHOLE[len(encode_header(header_of(0.0, 600.0))) :])
)
PAGE = (Path(__file__).parents[2] / "fixtures" / "vllm-0.32.0-metrics.txt").read_text()
PROFILE = "timeToFirstTokenFrom: ARRIVAL\nmodelLabel: model_name\nfigures:\n  running: [acme_busy]\n"


@fuzzed(4.0)
@given(at=st.integers(0, len(WHOLE)), put=st.binary(max_size=30), drop=st.integers(0, 40), piece=st.integers(1, 2_000))
def test_a_damaged_recording_is_read_or_refused(at: int, put: bytes, drop: int, piece: int) -> None:
    damaged, reader = WHOLE[:at] + put + WHOLE[at + drop :], Reader()
    with contextlib.suppress(RecordingError):
        found = [one for begin in range(0, len(damaged), piece) for one in reader.feed(damaged[begin : begin + piece])]
        for number, document in enumerate(found):
            (decode if number else decode_header)(document)


def places(raw: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of all fields and elements."""
    each = list(raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ())
    return [one for key, value in each for one in [(*above, key), *places(value, (*above, key))]]


@fuzzed(4.0)
@given(place=st.sampled_from(places(CHUNK)), odd=ODD, drop=st.booleans())
def test_a_chunk_with_another_field_is_read_or_refused(place: tuple[Any, ...], odd: Any, *, drop: bool) -> None:
    document = json.loads(json.dumps(CHUNK))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    if drop:
        del inner[place[-1]]
    with contextlib.suppress(RecordingError):
        decode(document)


@fuzzed(1.0)
@given(at=st.integers(0, len(PAGE)), put=st.text(max_size=60), drop=st.integers(0, 300))
def test_a_damaged_page_is_read_or_refused(at: int, put: str, drop: int) -> None:
    text, profile = PAGE[:at] + put + PAGE[at + drop :], shipped()["vllm"]
    with contextlib.suppress(ValueError):
        samples = page.parse(text)
        page.find(profile, samples)
        page.read(profile, samples)
        page.unreadable(profile, samples)
        page.ambiguous(profile, samples)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile") / "profile.yaml"


@fuzzed(0.5)
@given(
    at=st.integers(0, len(PROFILE)),
    put=st.text(max_size=40)
    | st.sampled_from(("[" * 20_000, "{" * 5_000, "&a [*a]", "- " * 3_000, "9" * 5_000, "!!x ")),
    drop=st.integers(0, 40),
)
def test_a_damaged_profile_is_read_or_refused(file: Path, at: int, put: str, drop: int) -> None:
    file.write_text(PROFILE[:at] + put + PROFILE[at + drop :], encoding="utf-8")
    with contextlib.suppress(ConfigError):
        load_profile(file)
