"""A prefill and a decode engine that ran on an H200 with a slow transfer between them, and what the core makes of it."""

from __future__ import annotations

import pytest
import real_gpu_pair
from real_gpu import Record, known, load
from stated import STAMP


@pytest.fixture(scope="module")
def record() -> Record:
    return load(real_gpu_pair.RECORD)


def test_a_wait_for_the_kv_cache_is_read_as_the_clients_met_it(record: Record) -> None:
    _, (prefill, decode), pool = real_gpu_pair.decisions(record)[-1]
    assert known(pool.figures.attainment_now) == pytest.approx(
        real_gpu_pair.measured(record).attained(real_gpu_pair.TPOT), abs=0.03
    )
    assert known(prefill.figures.attainment_now) == 1.0
    assert known(decode.figures.attainment_now) < 0.2


def test_it_is_the_decode_engines_that_are_asked_for(record: Record) -> None:
    most = [0, 0]
    for _, each, _ in real_gpu_pair.decisions(record):
        most = [max(before, one.replicas) for before, one in zip(most, each, strict=True)]
    assert most[0] == 1
    assert most[1] > 1


def test_the_page_is_that_of_both_records(record: Record) -> None:
    assert STAMP.sub("", real_gpu_pair.PAGE.read_text()) == real_gpu_pair.page(load(), record)
