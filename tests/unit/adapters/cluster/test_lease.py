"""Of several operators one writes, whatever the network does."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from servingpool.adapters.cluster.lease import Election, Terms

from .fake_lease import Network, Server, annotated_amid_a_write, candidate
from .virtual_time import event_loop_policy, now, run  # noqa: F401, a fixture

NEVER = 1e9


async def test_a_crashed_leader_is_replaced_after_the_duration_and_not_before() -> None:
    server = Server()
    await candidate(Network(server), "crashed").attempt()
    heir = candidate(Network(server), "heir")
    taking_over = asyncio.create_task(heir.run())
    await asyncio.sleep(14.9)
    assert not heir.leading
    await asyncio.sleep(2.1)
    assert heir.leading
    assert server.read()["spec"]["leaseTransitions"] == 1
    taking_over.cancel()


async def test_the_clocks_of_other_machines_do_not_matter() -> None:
    server = Server()
    await candidate(Network(server), "leader").attempt()
    assert server.lease is not None
    server.lease["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
    other = candidate(Network(server), "other")
    await other.attempt()
    await asyncio.sleep(10)
    await other.attempt()
    assert not other.leading


async def test_an_operator_that_recreates_a_deleted_lease_leads() -> None:
    """`_taken` is of the Lease before: it says that another holds it, and `run` returns in the moment it leads."""

    server = Server()
    await candidate(Network(server), "leader").attempt()
    heir = candidate(Network(server), "heir")
    running = asyncio.create_task(heir.run())
    await asyncio.sleep(1.0)
    server.lease = None  # kubectl delete lease
    await asyncio.sleep(3.0)
    assert server.read()["spec"]["holderIdentity"] == "heir"
    assert not running.done(), "it leaves, as one whose lease was lost, with the Lease in its name"
    running.cancel()


async def test_a_change_of_the_lease_by_others_costs_no_leadership() -> None:
    """`kubectl annotate lease`, or our own renewal of before, timed out here and done there, between read and write.

    The Lease names us before and after: nobody can have taken over, and by the clock 8 s are left.
    """

    network = Network(Server())
    leader = candidate(network, "leader")
    await leader.attempt()
    await asyncio.sleep(2.0)
    with annotated_amid_a_write(network):
        await leader.attempt()
    assert leader.leading, "what was decided in this tick is thrown away"


async def test_a_conflict_with_a_lease_made_anew_ends_the_lead() -> None:
    """kubectl delete lease between our read and our write; the other creates it anew at once."""

    server = Server()
    network = Network(server)
    leader, heir = candidate(network, "leader"), candidate(Network(server), "heir")
    await leader.attempt()
    replace = network.replace_lease

    async def late(name: Any, held: Any) -> Any:
        server.lease = None
        await heir.attempt()
        return await replace(name, held)

    network.replace_lease = late  # type: ignore[assignment, method-assign]
    await asyncio.sleep(2.0)
    await leader.attempt()
    assert heir.leading
    assert not leader.leading, "the API server has said that the Lease is another, and two lead"


async def test_renewing_keeps_the_time_of_acquisition() -> None:
    server = Server()
    leader = candidate(Network(server), "a")
    await leader.attempt()
    assert server.lease is not None
    server.lease["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z"
    await leader.attempt()
    spec = server.read()["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"]) == ("2026-01-01T00:00:00.000000Z", 0)


async def test_a_leader_that_is_cut_off_stops_writing_by_the_clock_alone() -> None:
    network = Network(Server())
    leader = candidate(network, "a")
    leading = asyncio.create_task(leader.run())
    await asyncio.sleep(1)
    network.delay = lambda: NEVER
    await asyncio.sleep(9.5)
    assert not leader.leading, "while the request still hangs"
    leading.cancel()


async def test_a_leader_that_was_replaced_meanwhile_leaves() -> None:
    server = Server()
    network = Network(server)
    leader, heir = candidate(network, "a"), candidate(Network(server), "heir")
    leading = asyncio.create_task(leader.run())
    await asyncio.sleep(1)
    network.down = True
    inheriting = asyncio.create_task(heir.run())
    await asyncio.sleep(60)
    assert heir.leading
    network.down = False
    await asyncio.wait_for(leading, 3)
    assert not leader.leading
    inheriting.cancel()


def test_a_slow_answer_does_not_shorten_the_wait() -> None:
    # It tells of a renewal that came after the question. Counted from the question, an heir would lead while the
    # leader, cut off a moment after that renewal, still believes that it does.
    async def story() -> None:
        server = Server()
        leader = candidate(Network(server), "leader")
        await leader.attempt()
        delays = iter([4.9])
        heir = candidate(Network(server, lambda: next(delays, 0.0)), "heir")
        first_look = asyncio.create_task(heir.attempt())
        await asyncio.sleep(4.8)
        await leader.attempt()
        await first_look
        await asyncio.sleep(19.0 - now())
        await heir.attempt()
        assert not heir.leading
        await asyncio.sleep(1.0)
        await heir.attempt()
        assert heir.leading

    run(story)


@pytest.mark.parametrize("seed", range(10))
def test_never_two_leaders_whatever_the_network_does(seed: int) -> None:
    chance = random.Random(seed)

    def delay() -> float:
        return chance.choice([0.0, 0.01, 0.5, 3.0, 8.0, NEVER]) if chance.random() < 0.3 else 0.01

    async def story() -> None:
        server = Server()
        alive: dict[str, Election] = {}

        async def live(number: int) -> None:
            for life in range(100):
                name = f"{number}.{life}"
                alive[name] = candidate(Network(server, delay), name)
                await alive[name].run()
                del alive[name]
                await asyncio.sleep(chance.random() * 5)

        tasks = [asyncio.create_task(live(number)) for number in range(3)]
        led = 0
        while now() < 1200:
            await asyncio.sleep(0.5)
            leading = [name for name, election in alive.items() if election.leading]
            assert len(leading) <= 1, leading
            led += len(leading)
        for task in tasks:
            assert not task.done()
            task.cancel()
        assert led > 1000, "somebody leads most of the time"

    run(story)


async def test_a_request_that_times_out_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """S18: the WARNING was empty, for a TimeoutError is true and has no text."""

    class Silent:
        async def read_lease(self, *_: Any) -> dict[str, Any]:
            raise TimeoutError

        async def create_lease(self, *_: Any) -> dict[str, Any]:
            raise AssertionError

        async def replace_lease(self, *_: Any) -> dict[str, Any]:
            raise AssertionError

    election = Election(Silent(), ("ns", "lease"), "me", terms=Terms(), clock=lambda: 0.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await election.run()
    assert caplog.messages[0] == "Cannot renew Lease ns/lease: no answer in time"
