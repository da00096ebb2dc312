"""One workload under one policy twice: simulated by the replay, and served by real llama.cpp engines.

Both dispatch by the same compiled rules, tables and random draws; what they see outstanding is their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.llama_fleet import FIRST_TOKEN, VOCABULARY, Answer, LlamaServer, fleet, measure, write_model
from planner.routing import POLICIES, RoutingTable, build_table
from planner.routing.hashing import hash_indices, key_hashes
from planner.routing.policies import Costs, KeySpace, choose, propose, quiet_signals
from planner.routing.policies.base import CANDIDATES
from planner.simulation import Blocks, EngineProfile, Trace, replay

__all__ = ["POLICY_NAMES", "Comparison", "Dispatcher", "Workload", "compare", "make_workload", "served"]

POLICY_NAMES = ("flat-lb", "round-robin", "sticky", "cacheroute")
ENGINES, SLOTS, SLOT_TOKENS = 3, 3, 640
KEYS, REQUESTS, OUTPUT_TOKENS = 12, 150, 4
LOAD_RPS = 20.0  # at most
# Requests under way on an engine, on average, at most. What is kept hangs on which slots are busy: with more of them
# the figures would be about speed, and a shared machine's speed varies while it is measured. When others took so much
# of it that more were under way, the load is lowered and the policy played again.
UNDER_WAY = 0.1
SLOWER, SLOWDOWNS = 0.7, 2


class Workload(NamedTuple):
    """Prompts as token ids, the trace that says the same to a replay, and the true rates of its keys."""

    prompts: list[list[int]]
    trace: Trace
    rates: NDArray[np.float64]


def make_workload(load_rps: float, *, seed: int, keys: int = KEYS, requests: int = REQUESTS) -> Workload:
    """Poisson arrivals of keys with rates like 1, 1/2, 1/3, ...; each prompt its key's prefix and a suffix of its own.

    Prompts of different keys differ from the first token on and those of one key from the first one after the
    prefix, so the trace, in blocks of one token, shares exactly what the prompts share.
    """
    if requests + keys > VOCABULARY - FIRST_TOKEN:
        raise ValueError(f"requests = {requests}: too many to begin each suffix with a token of its own")
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, keys + 1)
    share /= share.sum()
    key = rng.choice(keys, requests, p=share)
    lengths = rng.permutation(np.linspace(280, 520, keys).astype(int))
    prefixes = [rng.integers(FIRST_TOKEN, VOCABULARY, length) for length in lengths]
    prompts, blocks = [], []
    for number, k in enumerate(key):
        prefixes[k][0] = FIRST_TOKEN + k
        suffix = rng.integers(FIRST_TOKEN, VOCABULARY, rng.integers(20, 61))
        suffix[0] = FIRST_TOKEN + keys + number
        prompts.append([*prefixes[k].tolist(), *suffix.tolist()])
        own = np.arange(len(suffix)) + (keys + number) * SLOT_TOKENS
        blocks.append([*range(k * SLOT_TOKENS, k * SLOT_TOKENS + len(prefixes[k])), *own.tolist()])
    trace = Trace(
        arrival_s=np.cumsum(rng.exponential(1 / load_rps, requests)),
        key=key,
        blocks=Blocks.from_lists(blocks),
        prompt_tokens=np.array([len(prompt) for prompt in prompts]),
        output_tokens=np.full(requests, OUTPUT_TOKENS),
        block_tokens=1,
    )
    return Workload(prompts, trace, load_rps * share)


class Dispatcher:
    """A policy that decides over what is really outstanding, by the rules, draws and tables that a replay takes."""

    def __init__(self, policy: str, trace: Trace, *, destinations: int, table: RoutingTable, seed: int) -> None:
        kind = POLICIES[policy]
        if kind.needs_cache:
            raise ValueError(f"policy = {policy!r}: reads caches, which a dispatcher cannot see")
        distinct, self._key = trace.dense_keys
        keys = KeySpace(distinct, key_hashes(distinct, trace.key_names))
        nothing_known = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._tables = kind.prepare(keys, destinations, [table], nothing_known)
        self._trace = trace
        self._lock = threading.Lock()
        # Compile before the clock runs.
        self._signals, self._rng = quiet_signals(destinations), np.ones(1, dtype=np.uint64)
        self.send(0)
        self._signals, self._rng = quiet_signals(destinations), hash_indices(np.array([seed]), salt=7)

    def send(self, number: int) -> int:
        """Choose a destination for a request and count it as outstanding there."""
        key = int(self._key[number])
        with self._lock:
            self._signals.request[:] = number, self._trace.prompt_tokens[number]
            if self._tables.looks == CANDIDATES:
                propose(self._tables, self._signals, key, self._rng)
            destination = int(choose(self._tables, self._signals, key, self._rng))
            self._signals.outstanding[destination] += 1
        return destination

    def finished(self, destination: int) -> None:
        """Count a request as done."""
        with self._lock:
            self._signals.outstanding[destination] -= 1


class Served(NamedTuple):
    """What engines did with a workload; one row a request."""

    answers: list[Answer]
    destination: NDArray[np.int64]
    sent_s: NDArray[np.float64]
    done_s: NDArray[np.float64]

    @property
    def under_way(self) -> float:
        """Requests under way on an engine, on average."""
        return float((self.done_s - self.sent_s).sum() / self.done_s.max() / ENGINES)

    @property
    def prompt_tokens(self) -> NDArray[np.int64]:
        return np.array([answer.prompt_tokens for answer in self.answers])

    @property
    def cached_tokens(self) -> NDArray[np.int64]:
        return np.array([answer.cached_tokens for answer in self.answers])

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens / prompt tokens."""
        return float(self.cached_tokens.sum() / self.prompt_tokens.sum())


