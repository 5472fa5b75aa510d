"""`python -m servingpool_lab.emulator`: what `servingpool lab` starts."""

from __future__ import annotations

import argparse
import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from servingpool.decision.pool import Pool, Slo
from servingpool_lab.emulator.fleet import EmulatedFleet
from servingpool_lab.emulator.quirks import PageQuirks, add_options
from servingpool_lab.emulator.replay import replay
from servingpool_lab.emulator.server import serve
from servingpool_lab.emulator.static import best_static
from servingpool_lab.emulator.world import World
from servingpool_simulation.conduct import CONDUCTS
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.traces import Trace, azure2023_code, azure2023_conv

log = logging.getLogger(__name__)

TRACES = {"conv": azure2023_conv, "code": azure2023_code}


def main() -> None:
    """Parse, compose, run."""
    options = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    trace: Trace = TRACES[options.trace]()
    profile = engine_profile(
        options.profile, max_num_seqs=options.max_num_seqs, ttft_from_admission=options.ttft_from_admission
    )
    profile = replace(profile, conduct=CONDUCTS[options.engine])
    slo = Slo(options.ttft, options.tpot, options.attainment)
    replay(trace, 0.0, options.start_at)  # refuses an offset beyond the trace now, not when the doors open
    part = trace.between(options.start_at, options.start_at + options.seconds) if options.seconds else trace
    # The first simulation also compiles the engine model, before anybody waits for a page.
    static = best_static(part, profile, Pool(slo, 1, options.max))
    log.info("best static fleet in hindsight: %s", static)
    world = World(
        EmulatedFleet(profile, slo),
        options.model,
        lambda begin: replay(trace, begin, options.start_at),
        open_with=options.open_with,
        best_static=static,
        quirks=PageQuirks.read(options),
    )
    asyncio.run(
        serve(
            world,
            kubeconfig=options.kubeconfig,
            namespace=options.namespace,
            selector=options.selector,
            port=options.port,
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m servingpool_lab.emulator", description=__doc__)
    add = parser.add_argument
    add("--kubeconfig", type=Path, required=True, help="may list, watch and delete the namespace's pods")
    add("--namespace", default="default")
    add("--selector", required=True, help="labels of the pods to answer for, such as app=llama")
    add("--port", type=int, required=True, help="on loopback")
    add("--model", required=True, help="served model name")
    add("--trace", choices=TRACES, default="conv")
    add("--profile", default="a100-70b-tp4", help="GPU and model whose step times are used")
    add("--max-num-seqs", type=int, default=256)
    add("--ttft", type=float, help="bound of the SLO, seconds")
    add("--tpot", type=float, help="bound of the SLO, seconds")
    add("--attainment", type=float, default=0.95, help="share of requests")
    add("--start-at", type=float, default=0.0, help="seconds into the trace")
    add("--seconds", type=float, help="length of the run, for the best static fleet; default: the whole trace")
    add("--open-with", type=int, default=1, help="requests begin when so many replicas are ready")
    add("--max", type=int, default=8, help="largest of the static fleets to compare with")
    add_options(parser)
    return parser


if __name__ == "__main__":
    main()
