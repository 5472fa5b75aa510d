"""The end of an engine, by its pod template: the preStop hook, vLLM's drain, and the grace for both.

On SIGTERM vLLM cuts what is running, unless `--shutdown-timeout` is set; then it finishes that, but answers new
requests, which load balancers still send until they know, with HTTP 200 and no token (measured on vLLM 0.32).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.cluster import input_limits
from servingpool.adapters.cluster.arguments import VARIABLE, Words, option, program, words, words_of
from servingpool.decision.observation import Reading, Unknown

Raw = Mapping[str, Any]

DEFAULT_GRACE = 30.0
"""Seconds of grace that the API server sets where the template names none."""
HOOK_UNCLEAR = Unknown("the preStop hook is not a plain sleep, so its duration is unknown")
ARGUMENTS_UNSEEN = Unknown("the pod template shows no vLLM arguments, so --shutdown-timeout is unknown")
ARGUMENTS_LONG = Unknown(
    f"the container's arguments are longer than {input_limits.ARGUMENTS} characters and are not read"
)
ARGUMENTS_ELSEWHERE = Unknown("--shutdown-timeout may be set by a variable or a file that vLLM's arguments name")

LOOPS = {"while", "until", "for"}
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
PAUSE = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")
SECONDS = re.compile(r"\d+(?:\.\d+)?")
SHUTDOWN_TIMEOUT = "--shutdown-timeout"
CONFIG_FILE = "--config"


@dataclass(frozen=True, slots=True)
class Drain:
    """How a replica ends, in seconds."""

    grace: float
    """Seconds from deletion to SIGKILL; the preStop hook counts towards them."""
    pre_stop: Reading
    """Seconds from deletion to SIGTERM: 0 without a hook."""
    shutdown_timeout: Reading
    """Seconds that vLLM gives to running requests: 0 without the option."""


def read_drain(pod: Raw, said: Sequence[Words] | None = None) -> Drain:
    """Read a pod's spec, or a template's. `said`: the words of its containers, in order, if they were read already."""
    containers: Sequence[Raw] = pod.get("containers") or ()
    each = list(zip(containers, words_of(containers) if said is None else said, strict=False))
    grace = pod.get("terminationGracePeriodSeconds")
    engine, given = next((one for one in each if _runs_vllm(*one)), each[0] if each else ({}, []))
    return _shared(
        DEFAULT_GRACE if grace is None else float(grace),
        _pre_stop(engine.get("lifecycle")),
        _shutdown_timeout(engine, given),
    )


_shared = functools.lru_cache(maxsize=1024)(Drain)
"""One object for all Deployments that are alike: thousands come from one template."""


def _pre_stop(lifecycle: Raw | None) -> Reading:
    hook = (lifecycle or {}).get("preStop") or {}
    if not hook:
        return 0.0
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds", 0))
    said = words(hook.get("exec", {}))
    if said is None or LOOPS.intersection(said):
        return HOOK_UNCLEAR
    for place, word in enumerate(said):
        if program(word) == "sleep":
            pause = PAUSE.fullmatch(said[place + 1].rstrip(";")) if place + 1 < len(said) else None
            return HOOK_UNCLEAR if pause is None else float(pause[1]) * UNITS[pause[2]]
    return HOOK_UNCLEAR


def _shutdown_timeout(container: Raw, given: Words) -> Reading:
    if given is None:
        return ARGUMENTS_LONG
    timeout = option(given, SHUTDOWN_TIMEOUT)
    if timeout is not None:
        return float(timeout) if SECONDS.fullmatch(timeout) else ARGUMENTS_ELSEWHERE
    if not _runs_vllm(container, given):
        return ARGUMENTS_UNSEEN
    if option(given, CONFIG_FILE) is not None or any(VARIABLE.search(word) for word in given):
        return ARGUMENTS_ELSEWHERE
    return 0.0


def _runs_vllm(container: Raw, given: Words) -> bool:
    """Whether arguments are those of vLLM: by its program, or as the image's own entry point."""
    if any(program(word) == "vllm" or word.startswith("vllm.entrypoints") for word in given or ()):
        return True
    return not container.get("command") and "vllm" in container.get("image", "").partition("@")[0]
