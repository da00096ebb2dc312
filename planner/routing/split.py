"""The canary split by key: a split by request would warm every prefix in both arms."""

from __future__ import annotations

import hashlib

__all__ = ["canary_share"]


def canary_share(salt: str, key_name: str) -> float:
    """Return the fixed position of a key in ``[0, 1)``; the canary takes the key when it is below the weight.

    A key that is in the canary at 1% is also in it at 10% and 50%. The figure is the first 53 bits of
    BLAKE2b over the UTF-8 text of ``salt``, a NUL, and ``key_name``, so any router can recompute it.

    Parameters
    ----------
    salt : str
        The fleet's salt.
    key_name : str
        Name of the routing key.

    Returns
    -------
    float
        In ``[0, 1)``.
    """
    digest = hashlib.blake2b(f"{salt}\0{key_name}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2.0**53
