"""The step-level model of vLLM V1: the one place where an engine is advanced.

How it goes fast: between two admissions every running request gets exactly one token a step, and the
step grows by a constant (the batch's new KV tokens). Such a stretch is planned as one piece with a
closed form for "how long are k steps" and "how many steps end by t". A plan starts from fixed figures and
is never re-based, so looking at an engine in the middle of it cannot change what happens later.

Scheduling follows vLLM V1: running requests first; at most one prompt is partly computed and it is the
last of the running ones; FCFS admission while token budget, sequences and KV cache allow; a prompt is
admitted only when the whole of it fits into the free blocks; the last admitted is preempted first and is
computed again from the start.

In every function `s` is the state, `q` the table of requests and `row` the engine.
"""

from __future__ import annotations

import math

import numpy as np

from servingpool_simulation import page
from servingpool_simulation.compiled import compiled
from servingpool_simulation.hardware import BLOCK_TOKENS
from servingpool_simulation.page import FIRST_HISTOGRAM, ITERATION, ITL, QUEUE_AT_START, TTFT, WIDTH
from servingpool_simulation.tables import (
    FINISHED,
    NEVER,
    NOBODY,
    RUNS,
    TURNED_AWAY,
    WAITS,
    Records,
    State,
)


@compiled
def observe(s: State, row: int, which: int, value: float, times: int) -> None:
    """Counts a value into a histogram of the page."""
    bucket = 0
    while value > s.bounds[which, bucket]:
        bucket += 1
    start = FIRST_HISTOGRAM + which * WIDTH
    s.page[row, start + bucket] += times
    s.page[row, start + page.SUM] += value * times


@compiled
def refresh(s: State, row: int, at: float) -> None:
    """Sets the gauges of an engine that does so every few seconds; call it before they change at `at`."""
    every, e = s.limits.gauges_every, s.engines[row]
    if every > 0.0 and e.refresh_at < at < np.inf:
        e.refresh_at += every * math.ceil((at - e.refresh_at) / every)
        show(s, row, e.decoding + e.prefilling)


@compiled
def show(s: State, row: int, running: int) -> None:
    """Sets the gauges."""
    s.page[row, page.SHOWN_RUNNING] = running
    s.page[row, page.SHOWN_WAITING] = s.engines[row].queued


@compiled
def steps_time(e: Records, k: int) -> float:
    """Seconds that the first k steps of the engine's plan take."""
    return float(k * e.first_step + e.growth * (0.5 * k * (k - 1)))


@compiled
def steps_by(e: Records, until: float) -> int:
    """How many steps of the plan end by `until`."""
    steps = int(e.steps)
    if until >= e.plan_end:
        return steps
    span = until - e.now
    if span <= 0.0:
        return 0
    half = 0.5 * e.growth
    b = e.first_step - half
    # The stable root of half*k^2 + b*k = span, good for a growth of 0 as well; rounding is put right below.
    k = min(steps - 1, int(2.0 * span / (b + math.sqrt(b * b + 4.0 * half * span))))
    while k > 0 and e.now + steps_time(e, k) > until:
        k -= 1
    while k < steps - 1 and e.now + steps_time(e, k + 1) <= until:
        k += 1
    return k


@compiled
def blocks_for(tokens: int) -> int:
    """KV blocks that hold so many tokens."""
    return (tokens + BLOCK_TOKENS - 1) // BLOCK_TOKENS


