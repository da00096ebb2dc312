"""Engine profiles: the constants of one replica, each with its source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

import numpy as np

from planner.routing.validation import whole

__all__ = ["PROFILES", "EngineProfile", "derive_profile"]


@dataclass(frozen=True)
class EngineProfile:
    """Constants of one replica (one destination).

    An iteration takes ``iteration_s + prefill_tokens / prefill_tokens_per_s + sequence_s * decodes +
    context_token_s * context_tokens`` seconds.

    Parameters
    ----------
    name : str
        Name of the profile.
    cache_tokens : int or None
        Tokens of KV that fit on the replica, shared by running requests and reusable prefixes; None is
        unlimited.
    prefill_tokens_per_s : float
        Prompt tokens computed in a second.
    iteration_s : float
        Seconds of an iteration without work (t_0): one read of the weights.
    sequence_s : float
        Seconds for each decoding sequence (c_seq).
    context_token_s : float
        Seconds for each context token of the decoding sequences (c_kv): the read of their KV.
    max_batched_tokens : int
        Maximum prompt tokens prefilled in one iteration.
    max_sequences : int
        Maximum running sequences.
    cache_shape : {"paged", "slots"}
        Blocks shared by all sequences (vLLM), or one sequence in each of ``max_sequences`` slots of equal size
        (llama.cpp).
    slot_similarity : float
        For slots: share of its prompt that a request must share with a slot to go there, in ``[0, 1)``; default as in
        llama.cpp.
    serving : mapping
        Model, precision, hardware and so on, as text.
    provenance : mapping
        Source of each constant ("measured", "vendor figure", "derived", "assumed", with the method).

    Raises
    ------
    ValueError
        Naming the constant and its value.
    """

    name: str
    cache_tokens: int | None
    prefill_tokens_per_s: float
    iteration_s: float
    sequence_s: float = 0.0
    context_token_s: float = 0.0
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    cache_shape: str = "paged"
    slot_similarity: float = 0.1
    serving: Mapping[str, str] = field(default_factory=dict, hash=False)
    provenance: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.cache_tokens is not None:
            whole("cache_tokens", self.cache_tokens, 1)
        for name in ("prefill_tokens_per_s", "iteration_s", "sequence_s", "context_token_s"):
            value = getattr(self, name)
            if not np.isfinite(value) or value < 0:
                raise ValueError(f"{name} = {value}: expected a finite number >= 0")
        if self.prefill_tokens_per_s < 1e-6:
            raise ValueError(f"prefill_tokens_per_s = {self.prefill_tokens_per_s}: expected at least 1e-6")
        for name in ("max_batched_tokens", "max_sequences"):
            if whole(name, getattr(self, name), 1) >= 2**31:
                raise ValueError(f"{name} = {getattr(self, name)}: expected below {2**31}")
        if self.cache_shape not in ("paged", "slots"):
            raise ValueError(f"cache_shape = {self.cache_shape!r}: expected paged or slots")
        if not 0 <= self.slot_similarity < 1:
            raise ValueError(f"slot_similarity = {self.slot_similarity}: expected a share in [0, 1)")

    def with_cache(self, cache_tokens: int | None) -> EngineProfile:
        """Return the same engine with another cache size; None is unlimited."""
        return replace(self, cache_tokens=cache_tokens)

    def fingerprint(self) -> str:
        """Return the sha256 of every constant and the serving facts, on which results depend."""
        facts = {k: v for k, v in self.as_dict().items() if k not in ("name", "provenance")}
        if self.cache_shape == "paged":  # fingerprints of paged caches are older than the other shape
            del facts["cache_shape"], facts["slot_similarity"]
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def as_dict(self) -> dict[str, object]:
        """Return every field as plain JSON-able values."""
        return asdict(self)


def derive_profile(
    name: str,
    *,
    model: str,
    precision: str,
    gpus: int,
    parameters: float,
    weight_bytes: float,
    kv_bytes: float,
    flops: float,
    bandwidth: float = 3.35e12,
    memory: float = 80e9,
    utilisation: float = 0.90,
    reserve: float = 2e9,
    prefill_efficiency: float = 0.45,
) -> EngineProfile:
    """Derive a profile from the size of a model and the data sheet of a GPU (a roofline, not a measurement).

    Parameters
    ----------
    name, model, precision : str
        Name of the profile, of the model and of the precision.
    gpus : int
        Tensor-parallel degree.
    parameters : float
        Weights that each token multiplies; 2 FLOP each.
    weight_bytes, kv_bytes : float
        Bytes of all weights, and of the KV of one token.
    flops, bandwidth, memory : float
        Dense FLOP/s, bytes/s and bytes of one GPU (NVIDIA H100 SXM data sheet).
    utilisation : float
        Share of memory that the engine may fill (vLLM's ``gpu_memory_utilization``).
    reserve : float
        Bytes for activations and graphs on each GPU; assumed.
    prefill_efficiency : float
        Share of peak FLOP/s reached in prefill; assumed in the middle of the usual 40-50%.

    Returns
    -------
    EngineProfile
        With the derivation of each constant in ``provenance``.
    """
    free = gpus * (utilisation * memory - reserve) - weight_bytes
    tokens = int(free // kv_bytes)
    token_flop = 2 * parameters
    rate = prefill_efficiency * gpus * flops / token_flop
    return EngineProfile(
        name=name,
        cache_tokens=tokens,
        prefill_tokens_per_s=rate,
        iteration_s=weight_bytes / (gpus * bandwidth),
        sequence_s=token_flop / (gpus * flops),
        context_token_s=kv_bytes / (gpus * bandwidth),
        serving={
            "model": model,
            "precision": precision,
            "hardware": f"{gpus} x H100 SXM 80 GB",
            "tensor_parallel": str(gpus),
            "engine": "vLLM V1 rules",
        },
        provenance={
            "cache_tokens": f"derived: ({utilisation:.0%} of {gpus} x {memory / 1e9:.0f} GB - {reserve / 1e9:g} GB "
            f"reserve each (assumed) - {weight_bytes / 1e9:g} GB weights) / {kv_bytes / 1e3:g} kB a token",
            "prefill_tokens_per_s": f"derived: {prefill_efficiency:.0%} (assumed) of {gpus} x {flops / 1e12:g} "
            f"TFLOP/s (vendor figure) / {token_flop / 1e9:g} GFLOP a token",
            "iteration_s": f"derived: {weight_bytes / 1e9:g} GB / ({gpus} x {bandwidth / 1e12:g} TB/s, vendor figure)",
            "sequence_s": "derived: FLOP of one token at the vendor's peak",
            "context_token_s": "derived: KV bytes of one token / bandwidth",
            "max_batched_tokens": "vLLM's default for online serving on this class of GPU",
            "max_sequences": "vLLM's usual default",
        },
    )


# Weights, layers and KV heads are from the published model cards: 70B has 80 layers, 8B 32, 32B 64, all with
# 8 KV heads of 128; KV bytes are 2 * layers * 8 * 128 * bytes per value.
PROFILES: Mapping[str, EngineProfile] = MappingProxyType(
    {
        p.name: p
        for p in (
            derive_profile(
                "llama-3.3-70b-fp8-tp2-h100",
                model="Llama-3.3-70B-Instruct",
                precision="fp8 weights and KV",
                gpus=2,
                parameters=70.6e9,
                weight_bytes=70.6e9,
                kv_bytes=2 * 80 * 8 * 128,
                flops=1979e12,
            ),
            derive_profile(
                "llama-3.3-70b-fp16-tp2-h100",
                model="Llama-3.3-70B-Instruct",
                precision="fp16",
                gpus=2,
                parameters=70.6e9,
                weight_bytes=141.2e9,
                kv_bytes=2 * 80 * 8 * 128 * 2,
                flops=989.5e12,
                utilisation=0.95,  # at 0.90 the weights alone do not fit
            ),
            derive_profile(
                "llama-3.1-8b-h100",
                model="Llama-3.1-8B-Instruct",
                precision="fp16",
                gpus=1,
                parameters=8.03e9,
                weight_bytes=16.06e9,
                kv_bytes=2 * 32 * 8 * 128 * 2,
                flops=989.5e12,
            ),
            derive_profile(
                "qwen-32b-h100",
                model="Qwen2.5-32B-Instruct",
                precision="fp16",
                gpus=1,
                parameters=32.8e9,
                weight_bytes=65.6e9,
                kv_bytes=2 * 64 * 8 * 128 * 2,
                flops=989.5e12,
                utilisation=0.95,  # at 0.90 the cache holds less than one long prompt
            ),
        )
    }
)
