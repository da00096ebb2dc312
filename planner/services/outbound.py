"""Sending to addresses that people type: only to public ones, and to the one that was looked up and checked.

A name is resolved once and the connection goes to the address that was checked, so that a name that changes between
check and connection (DNS rebinding) leads nowhere else. Redirects are not followed.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpcore
from django.conf import settings

from planner.errors import Invalid

MAX_URL_CHARS = 500
TIMEOUT_S = 5.0
KEPT_BYTES = 500  # of an answer


class NotPublic(Exception):
    """The address is not one that the console sends to."""


@dataclass(frozen=True)
class Answer:
    """What came back: the status and the begin of the body, or why nothing did (status None)."""

    status: int | None
    text: str
    took_s: float

    @property
    def good(self) -> bool:
        """Whether the receiver took it."""
        return self.status is not None and 200 <= self.status < 300


def check_url(url: str) -> str:
    """The address, when it is one that the console may send to.

    Raises
    ------
    Invalid
        For another scheme, credentials in the address, or a literal address that is not public.
    """
    if len(url) > MAX_URL_CHARS or not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise Invalid(f"give an address of at most {MAX_URL_CHARS} printable ASCII characters", field="url")
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"this is no address: {error}", field="url") from error
    if parts.username is not None or parts.password is not None:
        raise Invalid("credentials do not belong in an address: the signature tells who sends", field="url")
    if not host:
        raise Invalid("the address names no host", field="url")
    allowed = False
    try:
        literal = ip_address(host)
    except ValueError:
        pass
    else:
        allowed = _is_allowed(literal)
        if not allowed and not _is_public(literal):
            raise Invalid(f"{host} is not a public address (see CACHEROUTE_WEBHOOK_NETWORKS)", field="url")
    if parts.scheme != "https" and not (parts.scheme == "http" and allowed):
        raise Invalid("use https://", field="url")
    return url


def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send once. Whatever goes wrong is in the answer: a receiver's fault is not the console's."""
    started = time.perf_counter()
    timeout = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
    try:
        check_url(url)
        with httpcore.ConnectionPool(network_backend=_Guarded(), ssl_context=ssl.create_default_context()) as pool:
            given = [("Content-Type", "application/json"), ("User-Agent", "cacheroute-web"), *headers.items()]
            host = urlsplit(url).netloc
            with pool.stream(
                "POST", url, headers=[("Host", host), *given], content=body, extensions={"timeout": timeout}
            ) as response:
                text = b""
                for part in response.iter_stream():
                    text += part
                    if len(text) >= KEPT_BYTES or time.perf_counter() - started > TIMEOUT_S:
                        break
                status: int | None = response.status
    except (NotPublic, Invalid) as refused:
        status, text = None, str(refused).encode()
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError, ValueError) as error:
        status, text = None, f"{type(error).__name__}: {error}".encode()
    shown = text[:KEPT_BYTES].decode(errors="replace").replace("\0", "�")
    return Answer(status, shown, round(time.perf_counter() - started, 3))


class _Guarded(httpcore.NetworkBackend):
    """Connects to public addresses only, and to the very address that was checked."""

    def __init__(self) -> None:
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Look the name up, check what it leads to, connect to that."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        addresses = [str(entry[4][0]) for entry in found]
        # All of them: a name that leads to a public and a private address is not one to trust.
        for address in addresses:
            if not (_is_allowed(ip_address(address)) or _is_public(ip_address(address))):
                raise NotPublic(f"{host} leads to {address}, which is not a public address")
        return self._plain.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        """Never."""
        raise NotPublic("sockets of this machine are not public")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_global) and not (mapped or address).is_multicast


def _is_allowed(address: IPv4Address | IPv6Address) -> bool:
    return any(address in ip_network(network) for network in settings.WEBHOOK_NETWORKS)
