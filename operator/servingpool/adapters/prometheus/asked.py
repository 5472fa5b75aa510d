"""Queries of the pools of one backend that are read together."""

from __future__ import annotations

from dataclasses import dataclass, field

from servingpool.adapters.prometheus.samples import ReadRequest

Share = tuple[str, tuple[tuple[str, str], ...]]
"""Engine or gateway, and extra labels: the key of pools that are read together."""


@dataclass(slots=True)
class Asked:
    """Figures that pools of one share want together."""

    ttft_bounds: set[float] = field(default_factory=set)
    tpot_bounds: set[float] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)

    def request(self, share: Share, *, gateway: bool = False) -> ReadRequest:
        """The request for these figures."""
        return ReadRequest(
            engine=share[0],
            ttft_bounds=frozenset(self.ttft_bounds),
            tpot_bounds=frozenset(self.tpot_bounds),
            match_labels=share[1],
            gateway=gateway,
            namespaces=frozenset(self.namespaces),
        )

    def add(self, namespace: str, ttft: float | None, tpot: float | None = None) -> None:
        """Add a pool."""
        self.namespaces.add(namespace)
        self.ttft_bounds.update([] if ttft is None else [ttft])
        self.tpot_bounds.update([] if tpot is None else [tpot])
