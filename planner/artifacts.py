"""Store large arrays as Parquet files, addressed by the sha256 of their bytes."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from planner.errors import ArtifactLost, StorageFull
from planner.models import Artifact
from planner.routing import RoutingTable
from planner.simulation import Blocks, Trace


def store(kind: str, table: pa.Table) -> Artifact:
    """Write a table once; equal content gives the same row and file."""
    data = _bytes_of(table)
    name = hashlib.sha256(data).hexdigest()
    found = Artifact.objects.filter(digest=name).first()
    if found is None:
        found = Artifact(digest=name, kind=kind, size_bytes=len(data))
    # Neither the row nor a file of that name is proof: a crash or a full disk may have left half of it.
    if not _holds(found.path, name, len(data)):
        _write(found.path, data)
    if found.pk is None:
        found, _ = Artifact.objects.get_or_create(digest=name, defaults={"kind": kind, "size_bytes": len(data)})
    return found


def _bytes_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_statistics=False)
    return sink.getvalue()


def _holds(path: str, digest: str, size: int) -> bool:
    if not default_storage.exists(path) or default_storage.size(path) != size:
        return False
    with default_storage.open(path) as file:
        return hashlib.sha256(file.read()).hexdigest() == digest


def _write(path: str, data: bytes) -> None:
    """Write a file completely or not at all: in a folder by renaming a finished file, else as the storage does it."""
    try:
        target = Path(default_storage.path(path))
    except NotImplementedError:
        default_storage.delete(path)
        default_storage.save(path, ContentFile(data))
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise StorageFull(f"the artifact folder cannot be written: {error.strerror or error}") from error


def load(artifact: Artifact, columns: list[str] | None = None) -> pa.Table:
    """Read a table, or the given columns of it; refuse bytes that do not match the digest.

    Raises
    ------
    ArtifactLost
        If the stored file is missing, unreadable or altered.
    """
    file = pq.ParquetFile(pa.BufferReader(verify(artifact)))
    return file.read(columns and [name for name in columns if name in file.schema_arrow.names])


def verify(artifact: Artifact) -> bytes:
    """Return the bytes of an artifact, checked against its digest; raises as `load`."""
    try:
        with default_storage.open(artifact.path) as file:
            data: bytes = file.read()
    except OSError as error:
        raise ArtifactLost(f"{artifact} cannot be read from storage: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != artifact.digest:
        raise ArtifactLost(f"{artifact} was altered in storage")
    return data


def store_rates(
    key_names: list[str], rates: np.ndarray, tenants: list[str] | None, prefix_tokens: np.ndarray | None = None
) -> Artifact:
    """Store columns key, rate (requests/s) and, if known, tenant and prefix_tokens; row order is the key index."""
    columns: dict[str, Any] = {"key": pa.array(key_names, pa.string()), "rate": pa.array(rates, pa.float64())}
    if tenants is not None:
        columns["tenant"] = pa.array(tenants, pa.string()).dictionary_encode()
    if prefix_tokens is not None:
        columns["prefix_tokens"] = pa.array(prefix_tokens, pa.int64())
    return store(Artifact.Kind.RATES, pa.table(columns))


def load_rates(artifact: Artifact) -> tuple[list[str], np.ndarray]:
    """Return key names and rates (float64[keys], requests/s), in key-index order."""
    table = load(artifact)
    return table.column("key").to_pylist(), table.column("rate").to_numpy()


def load_rate_vector(artifact: Artifact) -> np.ndarray:
    """Return only the rates (requests/s): reading the names of a million keys takes longer than planning them."""
    vector: np.ndarray = load(artifact).column("rate").to_numpy()
    return vector


def load_prefix_tokens(artifact: Artifact) -> np.ndarray | None:
    """Return the prompt-prefix tokens of each key, if the rates include them."""
    return prefix_tokens_of(load(artifact))


def prefix_tokens_of(table: pa.Table) -> np.ndarray | None:
    """Return `load_prefix_tokens` of a table that is already loaded."""
    return table.column("prefix_tokens").to_numpy() if "prefix_tokens" in table.column_names else None


def load_tenants(artifact: Artifact) -> tuple[list[str], np.ndarray] | None:
    """Return the sorted names of tenants and int64[keys] positions among them; None if the rates have no tenants."""
    return tenants_of(load(artifact))


def tenants_of(table: pa.Table) -> tuple[list[str], np.ndarray] | None:
    """Return `load_tenants` of a table that is already loaded."""
    if "tenant" not in table.column_names:
        return None
    column = table.column("tenant").unify_dictionaries().combine_chunks()
    found = column.dictionary.to_pylist()
    names = sorted(found)
    place = {name: at for at, name in enumerate(names)}
    new_code = np.array([place[name] for name in found], dtype=np.int64)
    return names, new_code[column.indices.to_numpy()]


def store_trace(trace: Trace) -> Artifact:
    """Store arrivals, key indices, lengths and block ids of a trace."""
    blocks = pa.ListArray.from_arrays(
        pa.array(trace.blocks.offsets, pa.int32()), pa.array(trace.blocks.ids, pa.int64())
    )
    table = pa.table(
        {
            "arrival_s": pa.array(trace.arrival_s),
            "key": pa.array(trace.key),
            "prompt_tokens": pa.array(trace.prompt_tokens),
            "output_tokens": pa.array(trace.output_tokens),
            "blocks": blocks,
        }
    ).replace_schema_metadata({"cacheroute": json.dumps({"block_tokens": int(trace.block_tokens)})})
    return store(Artifact.Kind.TRACE, table)


def load_trace(artifact: Artifact, checkpoint: Callable[[], None] = lambda: None) -> Trace:
    """Return the trace. ``checkpoint`` is called between the steps of a large one; its exception ends the work."""
    table = load(artifact)
    checkpoint()
    blocks = table.column("blocks").combine_chunks()
    rows = Blocks(
        blocks.offsets.to_numpy().astype(np.int64), blocks.values.to_numpy(zero_copy_only=False).astype(np.int64)
    )
    checkpoint()
    return Trace(
        arrival_s=table.column("arrival_s").to_numpy(),
        key=table.column("key").to_numpy(),
        blocks=rows,
        prompt_tokens=table.column("prompt_tokens").to_numpy(),
        output_tokens=table.column("output_tokens").to_numpy(),
        block_tokens=json.loads(table.schema.metadata[b"cacheroute"])["block_tokens"],
    )


# Fields of a routing table beside the columns below; the arrays among them and their types.
_TABLE_SCALARS = (
    "imbalance", "slots_used", "admitted_rate", "destinations", "q_cap", "slots", "total_rate", "keys", "warm_tokens",
    "moved", "moved_rate", "admission", "admitted_value", "value_bound", "rewarm_tokens",
    "cooled", "cooled_rate", "target_imbalance",
)  # fmt: skip
_TABLE_ARRAYS: dict[str, Any] = {
    "load": np.float64, "cannot_fit": np.int64, "moved_keys": np.int64, "capacity": np.float64, "available": np.bool_,
    "after_loss": np.float64, "tenant_slots": np.int64, "tenant_rate": np.float64,
}  # fmt: skip


def store_table(table: RoutingTable, key_names: list[str]) -> Artifact:
    """Store one row per admitted key, in descending rate; members are positions among the plan's destinations."""
    return store(Artifact.Kind.TABLE, _arrow_of(table, key_names))