@compiled
def blocks_over(s: State, row: int, steps: int) -> int:
    """Further blocks that the decoding requests take in the next `steps` steps."""
    e = s.engines[row]
    blocks = int(e.decoding * (steps // BLOCK_TOKENS))
    for k in range(steps % BLOCK_TOKENS):
        blocks += s.phase[row, (e.tick + k) % BLOCK_TOKENS]
    return blocks


@compiled
def steps_that_fit(s: State, row: int, most: int) -> int:
    """How many steps, at most `most`, the free blocks allow without a preemption."""
    e = s.engines[row]
    free = s.limits.kv_blocks - e.blocks
    cycles = free // e.decoding
    steps = int(cycles * BLOCK_TOKENS)
    free -= cycles * e.decoding
    while steps < most:
        free -= s.phase[row, (e.tick + steps) % BLOCK_TOKENS]
        if free < 0:
            return steps
        steps += 1
    return most


@compiled
def random(e: Records) -> float:
    """A number from 0 to below 1, the engine's own next one (Park and Miller: the same whoever computes it)."""
    e.draw = e.draw * 16_807 % 2_147_483_647
    return float(e.draw / 2_147_483_647.0)


@compiled
def pause(s: State, e: Records) -> None:
    """Lets the pause that is due in the plan lengthen its first step, or ends the plan before it."""
    while e.pause_at < e.now:
        e.pause_at += s.limits.pause_every * (0.5 + random(e))
    if e.pause_at >= e.plan_end:
        return
    if e.pause_at >= e.now + e.first_step:
        e.steps = steps_by(e, e.pause_at)
    else:
        shortest, longest = s.limits.pause_shortest, s.limits.pause_longest
        e.first_step += shortest + (longest - shortest) * random(e)
        e.pause_at += s.limits.pause_every * (0.5 + random(e))
        e.growth = 0.0
        e.steps = 1
    e.plan_end = e.now + steps_time(e, e.steps)


@compiled
def steps_for(s: State, tokens: int) -> int:
    """Steps in which a decoding request gets so many tokens; the last one may give fewer than the others."""
    each = s.limits.tokens_per_step
    return int((tokens + each - 1) // each)


@compiled
def beyond_bend(s: State, row: int) -> float:
    """Decoding requests beyond half of max_num_seqs, times what a step grows faster by there."""
    return float((s.limits.bend - 1.0) * max(0, s.engines[row].decoding - s.limits.max_num_seqs // 2))


@compiled
def observe_steps(s: State, row: int, begin: int, end: int) -> None:
    """Counts the inter-token latencies of steps begin..end-1 of the plan: one for each decoding request."""
    e = s.engines[row]
    first, growth = e.first_step, e.growth
    start = FIRST_HISTOGRAM + ITL * WIDTH
    k = begin
    bucket = 0
    while k < end:
        while first + k * growth > s.bounds[ITL, bucket]:
            bucket += 1
        bound = s.bounds[ITL, bucket]
        upto = end
        if first + (end - 1) * growth > bound:
            upto = min(end, max(k + 1, int((bound - first) / growth)))
            while upto < end and first + upto * growth <= bound:
                upto += 1
            while upto > k + 1 and first + (upto - 1) * growth > bound:
                upto -= 1
        s.page[row, start + bucket] += e.decoding * (upto - k)
        k = upto
    s.page[row, start + page.SUM] += e.decoding * (steps_time(e, end) - steps_time(e, begin))


@compiled
def commit(s: State, row: int, upto: int) -> None:
    """Gives each decoding request its tokens of the plan's steps up to the `upto`-th."""
    e = s.engines[row]
    begin = e.done
    steps = upto - begin
    e.done = upto
    if steps <= 0 or e.decoding == 0:
        return
    e.blocks += blocks_over(s, row, steps)
    every = s.limits.gauges_every_steps
    if every > 0 and (e.tick + steps) // every > e.tick // every:
        show(s, row, e.decoding)
    e.tick += steps
    e.kv += e.decoding * steps
    tokens = e.decoding * s.limits.tokens_per_step
    s.page[row, page.GENERATION_TOKENS] += tokens * steps
    observe_steps(s, row, begin, upto)
    if e.prefilling == 0:
        observe(s, row, ITERATION, float(tokens), steps)


@compiled
def leave_batch(s: State, row: int, place: int) -> None:
    """Takes a decoding request's blocks and tokens out of the books; its place is the caller's business."""
    e = s.engines[row]
    share = s.batch[row, place].share
    e.blocks -= blocks_for(e.tick + share)
    e.kv -= e.tick + share
    s.phase[row, -share % BLOCK_TOKENS] -= 1


@compiled
def join_decoding(s: State, row: int, request: int, tokens: int, left: int) -> None:
    """Puts a request whose prompt is computed behind the decoding ones."""
    e = s.engines[row]
    place = s.batch[row, e.decoding]
    place.request = request
    place.mark = e.tick + steps_for(s, left)
    place.share = tokens - e.tick
    s.phase[row, -place.share % BLOCK_TOKENS] += 1
    e.kv += tokens
    e.decoding += 1
    e.next_finish = min(e.next_finish, place.mark)


@compiled
def preempt_last(s: State, q: Records, row: int) -> None:
    """Sends the last admitted back to the front of the queue, its KV cache lost."""
    e = s.engines[row]
    last = e.decoding + e.prefilling - 1
    place = s.batch[row, last]
    request = q[place.request]
    if e.prefilling > 0:
        e.blocks -= blocks_for(place.mark)
        e.prefilling -= 1
    else:
        # next_finish may now be too early: a plan that ends there finds nobody finished, and looks again.
        steps = steps_for(s, request.output - request.generated) - (place.mark - e.tick)
        request.generated += steps * s.limits.tokens_per_step
        request.last = e.now
        leave_batch(s, row, last)
        e.decoding -= 1
    request.preemptions += 1
    request.status = WAITS
    request.next = e.head
    e.head = place.request
    if e.tail == NOBODY:
        e.tail = place.request
    e.queued += 1
    s.page[row, page.PREEMPTIONS] += 1


@compiled
def cached_tokens(s: State, row: int, request: Records) -> int:
    """Tokens that the prefix cache supplies: whole blocks, and never the last token. Asked once a request."""
    hit = min(int(request.prompt * s.limits.prefix_cache_hit_rate), request.prompt - 1)
    request.cached = hit // BLOCK_TOKENS * BLOCK_TOKENS
    s.page[row, page.PREFIX_QUERIES] += request.prompt
    s.page[row, page.PREFIX_HITS] += request.cached
    return int(request.cached)


@compiled
def admit(s: State, q: Records, row: int, tokens: int, free: int) -> int:
    """Starts waiting requests while the step has room; `tokens` are in it so far. Returns tokens in the step."""
    e = s.engines[row]
    budget = s.limits.max_num_batched_tokens
    while e.head != NOBODY and tokens < budget:
        request = q[e.head]
        number = e.decoding + e.prefilling
        total = request.prompt + request.generated
        if request.received > e.scheduled_at or number >= s.limits.max_num_seqs or blocks_for(total) > free:
            break
        computed = 0
        if math.isnan(request.scheduled):
            request.scheduled = e.scheduled_at
            observe(s, row, QUEUE_AT_START, e.scheduled_at - request.received, 1)
            computed = cached_tokens(s, row, request)
        place = s.batch[row, number]
        place.request = e.head
        place.mark = computed
        place.share = min(total - computed, budget - tokens)
        blocks = blocks_for(computed + place.share)
        e.blocks += blocks
        free -= blocks
        tokens += place.share
        e.prefilling += 1
        request.status = RUNS
        e.head = request.next
        e.queued -= 1
    if e.head == NOBODY:
        e.tail = NOBODY
    return tokens


@compiled
def fill_step(s: State, q: Records, row: int) -> tuple[int, bool]:
    """Decides who runs in the next step. Returns its tokens, and whether somebody was preempted."""
    e = s.engines[row]
    preempted = False
    while e.decoding > 0 and e.blocks + s.phase[row, e.tick % BLOCK_TOKENS] > s.limits.kv_blocks:
        preempt_last(s, q, row)
        preempted = True
    free = s.limits.kv_blocks - e.blocks - s.phase[row, e.tick % BLOCK_TOKENS]
    tokens = int(e.decoding * s.limits.tokens_per_step)
    if e.prefilling > 0:
        place = s.batch[row, e.decoding]
        request = q[place.request]
        chunk = min(request.prompt + request.generated - place.mark, s.limits.max_num_batched_tokens - tokens)
        blocks = blocks_for(place.mark + chunk) - blocks_for(place.mark)
        if blocks > free:
            preempt_last(s, q, row)
            preempted = True
        else:
            place.share = chunk
            e.blocks += blocks
            free -= blocks
            tokens += chunk
    if not preempted:
        tokens = admit(s, q, row, tokens, free)
    return tokens, preempted


@compiled
def step_time(s: State, row: int, tokens: int) -> float:
    """Seconds of the step that `fill_step` filled."""
    e, limits = s.engines[row], s.limits
    seconds = s.dense[tokens] + limits.host_overhead
    if e.decoding > 0:
        seconds += limits.decode_base + limits.decode_per_request * e.decoding
        seconds += limits.decode_per_kv_token * (e.kv + e.decoding)
        if limits.bend > 1.0:
            beyond = beyond_bend(s, row)
            half = min(e.decoding, limits.max_num_seqs // 2)
            each = limits.tokens_per_step
            seconds += (limits.bend - 1.0) * (s.dense[e.decoding * each] - s.dense[half * each])
            per_request = limits.decode_per_request + limits.decode_per_kv_token * (e.kv / e.decoding + 1.0)
            seconds += beyond * per_request
    if e.prefilling > 0:
        seconds += limits.prefill_base
        for k in range(e.decoding, e.decoding + e.prefilling):
            place = s.batch[row, k]
            context = place.mark + 0.5 * place.share
            seconds += place.share * (limits.prefill_per_token + limits.prefill_per_token_context * context)
    return float(seconds * e.slowness)


@compiled
def cut_plan(e: Records, at: float, ahead: int) -> None:
    """Ends the plan with the step that is under way at `at`, or so many steps `ahead` of it.

    A request of that time can join the next one.
    """
    steps = steps_by(e, at)
    if steps < e.steps and e.now + steps_time(e, steps) < at:
        steps += 1
    if at > e.now:
        steps = min(steps + ahead, int(e.steps))
    e.steps = max(steps, e.done, 1)
    e.plan_end = e.now + steps_time(e, e.steps)


@compiled
def plan(s: State, q: Records, row: int, until: float) -> bool:
    """Schedules the next step or stretch of steps. False when there is nothing to run by `until`."""
    e = s.engines[row]
    if e.decoding + e.prefilling == 0:
        if e.head == NOBODY:
            e.plan_end = np.inf
            if s.limits.gauges_every_steps > 0:
                show(s, row, 0)
            return False
        received = q[e.head].received
        # Not at `until` itself: others that come at the same moment belong to the same step.
        if received >= until:
            e.plan_end = received
            return False
        e.now = max(e.now, received)
        e.scheduled_at = e.now
    tokens, preempted = fill_step(s, q, row)
    if e.prefilling > 0 and s.limits.gauges_every_steps > 0:
        show(s, row, e.decoding)
    e.first_step = step_time(s, row, tokens)
    e.growth = 0.0
    e.steps = 1
    e.done = 0
    if e.prefilling == 0 and not preempted:
        e.growth = s.limits.decode_per_kv_token * (e.decoding + beyond_bend(s, row)) * e.slowness
        e.steps = max(1, steps_that_fit(s, row, e.next_finish - e.tick))
    e.plan_end = e.now + steps_time(e, e.steps)
    if s.limits.pause_every > 0.0:
        pause(s, e)
    if e.head != NOBODY and q[e.head].received > e.scheduled_at:
        cut_plan(e, q[e.head].received, s.limits.async_scheduling)
    return True


@compiled
def accepted(s: State, request: Records) -> float:
    """From when the engine itself counts a request's wait."""
    return float(request.handled if s.limits.ttft_from_handle else request.received)


@compiled
def hand_out(q: Records, e: Records, now: float) -> None:
    """Gives the handle of a finished request to the next one without."""
    if e.without_handle != NOBODY:
        q[e.without_handle].handled = now
        e.without_handle = q[e.without_handle].next


@compiled
def finish(s: State, q: Records, row: int, request: Records, now: float) -> None:
    """Writes down a finished request, in its own record and in the histograms."""
    length = request.output
    # The last step gave it what was left of its tokens, and `commit` counted a whole step's.
    rest = length - request.generated
    s.page[row, page.GENERATION_TOKENS] -= steps_for(s, rest) * s.limits.tokens_per_step - rest
    request.status = FINISHED
    request.finished = now
    request.generated = length
    s.engines[row].in_flight -= 1
    hand_out(q, s.engines[row], now)
    received, scheduled, first = request.received, request.scheduled, request.first
    at_limit = request.prompt + length >= s.limits.max_model_len
    s.page[row, page.LENGTH if at_limit else page.STOPPED] += 1
    # vLLM counts 0 for a request of one token.
    observe(s, row, page.TPOT, (now - first) / (length - 1) if length > 1 else 0.0, 1)
    observe(s, row, page.E2E, now - received, 1)
    observe(s, row, page.QUEUE, scheduled - accepted(s, request), 1)
    observe(s, row, page.INFERENCE, now - scheduled, 1)
    observe(s, row, page.PREFILL, first - scheduled, 1)
    observe(s, row, page.DECODE, now - first, 1)
    observe(s, row, page.PROMPT, float(request.prompt), 1)
    observe(s, row, page.GENERATION, float(length), 1)
    observe(s, row, page.EVICTED, float(request.preemptions), 1)
    observe(s, row, page.COMPUTED, float(request.prompt - request.cached), 1)
    observe(s, row, page.TTFT_AT_END, first - received, 1)
    observe(s, row, page.WITH_PREFILL, (now - scheduled) / length, 1)
    if length > 1:
        observe(s, row, page.TPOT_OF_MANY, (now - first) / (length - 1), 1)


@compiled
def sample_after_prompt(s: State, row: int, request: Records, now: float) -> int:
    """The token that the end of a prompt yields: the first, or the next one after a preemption.

    Returns what vLLM adds to the iteration's tokens: prompts count whole, and in the step that ends them.
    """
    s.page[row, page.GENERATION_TOKENS] += 1
    request.generated += 1
    if request.generated > 1:
        observe(s, row, ITL, now - request.last, 1)
        return 1
    request.first = now
    since = request.scheduled if s.limits.ttft_from_admission else accepted(s, request)
    observe(s, row, TTFT, now - since, 1)
    s.page[row, page.FIRST_TOKENS] += 1
    s.page[row, page.PROMPT_TOKENS] += request.prompt
    s.page[row, page.PROMPT_CACHED] += request.cached
    s.page[row, page.PROMPT_COMPUTED] += request.prompt - request.cached
    return int(request.prompt + 1)


@compiled
def retire(s: State, q: Records, row: int, now: float) -> None:
    """Lets the decoding requests go that have all their tokens; the others keep their order."""
    e = s.engines[row]
    kept = 0
    soonest = NEVER
    for k in range(e.decoding):
        place = s.batch[row, k]
        if place.mark <= e.tick:
            leave_batch(s, row, k)
            finish(s, q, row, q[place.request], now)
        else:
            soonest = min(soonest, place.mark)
            to = s.batch[row, kept]
            to.request = place.request
            to.mark = place.mark
            to.share = place.share
            kept += 1
    e.decoding = kept
    e.next_finish = soonest


@compiled
def end_prompts(s: State, q: Records, row: int, begin: int, now: float) -> int:
    """What the step did for the prompts in the places from `begin` on. Returns the iteration's tokens of them."""
    e = s.engines[row]
    end = begin + e.prefilling
    e.prefilling = 0
    tokens = 0
    for k in range(begin, end):
        place = s.batch[row, k]
        number = place.request
        request = q[number]
        computed = place.mark + place.share
        if computed < request.prompt + request.generated:
            partly = s.batch[row, e.decoding]
            partly.request = number
            partly.mark = computed
            e.prefilling = 1
            continue
        tokens += sample_after_prompt(s, row, request, now)
        left = request.output - request.generated
        if left == 0:
            e.blocks -= blocks_for(computed)
            finish(s, q, row, request, now)
        else:
            join_decoding(s, row, number, computed, left)
    return tokens


@compiled
def complete(s: State, q: Records, row: int) -> None:
    """Brings about what the end of a plan brings: tokens, finished requests, computed prompts."""
    e = s.engines[row]
    commit(s, row, e.steps)
    refresh(s, row, e.plan_end)
    if e.prefilling > 0:
        s.page[row, page.PREFILL_SECONDS] += e.plan_end - e.now
        # The last one in was admitted last; a step with none but the rest of a prompt is no batch of new requests.
        if q[s.batch[row, e.decoding + e.prefilling - 1].request].scheduled == e.scheduled_at:
            observe(s, row, page.PREFILL_BATCH, e.plan_end - e.now, 1)
    e.scheduled_at = e.now + steps_time(e, e.steps - 1) if s.limits.async_scheduling > 0 else e.plan_end
    e.now = e.plan_end
    e.steps = 0
    begin = e.decoding
    if begin > 0 and e.next_finish <= e.tick:
        retire(s, q, row, e.now)
    if e.prefilling > 0:
        tokens = begin * s.limits.tokens_per_step + end_prompts(s, q, row, begin, e.now)
        if tokens > 0:
            observe(s, row, ITERATION, float(tokens), 1)


@compiled
def advance(s: State, q: Records, row: int, until: float) -> None:
    """Runs one engine: every plan that ends by `until` has taken effect, and the next is scheduled."""
    e = s.engines[row]
    while e.steps > 0 or plan(s, q, row, until):
        if e.plan_end > until:
            return
        complete(s, q, row)


@compiled
def settle(s: State, q: Records, row: int, until: float) -> None:
    """As `advance`, and the steps of a plan under way are counted: the page shows the engine at `until`."""
    advance(s, q, row, until)
    e = s.engines[row]
    if e.steps > 0:
        commit(s, row, max(e.done, steps_by(e, until)))
    refresh(s, row, until)
    s.page[row, page.RUNNING] = e.decoding + e.prefilling
    s.page[row, page.WAITING] = e.queued
    s.page[row, page.KV_USAGE] = e.blocks / s.limits.kv_blocks


@compiled
def submit(s: State, q: Records, row: int, number: int, at: float) -> None:
    """Hands a request to an engine. Turned away when max_model_len does not hold it and one token."""
    e, request = s.engines[row], q[number]
    request.received = at
    if request.prompt >= s.limits.max_model_len:
        request.status = TURNED_AWAY
        request.finished = at
        s.page[row, page.REJECTED] += 1
        return
    refresh(s, row, at)
    if s.limits.gauges_every_steps > 0 and e.steps > 0:
        commit(s, row, max(e.done, steps_by(e, at)))
    s.page[row, page.ARRIVED] += 1
    s.page[row, page.PROMPT_RECEIVED] += request.prompt
    request.output = min(request.output, s.limits.max_model_len - request.prompt)
    request.status = WAITS
    request.next = NOBODY
    if e.in_flight < s.limits.max_num_seqs:
        request.handled = at
    elif e.without_handle == NOBODY:
        e.without_handle = number
    e.in_flight += 1
    e.queued += 1
    if e.tail != NOBODY:
        q[e.tail].next = number
        e.tail = number
        return
    e.head = number
    e.tail = number
    if e.steps > 1:
        cut_plan(e, at, s.limits.async_scheduling)
    elif e.steps == 0:
        e.plan_end = at
