"""The requests that every page is printed after: times in seconds of a clock that starts with the engine.

At `BUSY` three run, one is queued and seven are over, one of them by its client's disconnect. At `AFTER` all are over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

IDLE, BUSY, AFTER = 30.0, 62.0, 120.0
MODEL = "org/model"
MAX_MODEL_LEN = 8192
KV_TOKENS = 20_000
"""Tokens that one rank's KV cache holds."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request; `arrives`, `waits`, `prefill` and `tpot` in seconds, the rest in tokens. `rank` is a DP rank."""

    arrives: float
    waits: float = 0.002
    prefill: float = 0.1
    prompt: int = 512
    cached: int = 0
    output: int
    tpot: float = 0.02
    streaming: bool = True
    rank: int = 0
    aborted: bool = False
    """The client disconnects after `output` tokens."""

    @property
    def starts(self) -> float:
        """Time at which it leaves the queue."""
        return self.arrives + self.waits

    def token_time(self, number: int) -> float:
        """Time of an output token; the first has number 1."""
        return self.starts + self.prefill + (number - 1) * self.tpot

    @property
    def ends(self) -> float:
        """Time of the last token."""
        return self.token_time(self.output)

    def generated(self, now: float) -> int:
        """Output tokens until `now`."""
        return sum(self.token_time(number) <= now for number in range(1, self.output + 1))


REQUESTS = (
    Request(arrives=40.0, output=64),
    Request(arrives=41.0, output=128, cached=256, prefill=0.06),
    Request(arrives=42.0, output=40, prompt=1024, prefill=0.18, streaming=False),
    Request(arrives=43.0, output=120, prompt=128, prefill=0.04, streaming=False, rank=1),
    Request(arrives=44.0, output=1, rank=1),
    Request(arrives=45.0, output=10, aborted=True, rank=1),
    Request(arrives=50.0, waits=1.2, output=80, cached=512, prompt=600, prefill=0.03, rank=1),
    Request(arrives=60.0, output=400),
    Request(arrives=60.1, output=300, streaming=False),
    Request(arrives=60.2, output=200, prompt=2000, prefill=0.3, rank=1),
    Request(arrives=61.0, waits=12.0, output=50),
)


class Kind(Enum):
    """What happens to a request."""

    ARRIVES = "arrives"
    STARTS = "starts"
    TOKEN = "token"  # noqa: S105
    ENDS = "ends"


@dataclass(frozen=True)
class Event:
    """`number` is an output token's, from 1; 0 for the other kinds."""

    time: float
    kind: Kind
    request: Request
    number: int = 0


def events(until: float, requests: Sequence[Request] = REQUESTS) -> Iterator[Event]:
    """What happens until then, in order of time."""
    found = [
        event
        for request in requests
        for event in (
            Event(request.arrives, Kind.ARRIVES, request),
            Event(request.starts, Kind.STARTS, request),
            *(
                Event(request.token_time(number), Kind.TOKEN, request, number)
                for number in range(1, request.output + 1)
            ),
            Event(request.ends, Kind.ENDS, request),
        )
        if event.time <= until
    ]
    return iter(sorted(found, key=lambda event: event.time))


def running(now: float) -> list[Request]:
    """Requests that have left the queue and are not over."""
    return [request for request in REQUESTS if request.starts <= now < request.ends]


def waiting(now: float) -> list[Request]:
    """Requests in the queue."""
    return [request for request in REQUESTS if request.arrives <= now < request.starts]
