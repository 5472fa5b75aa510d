from __future__ import annotations

import pytest

from servingpool_simulation.hardware import engine_profile, profile_names


def test_every_shipped_pair_makes_a_profile() -> None:
    assert len(profile_names()) == 10
    profiles = {name: engine_profile(name) for name in profile_names()}
    assert profiles["h100-70b-tp8"].gpus == 8
    assert profiles["a100-8b-tp1"].max_num_batched_tokens == 8192
    assert profiles["l40s-8b-tp1"].max_num_batched_tokens == 2048


def test_the_dense_table_is_linear_between_its_points_and_beyond() -> None:
    table = engine_profile("h100-8b-tp1", max_num_batched_tokens=16_384).dense_table() * 1e3
    assert table[[1, 8, 8192]].tolist() == pytest.approx([6.078, 6.27, 177.787])
    assert table[12] == pytest.approx((6.27 + 6.137) / 2)
    assert table[16_384] == pytest.approx(177.787 + 2 * (177.787 - 82.192))


def test_a_slower_twin_takes_longer_in_every_part() -> None:
    profile = engine_profile("a100-70b-tp4")
    slower = profile.scaled(1.1)
    assert slower.dense_table() == pytest.approx(profile.dense_table() * 1.1)
    assert slower.host_overhead == pytest.approx(0.000715)
    assert slower.kv_tokens == profile.kv_tokens