def table_digest(table: RoutingTable, key_names: list[str]) -> str:
    """Return the digest that `store_table` would give the table, without writing."""
    return hashlib.sha256(_bytes_of(_arrow_of(table, key_names))).hexdigest()


def _arrow_of(table: RoutingTable, key_names: list[str]) -> pa.Table:
    members = pa.ListArray.from_arrays(pa.array(table.offsets, pa.int32()), pa.array(table.members, pa.int32()))
    whole = {name: _as_json(getattr(table, name)) for name in _TABLE_SCALARS}
    whole |= {name: [_as_json(x) for x in getattr(table, name).tolist()] for name in _TABLE_ARRAYS}
    return pa.table(
        {
            "key": pa.array([key_names[i] for i in table.admitted.tolist()], pa.string()),
            "key_index": pa.array(table.admitted, pa.int64()),
            "members": members,
            "backup": pa.array(table.backup, pa.int32()),
        }
    ).replace_schema_metadata({"cacheroute": json.dumps(whole, allow_nan=False)})


def _as_json(value: Any) -> Any:
    """Replace infinity and NaN, which JSON lacks, by names that `float` reads."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@lru_cache(maxsize=4)
def _table_of(digest: str) -> tuple[RoutingTable, list[str]]:
    arrow = load(Artifact.objects.get(digest=digest))
    whole: dict[str, Any] = json.loads(arrow.schema.metadata[b"cacheroute"])
    members = arrow.column("members").combine_chunks()
    offsets = members.offsets.to_numpy().astype(np.int64)
    # Older tables lack newer fields; these get the field's default.
    for name in _TABLE_SCALARS:
        if whole.get(name) in ("nan", "inf", "-inf"):
            whole[name] = float(whole[name])
    for name, kind in _TABLE_ARRAYS.items():
        if name in whole:
            whole[name] = np.array(whole[name], dtype=kind)
    table = RoutingTable(
        admitted=arrow.column("key_index").to_numpy().copy(),
        offsets=offsets,
        members=members.values.to_numpy().copy(),
        replicas=np.diff(offsets),
        backup=arrow.column("backup").to_numpy().copy(),
        **whole,
    )
    return table, arrow.column("key").to_pylist()


def load_table(artifact: Artifact) -> tuple[RoutingTable, list[str]]:
    """Return the stored routing table and the names of its admitted keys in the same order."""
    return _table_of(artifact.digest)
