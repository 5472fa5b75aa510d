"""What a lab runs: a trace, a fleet for it, and an objective at which the fleet has to move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servingpool.api.spec import Mode
from servingpool.decision.pool import Slo


@dataclass(frozen=True, slots=True)
class Workload:
    """A model served under a trace. The hardware and the bounds are those of the simulator's cases."""

    trace: str
    """Name of the trace, as the emulator knows it."""
    title: str
    """For people."""
    name: str
    """Of the Deployment and of the ServingPool."""
    model: str
    """Served model name."""
    hardware: str
    profile: str
    """Of `servingpool_simulation.hardware`."""
    gpu_product: str
    gpus_per_replica: int
    slo: Slo
    expect: str
    """What its traffic asks of the fleet, for people."""
    initial: int
    """Replicas at the start."""
    maximum: int
    start_at: float
    """Default offset into the trace, in seconds: where the load soon changes."""
    duration: float
    """Of the trace, in seconds."""


WORKLOADS: Mapping[str, Workload] = {
    workload.trace: workload
    for workload in (
        Workload(
            trace="conv",
            title="Azure 2023 conversation trace",
            name="llama-70b",
            model="llama-3.1-70b",
            hardware="A100 80GB, tensor parallel 4",
            profile="a100-70b-tp4",
            gpu_product="NVIDIA-A100-SXM4-80GB",
            gpus_per_replica=4,
            slo=Slo(time_to_first_token=2.0, time_per_output_token=0.15, attainment=0.95),
            expect="2 to 4 replicas are needed over the hour, and soon more than the 2 of the start",
            initial=2,
            maximum=8,
            # Two replicas are too few from here on, and the hour's peak comes 15 minutes later.
            start_at=600.0,
            duration=3501.0,
        ),
        Workload(
            trace="code",
            title="Azure 2023 code trace",
            name="llama-70b",
            model="llama-3.1-70b",
            hardware="H100, tensor parallel 4",
            profile="h100-70b-tp4",
            gpu_product="NVIDIA-H100-80GB-HBM3",
            gpus_per_replica=4,
            slo=Slo(time_to_first_token=2.0, time_per_output_token=0.1, attainment=0.95),
            expect="minutes of silence, then bursts that take about 10 replicas",
            initial=4,
            maximum=16,
            start_at=0.0,
            duration=3435.0,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload and how it is run."""

    workload: Workload
    load_seconds: float = 60.0
    """From the start of a replica's container to Ready; up to a tenth more is added at random."""
    start_at: float = 0.0
    """Seconds into the trace."""
    minutes: float | None = None
    """Length of the run from the first request on; None for until it is stopped."""
    mode: Mode = Mode.AUTO
    namespace: str = "default"

    def __post_init__(self) -> None:
        if self.load_seconds < 0:
            raise ValueError(f"load-seconds must be 0 or more, got {self.load_seconds:g}")
        if self.minutes is not None and self.minutes <= 0:
            raise ValueError(f"minutes must be above 0, got {self.minutes:g}")
        if not 0 <= self.start_at < self.workload.duration:
            raise ValueError(
                f"start-at must be 0 to below {self.workload.duration:.0f} s, the trace's length, "
                f"got {self.start_at:g} s"
            )

    @property
    def load_jitter(self) -> float:
        """Seconds that a replica may take longer."""
        return self.load_seconds / 10
