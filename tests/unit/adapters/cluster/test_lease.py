"""Of several operators one writes, whatever the network does."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.lease import Election, Terms

from .virtual_time import now, run

LEASE = ("servingpool-system", "servingpool-operator")
TERMS = Terms(duration=15.0, deadline=10.0, retry=2.0)
NEVER = 1e9


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
        return await self._ask(lambda: self.server.write(held["spec"], held["metadata"]["resourceVersion"]))


def candidate(network: Network, name: str) -> Election:
    return Election(network, LEASE, name, terms=TERMS, clock=now)


def test_the_first_candidate_leads_and_the_second_waits() -> None:
    async def story() -> None:
        server = Server()
        first, second = candidate(Network(server), "a"), candidate(Network(server), "b")
        await first.attempt()
        await second.attempt()
        assert first.leading
        assert not second.leading
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == "a"
        assert server.lease["spec"]["leaseDurationSeconds"] == 15

    run(story)


def test_a_crashed_leader_is_replaced_after_the_duration_and_not_before() -> None:
    async def story() -> None:
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

    run(story)


def test_the_clocks_of_other_machines_do_not_matter() -> None:
    async def story() -> None:
        server = Server()
        await candidate(Network(server), "leader").attempt()
        assert server.lease is not None
        server.lease["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
        other = candidate(Network(server), "other")
        await other.attempt()
        await asyncio.sleep(10)
        await other.attempt()
        assert not other.leading

    run(story)


def test_a_lease_given_back_is_taken_at_once() -> None:
    async def story() -> None:
        server = Server()
        first, second = candidate(Network(server), "a"), candidate(Network(server), "b")
        await first.attempt()
        await first.release()
        assert not first.leading
        await second.attempt()
        assert second.leading

    run(story)


@pytest.mark.parametrize("asked", [0.25, 0.75, 1.25, 1.75])
def test_an_operator_stopped_while_renewing_gives_the_lease_back(asked: float) -> None:
    """The renewal was done, its answer lost with the cancellation: the next leader waited for all 15 s."""

    async def story() -> None:
        server = Server()
        network = Network(server, lambda: 0.5)
        leader = candidate(network, "a")
        await leader.attempt()
        renewing = asyncio.create_task(leader.attempt())
        await asyncio.sleep(asked)
        renewing.cancel()
        await leader.release()
        assert server.read()["spec"]["holderIdentity"] == ""

    run(story)


def test_a_renewal_that_is_done_while_the_lease_is_given_back_does_not_keep_it() -> None:
    async def story() -> None:
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

    run(story)


def test_an_operator_that_recreates_a_deleted_lease_leads() -> None:
    """`_taken` is of the Lease before: it says that another holds it, and `run` returns in the moment it leads."""

    async def story() -> None:
        server = Server()
        await candidate(Network(server), "leader").attempt()
        heir = candidate(Network(server), "heir")
        running = asyncio.create_task(heir.run())
        await asyncio.sleep(1.0)
        server.lease = None  # kubectl delete lease
        await asyncio.sleep(3.0)
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == "heir"
        assert not running.done(), "it leaves, as one whose lease was lost, with the Lease in its name"
        running.cancel()

    run(story)


@pytest.mark.parametrize("before", ["none", "given back"])
def test_an_operator_stopped_while_acquiring_gives_the_lease_back(before: str) -> None:
    async def story() -> None:
        server = Server()
        if before == "given back":
            await (first := candidate(Network(server), "first")).attempt()
            await first.release()
        delays = iter(
            [0.0, 0.1, 1.0] if before == "none" else [0.0, 0.0, 0.1, 1.0]
        )  # the write's answer takes a second
        stopped = candidate(Network(server, lambda: next(delays, 0.0)), "stopped")
        running = asyncio.create_task(stopped.run())
        await asyncio.sleep(0.5)
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == "stopped"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await stopped.release()
        await asyncio.sleep(5.0)
        heir = candidate(Network(server), "heir")
        await heir.attempt()
        assert heir.leading, "it waits 15 s for a process that is gone"

    run(story)


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


def test_a_change_of_the_lease_by_others_costs_no_leadership() -> None:
    """`kubectl annotate lease`, or our own renewal of before, timed out here and done there, between read and write.

    The Lease names us before and after: nobody can have taken over, and by the clock 8 s are left.
    """

    async def story() -> None:
        network = Network(Server())
        leader = candidate(network, "leader")
        await leader.attempt()
        await asyncio.sleep(2.0)
        with annotated_amid_a_write(network):
            await leader.attempt()
        assert leader.leading, "what was decided in this tick is thrown away"

    run(story)


def test_an_operator_stopped_after_such_a_conflict_gives_the_lease_back() -> None:
    async def story() -> None:
        server = Server()
        network = Network(server)
        leader = candidate(network, "leader")
        await leader.attempt()
        with annotated_amid_a_write(network):
            await leader.attempt()
        await leader.release()
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == ""

    run(story)


def test_a_conflict_with_a_lease_made_anew_ends_the_lead() -> None:
    """kubectl delete lease between our read and our write; the other creates it anew at once."""

    async def story() -> None:
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

    run(story)


def test_giving_back_does_not_hammer() -> None:
    async def story() -> None:
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

    run(story)


def test_giving_back_what_another_has_taken_changes_nothing() -> None:
    async def story() -> None:
        server = Server()
        slow, heir = candidate(Network(server), "slow"), candidate(Network(server), "heir")
        await slow.attempt()
        await heir.attempt()
        await asyncio.sleep(15)
        await heir.attempt()
        await slow.release()
        assert server.read()["spec"]["holderIdentity"] == "heir"

    run(story)


def test_renewing_keeps_the_time_of_acquisition() -> None:
    async def story() -> None:
        server = Server()
        leader = candidate(Network(server), "a")
        await leader.attempt()
        assert server.lease is not None
        server.lease["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z"
        await leader.attempt()
        spec = server.read()["spec"]
        assert (spec["acquireTime"], spec["leaseTransitions"]) == ("2026-01-01T00:00:00.000000Z", 0)

    run(story)


def test_a_failure_shorter_than_the_deadline_costs_no_leadership() -> None:
    async def story() -> None:
        network = Network(Server())
        leader = candidate(network, "a")
        leading = asyncio.create_task(leader.run())
        await asyncio.sleep(1)
        network.down = True
        await asyncio.sleep(7)
        network.down = False
        await asyncio.sleep(30)
        assert leader.leading
        assert not leading.done()
        leading.cancel()

    run(story)


def test_one_request_that_hangs_costs_no_leadership() -> None:
    # A connection that died silently hangs until its time-out; the next request opens another.
    async def story() -> None:
        delays = iter([0.0, 0.0, 0.0, 0.0, NEVER])
        network = Network(Server(), lambda: next(delays, 0.0))
        leader = candidate(network, "a")
        leading = asyncio.create_task(leader.run())
        for _ in range(120):
            await asyncio.sleep(0.5)
            assert leader.leading
        leading.cancel()

    run(story)


def test_a_leader_that_is_cut_off_stops_writing_by_the_clock_alone() -> None:
    async def story() -> None:
        network = Network(Server())
        leader = candidate(network, "a")
        leading = asyncio.create_task(leader.run())
        await asyncio.sleep(1)
        network.delay = lambda: NEVER
        await asyncio.sleep(9.5)
        assert not leader.leading, "while the request still hangs"
        leading.cancel()

    run(story)


def test_a_leader_that_nobody_replaced_goes_on_when_the_api_server_is_back() -> None:
    async def story() -> None:
        network = Network(Server())
        leader = candidate(network, "a")
        leading = asyncio.create_task(leader.run())
        await asyncio.sleep(1)
        network.down = True
        await asyncio.sleep(60)
        assert not leader.leading
        network.down = False
        await asyncio.sleep(2.5)
        assert leader.leading
        assert not leading.done()
        leading.cancel()

    run(story)


def test_a_leader_that_was_replaced_meanwhile_leaves() -> None:
    async def story() -> None:
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

    run(story)


def test_leader_exits_when_another_holds_the_lease() -> None:
    async def story() -> None:
        server = Server()
        leader = candidate(Network(server), "a")
        leading = asyncio.create_task(leader.run())
        await asyncio.sleep(1)
        assert server.lease is not None
        server.write(server.lease["spec"] | {"holderIdentity": "b"}, server.lease["metadata"]["resourceVersion"])
        await asyncio.wait_for(leading, 3)
        assert not leader.leading

    run(story)


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


@pytest.mark.parametrize("terms", [(15, 15, 2), (15, 10, 10), (10, 15, 2), (15, 10, 0)])
def test_terms_that_allow_two_leaders_are_refused(terms: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="0 < retry < deadline < duration"):
        Terms(*terms)
