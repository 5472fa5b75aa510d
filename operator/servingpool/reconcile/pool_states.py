"""The states of all pools, and their specs as parsed last."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from servingpool.adapters.cluster.objects import Key, Raw
from servingpool.api.serving_pool import Metadata, ServingPool, problems
from servingpool.api.status import Status
from servingpool.reconcile.state import PoolState


class PoolStates(dict[Key, PoolState]):
    """The states of all pools by namespace and name, and their specs as parsed last."""

    def __init__(self, pools: Mapping[Key, Raw]) -> None:
        """`pools` are those that exist, as the watches show them."""
        super().__init__()
        self._pools = pools
        self._parsed: dict[Key, tuple[str, ServingPool | str]] = {}
        """By resourceVersion, the pool or what is wrong with it: most do not change between two ticks."""

    def parse(self, key: Key, raw: Raw) -> ServingPool | str:
        """The pool, or what is wrong with its spec."""
        version = raw["metadata"].get("resourceVersion", "")
        held = self._parsed.get(key)
        if held is not None and held[0] == version:
            return held[1]
        try:
            pool: ServingPool | str = ServingPool.read(raw)
        except ValidationError as error:
            pool = problems(error)
        self._parsed[key] = (version, pool)
        return pool

    def keep(self, pool: ServingPool) -> None:
        """Begin a state for a pool, or a model, not seen before."""
        state = self.get(pool.key)
        if state is None or not state.is_of(pool):
            state = self[pool.key] = PoolState.found(pool)
        if pool.spec.several:
            # What Prometheus has of the past does not tell which target a pod was of, and so not how fast each is.
            state.backfill_ended()

    def of_refused(self, raw: Raw) -> tuple[Metadata, PoolState]:
        """The state of a pool for which nothing can be decided, perhaps not even its spec be read."""
        meta = Metadata.read(raw["metadata"])
        state = self.get(meta.key)
        if state is None or state.uid != meta.uid:
            state = self[meta.key] = PoolState.of_status(meta, "", Status.found(raw.get("status")))
        state.refused()
        return meta, state

    def exists(self, meta: Metadata) -> bool:
        """Whether the pool still exists, changed or not."""
        raw = self._pools.get(meta.key)
        return raw is not None and raw["metadata"]["uid"] == meta.uid

    def unchanged(self, meta: Metadata) -> bool:
        """Whether the pool exists and says what was decided on: a person may have paused it since."""
        generation = self._pools[meta.key]["metadata"].get("generation") if self.exists(meta) else None
        return meta.key in self and generation == meta.generation

    def forget(self) -> None:
        """Keep only what is of pools that exist."""
        for key in self.keys() - self._pools.keys():
            del self[key]
        for key in self._parsed.keys() - self._pools.keys():
            del self._parsed[key]
