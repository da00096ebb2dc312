"""The replica model in plain Python, iteration by iteration, written from the rules and not from the kernels."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np


def ceil_div(a, b):
    return -(-a // b)


@dataclass
class Job:
    number: int
    arrival: float
    blocks: list
    prompt: int
    output: int
    made: int = 0
    computed: int = 0
    target: int = 0
    chunk: int = 0
    extra: int = 0
    cached: int | None = None
    first: float | None = None
    finish: float | None = None


@dataclass
class Replica:
    profile: object
    capacity: int
    block_tokens: int
    shared: set  # full blocks that occur more than once in the trace
    speed: float = 1.0
    refs: Counter = field(default_factory=Counter)
    lru: OrderedDict = field(default_factory=OrderedDict)  # first = next to be evicted
    extra: int = 0
    running: list = field(default_factory=list)
    queue: deque = field(default_factory=deque)
    now: float = 0.0
    end: float | None = None
    preemptions: int = 0
    most_blocks: int = 0

    def room(self):
        return self.capacity - sum(1 for n in self.refs.values() if n) - self.extra

    def settle(self):
        used = sum(1 for n in self.refs.values() if n) + self.extra
        while used + len(self.lru) > self.capacity:
            self.lru.popitem(last=False)
        self.most_blocks = max(self.most_blocks, used + len(self.lru))

    def present(self, block):
        return self.refs[block] > 0 or block in self.lru

    def admit(self, job):
        extra = ceil_div(job.target, self.block_tokens) - len(job.blocks)
        need = extra + sum(1 for b in job.blocks if self.refs[b] == 0)
        if need > self.room():
            return None
        run = 0
        for b in job.blocks:
            if not (b in self.shared and self.present(b)):
                break
            run += 1
        for position, b in enumerate(job.blocks):
            if position >= run and not self.present(b):  # a missing block may push out a free one
                used = sum(1 for n in self.refs.values() if n) + self.extra + len(self.lru)
                later = set(job.blocks[:run])
                if used >= self.capacity:
                    victim = next(v for v in self.lru if v not in later)
                    del self.lru[victim]
            self.lru.pop(b, None)
            self.refs[b] += 1
        self.extra += extra
        job.extra = extra
        self.settle()
        return min(run, (job.prompt - 1) // self.block_tokens) * self.block_tokens

    def release(self, job, preempted):
        for position in range(len(job.blocks) - 1, -1, -1):
            b = job.blocks[position]
            self.refs[b] -= 1
            if self.refs[b]:
                continue
            if preempted and (position + 1) * self.block_tokens > job.computed:
                continue
            self.lru[b] = True
        self.extra -= job.extra
        job.extra = 0

    def start(self):
        preempted = False
        at = 0
        while at < len(self.running):
            job = self.running[at]
            if job.computed == job.target:
                need = ceil_div(job.prompt + job.made, self.block_tokens) - len(job.blocks) - job.extra
                while need > self.room() and at < len(self.running):
                    victim = self.running.pop()
                    self.release(victim, True)
                    victim.computed = victim.chunk = 0
                    victim.target = victim.prompt + victim.made
                    self.queue.appendleft(victim)
                    self.preemptions += 1
                    preempted = True
                if at < len(self.running) and need > 0:
                    self.extra += need
                    job.extra += need
                    self.settle()
            at += 1
        budget = self.profile.max_batched_tokens
        decodes = context = 0
        for job in self.running:
            job.chunk = min(job.target - job.computed, budget)
            budget -= job.chunk
            if job.computed == job.target:
                decodes += 1
                context += job.prompt + job.made
        while self.queue and not preempted and budget > 0 and len(self.running) < self.profile.max_sequences:
            job = self.queue[0]
            found = self.admit(job)
            if found is None:
                break
            if job.cached is None:
                job.cached = found
            self.running.append(self.queue.popleft())
            job.computed = found
            job.chunk = min(job.target - job.computed, budget)
            budget -= job.chunk
        p = self.profile
        self.end = (
            self.now
            + (
                p.iteration_s
                + (p.max_batched_tokens - budget) / p.prefill_tokens_per_s
                + p.sequence_s * decodes
                + p.context_token_s * context
            )
            / self.speed
        )

    def complete(self):
        self.now, self.end = self.end, None
        done = []
        for job in list(self.running):
            if job.chunk:
                job.computed += job.chunk
                job.made += job.computed == job.target
                if job.made == 1 and job.first is None:
                    job.first = self.now
            else:
                job.made += 1
            if job.made == job.output:
                job.finish = self.now
                self.release(job, False)
                self.running.remove(job)
                done.append(job)
        return done


def plain_replay(trace, choose, destinations, profile, speed=None):
    """Replay with ``choose(request, outstanding) -> destination``; returns jobs (refused: None) and replicas."""
    offsets, ids = trace.blocks
    full = trace.prompt_tokens // trace.block_tokens  # a part-filled last block is never found
    rows = [[int(b) for b in ids[offsets[i] : offsets[i] + full[i]]] for i in range(len(trace))]
    times = Counter(b for row in rows for b in row)
    shared = {b for b, n in times.items() if n > 1}
    capacity = 10**15 if profile.cache_tokens is None else profile.cache_tokens // trace.block_tokens
    replicas = [Replica(profile, capacity, trace.block_tokens, shared, s) for s in speed or [1.0] * destinations]
    outstanding = [0] * destinations
    jobs = []

    def play(r, until):
        replica = replicas[r]
        while True:
            if replica.end is not None:
                if replica.end > until:
                    return
                outstanding[r] -= len(replica.complete())
            if replica.now >= until or not (replica.running or replica.queue):
                return
            replica.start()

    sent = 0
    for i in range(len(trace)):
        time = float(trace.arrival_s[i])
        prompt, output = int(trace.prompt_tokens[i]), int(trace.output_tokens[i])
        if ceil_div(prompt + output - 1, trace.block_tokens) > capacity:
            jobs.append(None)
            continue
        for r in range(destinations):
            play(r, time)
        r = choose(sent, outstanding)
        sent += 1
        job = Job(i, time, rows[i], prompt, output, target=prompt)
        if replicas[r].end is None and outstanding[r] == 0:
            replicas[r].now = time
        outstanding[r] += 1
        replicas[r].queue.append(job)
        jobs.append(job)
    for r in range(destinations):
        play(r, np.inf)
    return jobs, replicas
