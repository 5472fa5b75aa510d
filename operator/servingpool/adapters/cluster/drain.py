"""What a pod template says of how its engine ends: the preStop hook, vLLM's drain, and the grace for both.

On SIGTERM vLLM cuts what is running, unless `--shutdown-timeout` is set; then it finishes that, but answers new
requests, which load balancers still send until they know, with HTTP 200 and no token (measured on vLLM 0.32).
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servingpool.decision.observation import Reading, Unknown

Raw = Mapping[str, Any]

DEFAULT_GRACE = 30.0
"""Seconds; what the API server puts where the template names none."""
HOOK_UNCLEAR = Unknown("the preStop hook is not a plain sleep, so its duration is unknown")
ARGUMENTS_UNSEEN = Unknown("the pod template shows no vLLM arguments, so --shutdown-timeout is unknown")
ARGUMENTS_ELSEWHERE = Unknown("--shutdown-timeout may be set by a variable or a file that vLLM's arguments name")

SHELLS = {"sh", "bash", "ash", "dash"}
LOOPS = {"while", "until", "for"}
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
PAUSE = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")
SECONDS = re.compile(r"\d+(?:\.\d+)?")
VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
SHUTDOWN_TIMEOUT = ("--shutdown-timeout", "--shutdown_timeout")
CONFIG_FILE = "--config"


@dataclass(frozen=True, slots=True)
class Drain:
    """How a replica ends, in seconds."""

    grace: float
    """From deletion to SIGKILL; the preStop hook counts towards it."""
    pre_stop: Reading
    """From deletion to SIGTERM: 0 without a hook."""
    shutdown_timeout: Reading
    """What vLLM gives to what is running: 0 without the option."""


def read_drain(pod: Raw) -> Drain:
    """Read a pod's spec, or a template's."""
    containers: Sequence[Raw] = pod.get("containers", ())
    grace = pod.get("terminationGracePeriodSeconds")
    engine = next((each for each in containers if _runs_vllm(each)), containers[0] if containers else {})
    return _shared(
        DEFAULT_GRACE if grace is None else float(grace), _pre_stop(engine.get("lifecycle")), _shutdown_timeout(engine)
    )


@functools.lru_cache(maxsize=1024)
def _shared(grace: float, pre_stop: Reading, shutdown_timeout: Reading) -> Drain:
    """One object for all Deployments that are alike: thousands come from one template."""
    return Drain(grace, pre_stop, shutdown_timeout)


def _pre_stop(lifecycle: Raw | None) -> Reading:
    hook = (lifecycle or {}).get("preStop") or {}
    if not hook:
        return 0.0
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds", 0))
    words = list(_words(hook.get("exec", {}).get("command") or ()))
    if LOOPS.intersection(words):
        return HOOK_UNCLEAR
    for place, word in enumerate(words):
        if _program(word) == "sleep":
            pause = PAUSE.fullmatch(words[place + 1].rstrip(";")) if place + 1 < len(words) else None
            return HOOK_UNCLEAR if pause is None else float(pause[1]) * UNITS[pause[2]]
    return HOOK_UNCLEAR


def _shutdown_timeout(container: Raw) -> Reading:
    literal = {each["name"]: each["value"] for each in container.get("env") or () if "value" in each}
    words = [VARIABLE.sub(lambda found: _value(found, literal), word) for word in _arguments(container)]
    given: Reading | None = None
    for place, word in enumerate(words):
        name, assigned, value = word.partition("=")
        if name in SHUTDOWN_TIMEOUT:  # the last one counts, as in argparse
            value = value if assigned else words[place + 1] if place + 1 < len(words) else ""
            given = float(value) if SECONDS.fullmatch(value) else ARGUMENTS_ELSEWHERE
    if given is not None:
        return given
    if not _runs_vllm(container):
        return ARGUMENTS_UNSEEN
    if any(word.partition("=")[0] == CONFIG_FILE or VARIABLE.search(word) for word in words):
        return ARGUMENTS_ELSEWHERE
    return 0.0


def _runs_vllm(container: Raw) -> bool:
    """Whether its arguments are those of vLLM: by its program, or as the image's own entry point."""
    if any(_program(word) == "vllm" or word.startswith("vllm.entrypoints") for word in _arguments(container)):
        return True
    return not container.get("command") and "vllm" in container.get("image", "").partition("@")[0]


def _arguments(container: Raw) -> Iterator[str]:
    return _words([*(container.get("command") or ()), *(container.get("args") or ())])


def _words(command: Sequence[str]) -> Iterator[str]:
    """The words of a command; of a shell's script, those in it."""
    scripted = bool(command) and _program(command[0]) in SHELLS
    for word in command:
        if scripted and any(character.isspace() for character in word):
            try:
                yield from shlex.split(word, comments=True)
            except ValueError:  # a quote that is not closed
                yield from word.split()
        else:
            yield word


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _value(found: re.Match[str], literal: Mapping[str, str]) -> str:
    return literal.get(found[1] or found[2] or found[3], found[0])
