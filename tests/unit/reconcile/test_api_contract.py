"""The fake cluster's half of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from .api_contract import ApiContract, Owner
from .replicas_field import ReplicasField


class FakeObject:
    """A `ReplicasField` that does not exist at first."""

    def __init__(self) -> None:
        self.field: ReplicasField | None = None

    @property
    def made(self) -> ReplicasField:
        assert self.field is not None
        return self.field

    def create(self, replicas: int | None, by: str) -> None:
        self.field = ReplicasField(replicas, by, 0.0)

    def apply(self, replicas: int | None, by: str, *, force: bool = False) -> None:
        if self.field is None:
            self.field = ReplicasField(replicas, by, 0.0, applied=True)
        else:
            self.field.apply(replicas, by, 0.0, force=force)

    def update(self, replicas: int, by: str) -> None:
        self.made.update(replicas, by, 0.0)

    def scale(self, replicas: int, by: str) -> None:
        self.made.scale(replicas, by, 0.0)

    def found(self) -> tuple[int, set[Owner]]:
        owners = {(one["manager"], one["operation"], one.get("subresource")) for one in self.made.managed_fields()}
        return self.made.replicas, owners

    def scale_spec(self) -> dict[str, Any]:
        return dict(self.made.scale_spec())


class TestFakeCluster(ApiContract):
    @pytest.fixture
    def thing(self) -> FakeObject:
        return FakeObject()
