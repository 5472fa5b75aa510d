"""vLLM's scheduler written down one step at a time, slow and plain: what the closed forms are checked against."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from servingpool_simulation.hardware import BLOCK_TOKENS, EngineProfile


@dataclass
class Job:
    arrival: float
    prompt: int
    output: int
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    first: float = 0.0
    finished: float = 0.0
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


def step_seconds(profile: EngineProfile, step: list[tuple[Job, int]]) -> float:
    dense = profile.dense_table()[sum(chunk for _, chunk in step)]
    seconds = dense + profile.host_overhead
    decoding = [job for job, chunk in step if chunk == 1 and job.generated and job.computed == job.tokens - 1]
    prompts = [(job, chunk) for job, chunk in step if job not in decoding]
    if decoding:
        seconds += profile.decode_base + profile.decode_per_request * len(decoding)
        seconds += profile.decode_per_kv_token * sum(job.computed + 1 for job in decoding)
        half = min(len(decoding), profile.max_num_seqs // 2)
        mean = sum(job.computed + 1 for job in decoding) / len(decoding)
        steeper = (len(decoding) - half) * (profile.decode_per_request + profile.decode_per_kv_token * mean)
        steeper += profile.dense_table()[len(decoding)] - profile.dense_table()[half]
        seconds += (profile.bend - 1) * steeper
    if prompts:
        seconds += profile.prefill_base
        for job, chunk in prompts:
            context = job.computed + chunk / 2
            seconds += chunk * (profile.prefill_per_token + profile.prefill_per_token_context * context)
    return float(seconds)


def run(profile: EngineProfile, jobs: list[Job]) -> None:  # noqa: C901, PLR0912, PLR0915, read top to bottom beside vLLM's scheduler
    """Serves the jobs and writes their times into them."""
    coming, waiting, running = deque(jobs), deque[Job](), list[Job]()
    free, now, scheduled = profile.kv_blocks, 0.0, 0.0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].arrival)
        if not running or not profile.async_scheduling:
            scheduled = now
        while coming and coming[0].arrival <= scheduled:
            waiting.append(coming.popleft())
        budget, step, preempted = profile.max_num_batched_tokens, [], False
        place = 0
        while place < len(running):
            job = running[place]
            chunk = min(job.tokens - job.computed, budget)
            need = blocks_for(job.computed + chunk) - job.blocks
            while need > free and running:
                victim = running.pop()
                free += victim.blocks
                victim.blocks = victim.computed = 0
                victim.preemptions += 1
                waiting.appendleft(victim)
                preempted = True
                if victim is job:
                    break
            if job not in running:
                break
            job.blocks += need
            free -= need
            budget -= chunk
            step.append((job, chunk))
            place += 1
        while waiting and budget and not preempted and len(running) < profile.max_num_seqs:
            job = waiting[0]
            if blocks_for(job.tokens) > free:
                break
            chunk = min(job.tokens, budget)
            job.blocks = blocks_for(chunk)
            free -= job.blocks
            budget -= chunk
            running.append(waiting.popleft())
            step.append((job, chunk))
        scheduled = now
        now += step_seconds(profile, step)
        for job, chunk in step:
            job.computed += chunk
            if job.computed < job.tokens:
                continue
            job.generated += 1
            job.first = job.first or now
            if job.generated == job.output:
                job.finished = now
                free += job.blocks
                running.remove(job)


def random_jobs(seed: int, size: int, rate: float, longest_prompt: int, longest_output: int) -> list[Job]:
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(1 / rate, size)).tolist()
    prompts = random.integers(1, longest_prompt, size).tolist()
    outputs = random.integers(1, longest_output, size).tolist()
    return [Job(*each) for each in zip(arrivals, prompts, outputs, strict=True)]
