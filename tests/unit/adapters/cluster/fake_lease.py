"""A Lease on an API server, and ways to it, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.kinds import OPERATOR
from servingpool.adapters.cluster.lease import Election, Terms

from .virtual_time import now

LEASE = ("servingpool-system", "servingpool-operator")


TERMS = Terms(duration=15.0, deadline=10.0, retry=2.0)


class Server:
    """The API server's part: one Lease, with its resourceVersion as the fence."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.history: list[str] = []
        """Holders, in the order of their writes."""

    def read(self) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound("there is no Lease")
        return copy.deepcopy(self.lease)

    def write(self, spec: dict[str, Any], version: str | None) -> dict[str, Any]:
        if version != (None if self.lease is None else self.lease["metadata"]["resourceVersion"]):
            raise Conflict("it was changed")
        assert 0 <= spec["leaseTransitions"] < 2**31, "the API server refuses it"
        self.version += 1
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": copy.deepcopy(spec)}
        self.history.append(spec["holderIdentity"])
        return copy.deepcopy(self.lease)


class Network:
    """One candidate's way to the server: `there` and `back` are seconds that a request and its answer take."""

    def __init__(self, server: Server, there: Callable[[], float] = lambda: 0.0) -> None:
        self.server, self.delay, self.down = server, there, False

    async def _ask(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if self.down:
            raise ClusterError("the API server did not answer")
        await asyncio.sleep(self.delay())
        answer = work()
        await asyncio.sleep(self.delay())
        return answer

    async def read_lease(self, lease: tuple[str, str]) -> dict[str, Any]:
        assert lease == LEASE
        return await self._ask(self.server.read)

    async def create_lease(self, _: tuple[str, str], spec: dict[str, Any]) -> dict[str, Any]:
        return await self._ask(lambda: self.server.write(spec, None))

    async def replace_lease(self, _: tuple[str, str], held: dict[str, Any]) -> dict[str, Any]:
        assert not held["spec"]["holderIdentity"] or held["metadata"]["labels"] == dict([OPERATOR])
        return await self._ask(lambda: self.server.write(held["spec"], held["metadata"]["resourceVersion"]))


def candidate(network: Network, name: str) -> Election:
    return Election(network, LEASE, name, terms=TERMS, clock=now)


@contextlib.contextmanager
def annotated_amid_a_write(network: Network) -> Iterator[None]:
    """Somebody writes the Lease, the holder as it was, between our reading and our writing it."""
    server, replace = network.server, network.replace_lease

    async def late(name: tuple[str, str], held: dict[str, Any]) -> dict[str, Any]:
        found = server.read()
        server.write(found["spec"], found["metadata"]["resourceVersion"])
        return await replace(name, held)

    network.replace_lease = late  # type: ignore[assignment, method-assign]
    yield
    network.replace_lease = replace  # type: ignore[method-assign]
