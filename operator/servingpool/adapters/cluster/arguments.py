"""A container's command line: its words, its options, and how many requests its engine runs at a time."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from servingpool.adapters.cluster import input_limits

Raw = Mapping[str, Any]

SHELLS = {"sh", "bash", "ash", "dash"}
VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
BATCH_LIMITS = ("--max-num-seqs", "--max-running-requests", "--max-batch-size")
"""Requests at a time of vLLM and NIM; SGLang; LMDeploy, TGI and TensorRT-LLM."""
OF_LLAMA = ("--parallel", "-np")
"""Options of llama.cpp. Other programs have such options too, so the container must name it."""
OF_OLLAMA = "OLLAMA_NUM_PARALLEL"
"""Variable of Ollama; version 0.17 runs one request of a model at a time where it is not set."""
RANKS = ("--data-parallel-size", "-dp", "--dp", "--dp-size")
"""Options with which each rank has the limit, and nobody says how many ranks a pod has."""


Words = list[str] | None
"""Words of a command line; None where they are longer than anyone writes. Reading megabytes would stop the operator for
all."""


def words_of(containers: Iterable[Raw]) -> list[Words]:
    """The words of each container's command and arguments, with the variables that its template gives literally."""
    left = input_limits.ARGUMENTS
    found: list[Words] = []
    for container in containers:
        given = words(container, left)
        left -= 0 if given is None else sum(map(len, given))
        found.append(given)
    return found


def words(container: Raw, most: int = input_limits.ARGUMENTS) -> Words:
    """Words of a container's command line; None if they have more than `most` characters."""
    literal = {each["name"]: str(each["value"]) for each in container.get("env") or () if "value" in each}
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if _scripted(command) and sum(map(len, command)) > most:
        return None
    found: list[str] = []
    for word in _split(command):
        found.append(_filled(word, literal))
        most -= len(found[-1]) + 1
        if most < 0:
            return None
    return found


def _filled(word: str, literal: Mapping[str, str]) -> str:
    """A word with its variables, cut where it is longer than an option or a number may be."""
    parts: list[str] = []
    left, last = input_limits.WORD, 0
    for found in VARIABLE.finditer(word, 0, left):
        value = literal.get(found[1] or found[2] or found[3], found[0])
        parts += [word[last : found.start()], value[:left]]
        left, last = left - len(parts[-2]) - len(parts[-1]), found.end()
        if left <= 0:
            break
    return "".join([*parts, word[last : last + max(0, left)]])


def option(given: Sequence[str], *names: str) -> str | None:
    """Value of an option, from `--name=value` or `--name value`; None where not given. The last one counts."""
    found = None
    for place, word in enumerate(given):
        name, assigned, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name in names:
            found = value if assigned else given[place + 1] if place + 1 < len(given) else ""
    return found


def batch_limit(containers: Sequence[Raw], said: Sequence[Words] | None = None) -> float:
    """Requests that a pod runs at a time at most; infinite where no container's arguments tell.

    `said`: the words of each, if they were read already.
    """
    for container, given in zip(containers, words_of(containers) if said is None else said, strict=True):
        if given is None:
            return math.inf
        if "ollama" in program(container.get("image", "")) or "ollama" in map(program, given):
            return _of_ollama(container)
        llama = any("llama" in word for word in (container.get("image", ""), *given))
        limit = option(given, *BATCH_LIMITS, *(OF_LLAMA if llama else ()))
        if limit is not None and limit.isdecimal() and float(limit) >= 1.0 and option(given, *RANKS) is None:
            return float(limit)
    return math.inf


def _of_ollama(container: Raw) -> float:
    """Requests of a model at a time; infinite where the template does not show the variable's value."""
    otherwise = None if container.get("envFrom") else "1"
    limit = next((each.get("value") for each in container.get("env") or () if each["name"] == OF_OLLAMA), otherwise)
    return float(limit) if limit and limit.isdecimal() and float(limit) >= 1.0 else math.inf


def program(word: str) -> str:
    """A program's name without its folder."""
    return word.rpartition("/")[2]


def _scripted(command: Sequence[str]) -> bool:
    return bool(command) and program(command[0]) in SHELLS


def _split(command: Sequence[str]) -> Iterator[str]:
    """Words of a command; of a shell's script, the words in it."""
    scripted = _scripted(command)
    for word in command:
        if scripted and any(character.isspace() for character in word):
            try:
                yield from shlex.split(word, comments=True)
            except ValueError:  # a quote that is not closed
                yield from word.split()
        else:
            yield word