def served(workload: Workload, dispatcher: Dispatcher, servers: Sequence[LlamaServer]) -> Served:
    """Send every request at its time to where the dispatcher wants it."""
    trace = workload.trace
    destination = np.zeros(len(trace), dtype=np.int64)
    sent, done = np.zeros(len(trace)), np.zeros(len(trace))
    answers: list[Future[Answer]] = []

    def ask(number: int, r: int) -> Answer:
        answer = servers[r].complete(workload.prompts[number], int(trace.output_tokens[number]))
        done[number] = time.perf_counter() - start
        dispatcher.finished(r)
        return answer

    # A thread each while it is under way: none waits for another on this side.
    with ThreadPoolExecutor(len(trace)) as pool:
        start = time.perf_counter()
        for number in range(len(trace)):
            time.sleep(max(0.0, trace.arrival_s[number] - (time.perf_counter() - start)))
            r = dispatcher.send(number)
            destination[number], sent[number] = r, time.perf_counter() - start
            answers.append(pool.submit(ask, number, r))
    return Served([answer.result() for answer in answers], destination, sent, done)


@dataclass(frozen=True)
class Comparison:
    """A policy simulated and served.

    Attributes
    ----------
    load_rps : float
    simulated : float
        Hit rate, token-weighted, that the replay says.
    engines : Served
    metrics : tuple of (int, int)
        Of each engine: prompt tokens computed and reused, by its own counters.
    as_sent : float
        Hit rate of replays of each engine alone, of the requests really sent to it and their times: the cache's model
        without the dispatch.
    """

    policy: str
    load_rps: float
    simulated: float
    engines: Served
    metrics: tuple[tuple[int, int], ...]
    as_sent: float


def _as_sent(workload: Workload, profile: EngineProfile, done: Served) -> float:
    cached = 0
    for r in range(ENGINES):
        part = np.flatnonzero(done.destination == r)
        if not len(part):
            continue
        rows = [workload.trace.blocks.ids[slice(*workload.trace.blocks.offsets[i : i + 2])].tolist() for i in part]
        trace = replace(
            workload.trace,
            arrival_s=done.sent_s[part],
            key=workload.trace.key[part],
            blocks=Blocks.from_lists(rows),
            prompt_tokens=workload.trace.prompt_tokens[part],
            output_tokens=workload.trace.output_tokens[part],
        )
        cached += int(replay(trace, policy="round-robin", destinations=1, profile=profile).cached_tokens.sum())
    return cached / int(workload.trace.prompt_tokens.sum())


def compare(folder: Path, *, seed: int = 1, policies: Sequence[str] = POLICY_NAMES) -> Iterator[Comparison]:
    """Measure the engines, make a workload of a load that suits them, and play each policy on engines that are cold.

    Parameters
    ----------
    folder : Path
        For the model and the logs of the servers.
    """
    model = write_model(folder / "tiny.gguf")
    with fleet(ENGINES, model, slots=SLOTS, slot_tokens=SLOT_TOKENS) as servers:
        profile = measure(servers, slots=SLOTS, slot_tokens=SLOT_TOKENS)
    cold_s = make_workload(1.0, seed=seed).trace.prompt_tokens.mean() / profile.prefill_tokens_per_s
    cold_s += OUTPUT_TOKENS * (profile.iteration_s + profile.sequence_s + SLOT_TOKENS * profile.context_token_s)
    load, slowdowns = min(LOAD_RPS, UNDER_WAY * ENGINES / cold_s), 0
    for policy in policies:
        found = _play(policy, make_workload(load, seed=seed), profile, model, seed)
        while found.engines.under_way > UNDER_WAY and slowdowns < SLOWDOWNS:
            load, slowdowns = SLOWER * load, slowdowns + 1
            found = _play(policy, make_workload(load, seed=seed), profile, model, seed)
        yield found


def _play(policy: str, workload: Workload, profile: EngineProfile, model: Path, seed: int) -> Comparison:
    trace = workload.trace
    total = float(workload.rates.sum())
    table = build_table(workload.rates, destinations=ENGINES, q_cap=1.3 * total / ENGINES, slots=ENGINES * SLOTS)
    simulated = replay(trace, policy=policy, destinations=ENGINES, profile=profile, table=table, seed=seed)
    dispatcher = Dispatcher(policy, trace, destinations=ENGINES, table=table, seed=seed)
    with fleet(ENGINES, model, slots=SLOTS, slot_tokens=SLOT_TOKENS) as servers:
        done = served(workload, dispatcher, servers)
        metrics = tuple(server.prompt_tokens() for server in servers)
    as_sent = _as_sent(workload, profile, done)
    return Comparison(policy, total, simulated.hit_rate, done, metrics, as_sent)
