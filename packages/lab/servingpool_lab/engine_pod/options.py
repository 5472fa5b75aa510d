"""What the command line says: vLLM's own names where vLLM has one."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from servingpool_lab.emulator.quirks import AS_VLLM, PageQuirks, add_options
from servingpool_simulation.conduct import CONDUCTS
from servingpool_simulation.hardware import (
    BLOCK_TOKENS,
    EngineProfile,
    engine_profile,
    flat_profile,
    profile_names,
)


@dataclass(frozen=True, slots=True)
class Options:
    """One replica and how its process behaves. Seconds."""

    models: tuple[str, ...]
    profile: EngineProfile
    host: str | None
    """None listens on every interface."""
    port: int
    load_seconds: float
    load_jitter: float
    """Share of load_seconds that a start may take shorter or longer."""
    shutdown_timeout: float
    seed: int | None
    quirks: PageQuirks = AS_VLLM

    def draw_load_seconds(self) -> float:
        """How long this start takes."""
        spread = random.Random(self.seed).uniform(-1.0, 1.0) * self.load_jitter  # noqa: S311 - a delay is no secret
        return self.load_seconds * (1.0 + spread)

    @staticmethod
    def parse(arguments: Sequence[str] | None = None) -> Options:
        """From the command line; exits with a usage message where it is wrong."""
        parser = _parser()
        given = parser.parse_args(arguments)
        names = given.served_model_name or ([given.model] if given.model else parser.error("no model is named"))
        try:
            profile = replace(_profile(given), conduct=CONDUCTS[given.engine])
        except ValueError as error:
            parser.error(str(error))
        return Options(
            models=tuple(names),
            profile=profile,
            host=given.host,
            port=given.port,
            load_seconds=given.load_seconds,
            load_jitter=given.load_jitter,
            shutdown_timeout=_shutdown_timeout(given.shutdown_timeout, profile),
            seed=given.seed,
            quirks=PageQuirks.read(given),
        )


def _shutdown_timeout(given: float | None, profile: EngineProfile) -> float:
    if given is not None:
        return given
    return math.inf if profile.conduct.finishes_when_stopped else 0.0


def _profile(given: argparse.Namespace) -> EngineProfile:
    limits = {
        "max_num_seqs": given.max_num_seqs,
        "max_model_len": given.max_model_len,
        "ttft_from_admission": given.ttft_from_admission,
    }
    if given.flat_step is not None:
        return flat_profile(given.flat_step, **limits)
    shipped = engine_profile(given.profile, **limits)
    kv_tokens = BLOCK_TOKENS * given.num_gpu_blocks_override if given.num_gpu_blocks_override else shipped.kv_tokens
    batched = given.max_num_batched_tokens or shipped.max_num_batched_tokens
    return replace(shipped.scaled(given.slower), kv_tokens=kv_tokens, max_num_batched_tokens=batched)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m servingpool_lab.engine_pod", description=__doc__)
    add = parser.add_argument
    # As `vllm serve MODEL`: the command line of a real Deployment works as it is.
    add("serve", nargs="?", choices=["serve"], help="may be left out")
    add("model", nargs="?", help="what would be loaded; the default of the served name")
    add("--served-model-name", nargs="+", metavar="NAME", help="metrics carry the first")
    add("--host", help="default: every interface")
    add("--port", type=int, default=8000)
    add("--max-model-len", type=int, default=32_768)
    add("--max-num-seqs", type=int, default=256)
    add("--max-num-batched-tokens", type=int, help="default: what vLLM takes on this GPU")
    add("--num-gpu-blocks-override", type=int, help=f"KV cache in blocks of {BLOCK_TOKENS} tokens; default: the GPU's")
    add("--shutdown-timeout", type=float, help="seconds for requests in flight after SIGTERM; default: the engine's")
    add("--profile", choices=profile_names(), default="l40s-8b-tp1", help="GPU and model with the step times")
    add("--slower", type=float, default=2.0, help="every step takes so many times as long; saves CPU")
    add("--flat-step", type=float, metavar="SECONDS", help="every step takes so long, whatever the batch; no --profile")
    add("--load-seconds", type=float, default=20.0, help="from start to listening, as weights load")
    add("--load-jitter", type=float, default=0.2, help="share of load-seconds, shorter or longer")
    add("--seed", type=int, help="of the jitter; default: another one at each start")
    add_options(parser)
    return parser
