"""One llama.cpp server with a cold cache, as a process of its own: `llama_server.py MODEL SLOTS SLOT_TOKENS`.

Prints its address and serves until its standard input closes, so it never outlives the process that started it.
"""

from __future__ import annotations

import sys

import xllamacpp  # type: ignore[import-untyped]  # ships no types


def main(model: str, slots: int, slot_tokens: int) -> None:
    """Serve ``model`` on a free port of 127.0.0.1."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = slots
    params.n_ctx = slots * slot_tokens
    params.cache_ram_mib = 0  # else idle prompts are kept in host memory, beyond the slots
    params.cache_idle_slots = False
    params.fit_params = False  # take the sizes as they are given
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1  # several servers share a small machine
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 32  # a request that waits for a slot holds one
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
