"""A fleet of real llama.cpp servers on this machine, with a tiny model of random weights.

What is measured is where prefixes stay and what is reused, for which it does not matter what the model says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

import gguf
import numpy as np
from numpy.typing import NDArray

from planner.simulation import EngineProfile, IterationPoint, fit

__all__ = ["BATCH_TOKENS", "FIRST_TOKEN", "VOCABULARY", "Answer", "LlamaServer", "fleet", "measure", "write_model"]

VOCABULARY = 1024
FIRST_TOKEN = 259  # before it are three control tokens and the 256 bytes
BATCH_TOKENS = 2048  # llama.cpp's default
TIMEOUT_S = 120.0
_CONTROL, _BYTE, _NORMAL = 3, 6, 1  # token types of the GGUF format


def write_model(path: Path, *, width: int = 32, layers: int = 1, context: int = 8192, seed: int = 0) -> Path:
    """Write a Llama of random weights as a GGUF file (under 1 MB at the defaults)."""
    rng = np.random.default_rng(seed)
    heads, hidden = 2, 2 * width
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    words = [f"w{number}" for number in range(VOCABULARY - FIRST_TOKEN)]
    writer.add_token_list(["<unk>", "<s>", "</s>", *bytes_, *words])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([_CONTROL] * 3 + [_BYTE] * 256 + [_NORMAL] * len(words))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def weights(*shape: int) -> NDArray[np.float32]:
        return (0.05 * rng.standard_normal(shape)).astype(np.float32)

    ones = np.ones(width, dtype=np.float32)
    writer.add_tensor("token_embd.weight", weights(VOCABULARY, width))
    writer.add_tensor("output.weight", weights(VOCABULARY, width))
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights(width, width))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights(hidden, width))
        writer.add_tensor(f"blk.{layer}.ffn_down.weight", weights(width, hidden))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Answer(NamedTuple):
    """What an engine says of a request."""

    prompt_tokens: int
    cached_tokens: int
    prefill_s: float
    decode_s: float  # of all tokens after the first


class LlamaServer:
    """A server process; leaving the ``with`` block ends it."""

    def __init__(self, model: Path, *, slots: int, slot_tokens: int, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("llama_server.py"), model, str(slots), str(slot_tokens)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> LlamaServer:
        assert self._process.stdout is not None
        address = urlsplit(self._process.stdout.readline().strip())
        if address.hostname is None or address.port is None:
            self.stop()
            raise RuntimeError(f"llama.cpp did not start: {self._log.read_text(errors='replace')[-2000:]}")
        self._address = (address.hostname, address.port)
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def complete(self, prompt: Sequence[int], output_tokens: int) -> Answer:
        """Send the token ids of a prompt; return when all of the answer is there."""
        order = {"prompt": list(prompt), "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
        answer = json.loads(self._ask("POST", "/v1/completions", json.dumps(order)))
        usage, timings = answer["usage"], answer["timings"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        if usage["completion_tokens"] != output_tokens or cached != timings["cache_n"]:
            raise RuntimeError(f"llama.cpp answered at odds with itself or the order: {usage}, {timings}")
        return Answer(usage["prompt_tokens"], cached, timings["prompt_ms"] / 1e3, timings["predicted_ms"] / 1e3)

    def prompt_tokens(self) -> tuple[int, int]:
        """Return the prompt tokens computed and reused since the start, by the server's metrics."""
        lines = (line.split() for line in self._ask("GET", "/metrics").decode().splitlines() if line[:1] != "#")
        value = {line[0]: int(float(line[1])) for line in lines if len(line) == 2}
        return value["llamacpp:prompt_tokens_total"], value["llamacpp:prompt_tokens_cached_total"]

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = HTTPConnection(*self._address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"llama.cpp: {method} {path}: {response.status} {content[:500]!r}")
        return content


@contextmanager
def fleet(count: int, model: Path, *, slots: int, slot_tokens: int) -> Iterator[list[LlamaServer]]:
    """Servers with nothing in their caches, started side by side; logs go beside the model."""
    with ExitStack() as stack:
        logs = [model.with_name(f"llama-{at}.log") for at in range(count)]
        servers = [LlamaServer(model, slots=slots, slot_tokens=slot_tokens, log=log) for log in logs]
        for server in servers:
            stack.callback(server.stop)
        for server in servers:
            server.__enter__()
        yield servers


def measure(servers: Sequence[LlamaServer], *, slots: int, slot_tokens: int, repeats: int = 5) -> EngineProfile:
    """Fit an engine's constants to iterations that the servers timed, one server at work after the other.

    Not all at once: they share the cores of this machine, and a load at which prefixes matter leaves them mostly idle.
    """
    rng = np.random.default_rng(1)

    lengths = ((16, 24), (128, 8), (slot_tokens // 2, 8), (slot_tokens - 32, 24))
    prompts = [rng.integers(FIRST_TOKEN, VOCABULARY, (repeats, tokens)).tolist() for tokens, _ in lengths]

    def points(server: LlamaServer) -> list[IterationPoint]:
        found = []
        for (tokens, decodes), sent in zip(lengths, prompts, strict=True):
            answers = [server.complete(prompt, decodes + 1) for prompt in sent]
            prefill = float(np.median([answer.prefill_s for answer in answers]))
            decode = float(np.median([answer.decode_s for answer in answers])) / decodes
            computed = float(np.median([answer.prompt_tokens - answer.cached_tokens for answer in answers]))
            found.append(IterationPoint(computed, 0, 0, prefill))
            found.append(IterationPoint(0, 1, tokens + decodes / 2, decode))
        return found

    rows = [point for server in servers for point in points(server)]
    base = EngineProfile(
        name="llama.cpp",
        cache_tokens=slots * slot_tokens,
        prefill_tokens_per_s=1.0,
        iteration_s=0.0,
        max_batched_tokens=BATCH_TOKENS,
        max_sequences=slots,
        cache_shape="slots",
        serving={"engine": "llama.cpp", "model": "random weights", "hardware": "this machine"},
    )
    return fit(rows, base=base, name="llama.cpp-here")
