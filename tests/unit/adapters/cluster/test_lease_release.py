"""An operator that stops gives its Lease back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Conflict

from .fake_lease import Network, Server, annotated_amid_a_write, candidate
from .virtual_time import event_loop_policy, run  # noqa: F401, a fixture


async def test_a_lease_given_back_is_taken_at_once() -> None:
    server = Server()
    first, second = candidate(Network(server), "a"), candidate(Network(server), "b")
    await first.attempt()
    await first.release()
    assert not first.leading
    await second.attempt()
    assert second.leading


@pytest.mark.parametrize("asked", [0.25, 0.75, 1.25, 1.75])
async def test_an_operator_stopped_while_renewing_gives_the_lease_back(asked: float) -> None:
    """The renewal was done, its answer lost with the cancellation: the next leader waited for all 15 s."""

    server = Server()
    network = Network(server, lambda: 0.5)
    leader = candidate(network, "a")
    await leader.attempt()
    renewing = asyncio.create_task(leader.attempt())
    await asyncio.sleep(asked)
    renewing.cancel()
    await leader.release()
    assert server.read()["spec"]["holderIdentity"] == ""


async def test_a_renewal_that_is_done_while_the_lease_is_given_back_does_not_keep_it() -> None:
    server = Server()
    network = Network(server)
    leader = candidate(network, "a")
    await leader.attempt()
    late = server.read()
    network.delay = lambda: 0.5
    giving_back = asyncio.create_task(leader.release())
    await asyncio.sleep(0.75)
    server.write(late["spec"], late["metadata"]["resourceVersion"])
    await giving_back
    assert server.read()["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("before", ["none", "given back"])
async def test_an_operator_stopped_while_acquiring_gives_the_lease_back(before: str) -> None:
    server = Server()
    if before == "given back":
        await (first := candidate(Network(server), "first")).attempt()
        await first.release()
    delays = iter([0.0, 0.1, 1.0] if before == "none" else [0.0, 0.0, 0.1, 1.0])  # the write's answer takes a second
    stopped = candidate(Network(server, lambda: next(delays, 0.0)), "stopped")
    running = asyncio.create_task(stopped.run())
    await asyncio.sleep(0.5)
    assert server.read()["spec"]["holderIdentity"] == "stopped"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await stopped.release()
    await asyncio.sleep(5.0)
    heir = candidate(Network(server), "heir")
    await heir.attempt()
    assert heir.leading, "it waits 15 s for a process that is gone"


async def test_an_operator_stopped_after_such_a_conflict_gives_the_lease_back() -> None:
    server = Server()
    network = Network(server)
    leader = candidate(network, "leader")
    await leader.attempt()
    with annotated_amid_a_write(network):
        await leader.attempt()
    await leader.release()
    assert server.read()["spec"]["holderIdentity"] == ""


async def test_giving_back_does_not_hammer() -> None:
    server = Server()
    network = Network(server, lambda: 0.001)
    leader = candidate(network, "leader")
    await leader.attempt()
    asked = 0

    async def refused(name: Any, held: Any) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.002)
        raise Conflict("422, a webhook that says no")

    network.replace_lease = refused  # type: ignore[assignment, method-assign]
    await leader.release()
    assert asked < 10, asked


async def test_giving_back_what_another_has_taken_changes_nothing() -> None:
    server = Server()
    slow, heir = candidate(Network(server), "slow"), candidate(Network(server), "heir")
    await slow.attempt()
    await heir.attempt()
    await asyncio.sleep(15)
    await heir.attempt()
    await slow.release()
    assert server.read()["spec"]["holderIdentity"] == "heir"
